#include "compiler/bucket_spec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "batch/validate.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

using testing::Each;
using testing::Field;
using testing::IsEmpty;

Plans bucket_plans(const std::string& text, int hosts, int devices) {
  config::ModelConfig model = small_llama();
  return Plans(training_graph(model), {config::strategy_from_spec(text, hosts * devices, model.layers)}, 0,
               cluster::uniform(hosts, devices), switching::Planner::relay);
}

std::vector<batch::Ring> rings_of(const std::string& text, int hosts, int devices) {
  return bucket_spec(bucket_plans(text, hosts, devices), 0, 64).rings;
}

TEST(BucketSpec, has_no_rings_unless_the_strategy_has) {
  EXPECT_THAT(rings_of("dp=2,tp=2", 1, 4), IsEmpty());
  const std::vector<batch::Ring> rings = rings_of("dp=2,ring=2", 1, 4);
  ASSERT_EQ(rings.size(), 2u);
  EXPECT_THAT(rings, Each(Field(&batch::Ring::ranks, 2)));
}

TEST(BucketSpec, tells_how_many_ring_ranks_are_on_a_host) {
  const auto per_host = [](const std::string& text, int hosts, int devices) {
    return rings_of(text, hosts, devices).front().ranks_per_host;
  };
  EXPECT_EQ(per_host("ring=4", 1, 4), 4);
  EXPECT_EQ(per_host("ring=4", 2, 2), 2);
  EXPECT_EQ(per_host("tp=2,ring=4", 2, 4), 2);
  EXPECT_EQ(per_host("tp=2,ring=2", 2, 2), 1);
  EXPECT_EQ(per_host("ring=6", 3, 2), 2);
  EXPECT_EQ(per_host("pp=2,ring=2", 2, 2), 2) << "each stage has a host of its own";
}

TEST(BucketSpec, of_a_ring_counts_what_each_ring_rank_takes) {
  const batch::RingCosts whole = rings_of("ring=4", 2, 2).front().costs,
                         halves = rings_of("tp=2,ring=2", 2, 2).front().costs;
  EXPECT_GT(whole.per_token, 0);
  EXPECT_NEAR(halves.per_pair / whole.per_pair, 0.5, 1e-9) << "each rank has half of the heads";
  EXPECT_NEAR(halves.per_key_inside / whole.per_key_inside, 0.5, 1e-9);
  EXPECT_GT(whole.per_key_across, whole.per_key_inside);
  EXPECT_GT(whole.per_ring_step, 0);
}

TEST(BucketSpec, of_ring_strategies_makes_batches_that_can_be_assembled) {
  const std::vector<i64> lengths = {40, 33, 12, 5, 9, 64, 1, 2};
  for (const char* text : {"ring=4", "ring=4,ring_degree=uniform", "dp=2,ring=2", "pp=2,ring=2", "ring=2,ulysses=2",
                           "ring=4,packing=stream", "ring=2,ulysses=2,packing=stream", "ring=2 + tp=2"}) {
    SCOPED_TRACE(text);
    const Plans plans = bucket_plans(text, 2, 2);
    const batch::BucketSpec spec = bucket_spec(plans, 0, 64);
    const batch::StepPlan plan = batch::plan_batch(0, lengths, {&spec, 1}, {1, 0.01});
    batch::validate(plan, lengths, {&spec, 1});
    verify(assemble(plan, plans, {}));
  }
}

TEST(BucketSpec, pads_the_parts_of_a_stream_for_two_chunks_on_each_rank) {
  const auto multiple = [](const std::string& text) {
    return bucket_spec(bucket_plans(text + ",packing=stream", 1, 4), 0, 64).document_multiple;
  };
  EXPECT_EQ(multiple("dp=4"), 1);
  EXPECT_EQ(multiple("ring=4"), 2) << "of each ring rank's part";
  EXPECT_EQ(multiple("ring=2,ulysses=2"), 4);
  EXPECT_EQ(multiple("ulysses=4"), 8);
}

}  // namespace
}  // namespace switchyard::compiler
