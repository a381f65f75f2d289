#include "train/bench_rank.hpp"

#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "bench_model.hpp"

namespace switchyard::train {
namespace {

TEST(BenchPlans, home_is_where_the_first_strategy_uses_the_parameters) {
  const compiler::Plans plans = bench_plans(bench_model(), "bf16", {"1,2,1", "2,1,1"}, cluster::uniform(1, 2));
  ASSERT_EQ(plans.strategies().size(), 2u);
  EXPECT_EQ(plans.graph().precision().compute, DType::bf16);
  for (size_t p = 0; p < plans.home().size(); ++p) {
    if (plans.graph().param(static_cast<int>(p)).shape.size.size() < 2) continue;  // norms: one of the copies
    ASSERT_EQ(plans.home()[p].shards.size(), 2u) << p;
    for (size_t s = 0; s < 2; ++s)
      EXPECT_EQ(plans.home()[p].shards[s].box, plans.strategies()[0].maps.used[p].shards[s].box) << p;
  }
}

TEST(BenchPlans, strategies_that_do_not_fit_the_ranks_or_the_model_are_refused) {
  EXPECT_EQ(message_of<UserError>([] { bench_plans(bench_model(), "fp32", {"1,4,1"}, cluster::uniform(1, 2)); }),
            "strategy \"1,4,1\" needs 4 ranks, but the run has 2. Use degrees whose product is at most 2, or "
            "raise run.ranks.");
  EXPECT_EQ(
      message_of<UserError>([] {
        bench_plans(bench_model(), "fp32", {"3,1,1", "1,3,1"}, cluster::uniform(1, 3));
      }),
      "strategy \"1,3,1\": groups[0].stages[0].mesh (outer=3) can't divide 4 heads with 2 key/value heads. The axes "
      "that divide heads (outer, inner, ulysses) make at most as many parts as there are heads; above the key/value "
      "heads, leading factors of theirs multiply to these. Use outer (tp / inner) = 2 or 4.");
}

}  // namespace
}  // namespace switchyard::train
