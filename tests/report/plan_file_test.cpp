#include "report/plan_file.hpp"

#include <gmock/gmock.h>

#include <functional>

#include "base/errors.hpp"

namespace switchyard::report {
namespace {

TEST(PlanFile, candidates_come_back_as_they_were_written) {
  const std::vector<Candidate> written = {
      {.name = "up to 8192: 1,4,1", .seconds = 1.25, .peak = i64{1} << 40, .fits = true, .chosen = true},
      {.name = "4,1,1 \"alone\"", .seconds = {}, .peak = {}, .fits = false, .remark = "takes 3 GiB"}};
  const std::vector<Candidate> read = read_plan(plan_text(written, {}), "plan.json");
  ASSERT_EQ(read.size(), written.size());
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].name, written[i].name);
    EXPECT_EQ(read[i].seconds, written[i].seconds);
    EXPECT_EQ(read[i].peak, written[i].peak);
    EXPECT_EQ(read[i].fits, written[i].fits);
    EXPECT_EQ(read[i].chosen, written[i].chosen);
    EXPECT_EQ(read[i].remark, written[i].remark);
  }
}

TEST(PlanFile, is_of_a_job_with_the_same_model_batches_and_buckets) {
  config::Job planned;
  planned.buckets = {{4096, {}, config::strategy_from_spec("2,1,1", 2, 4)}};
  const std::string text = plan_text({}, planned);
  config::Job job = planned;
  job.run.steps = 7;
  job.optimizer.lr = 1;
  EXPECT_TRUE(is_plan_of(text, job, "p")) << "nothing that a plan depends on";
  const std::vector<std::function<void()>> changes = {
      [&] { job.model.config.layers += 1; },
      [&] { job.batch.sequences += 1; },
      [&] { job.buckets[0].max_length = 512; },
      [&] { job.buckets[0].strategy.recompute = config::Recompute::full; },
      [&] { job.run.order = {0}; },
  };
  for (const auto& change : changes) {
    job = planned;
    change();
    EXPECT_FALSE(is_plan_of(text, job, "p"));
  }
  EXPECT_FALSE(is_plan_of(R"({"candidates": []})", planned, "p")) << "of a version that did not say";
  EXPECT_EQ(plan_path_of("jobs/planned.toml"), "jobs/planned.plan.json");
}

TEST(PlanFile, what_is_no_list_of_plans_is_reported_with_its_place) {
  for (const char* text :
       {"", "[]", "{}", R"({"candidates": 1})", R"({"candidates": [1]})", R"({"candidates": [{"name": 1}]})",
        R"({"candidates": [{"name":"a","seconds":1e308,"peak":1,"fits":true,"chosen":true,"remark":""}]})",
        R"({"candidates": [{"name":"a","seconds":-1,"peak":1,"fits":true,"chosen":true,"remark":""}]})",
        R"({"candidates": [{"name":"a","seconds":1,"peak":1e30,"fits":true,"chosen":true,"remark":""}]})",
        R"({"candidates": [{"name":"a","seconds":1,"peak":1,"fits":1,"chosen":true,"remark":""}]})"}) {
    try {
      read_plan(text, "runs/x/plan.json");
      ADD_FAILURE() << text;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("runs/x/plan.json is no list of plans"),
                                               testing::HasSubstr("Remove it")));
    }
  }
}

}  // namespace
}  // namespace switchyard::report
