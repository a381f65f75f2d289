#include "train/batch_planner.hpp"

#include <gtest/gtest.h>

#include "../files/scratch.hpp"
#include "base/errors.hpp"
#include "comm/thread_fabric.hpp"
#include "compiler/job_plans.hpp"
#include "small_run.hpp"

namespace switchyard::train {
namespace {

class BatchPlannerTest : public testing::Test {
 protected:
  BatchPlannerTest() {
    write_small_corpus(scratch_ / "data");
    job_ = small_job((scratch_ / "data").string(), "",
                     {"run.ranks=1", "bucket.0.strategy=1,1,1", "bucket.1.strategy=1,1,1"});
    sources_ = data::open_sources(job_);
    sampler_.emplace(data::sampler_of(sources_, job_));
  }
  template <class Body>
  void on_one_rank(Body body) {
    const auto fabrics = comm::thread_fabrics(1, cluster::uniform(1, 1));
    const compiler::Plans plans = compiler::plans_of(job_, cluster::uniform(1, 1));
    BatchPlanner planner(job_, sources_, *sampler_, plans, *fabrics[0], nullptr);
    body(planner);
  }
  Scratch scratch_;
  config::Job job_;
  std::vector<data::Source> sources_;
  std::optional<data::Sampler> sampler_;
};

TEST_F(BatchPlannerTest, PlansThatWereMadeAheadAreThoseThatWouldBeMadeNow) {
  std::vector<PlannedBatch> ahead;
  on_one_rank([&](BatchPlanner& planner) {
    data::Cursor cursor;
    for (i64 step = 0; step < job_.run.steps; ++step)
      cursor = ahead.emplace_back(planner.take(step, cursor)).batch.next;
  });
  for (i64 step = 1; step < job_.run.steps; ++step)
    on_one_rank([&](BatchPlanner& planner) {
      const auto s = static_cast<size_t>(step);
      const PlannedBatch now = planner.take(step, ahead[s - 1].batch.next);
      EXPECT_EQ(ahead[s].plan, now.plan);
      EXPECT_EQ(ahead[s].plan.step, step);
      EXPECT_EQ(data::Sampler::lengths(ahead[s].batch), data::Sampler::lengths(now.batch));
      EXPECT_NE(ahead[s].plan, ahead[s - 1].plan);
    });
}

TEST_F(BatchPlannerTest, AnotherStepThanTheNextOneIsAnError) {
  on_one_rank([&](BatchPlanner& planner) {
    planner.take(0, {});
    EXPECT_THROW(planner.take(2, {}), InternalError);
  });
}

}  // namespace
}  // namespace switchyard::train
