#include "train/run_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../files/scratch.hpp"
#include "small_run.hpp"

namespace switchyard::train {
namespace {

using testing::HasSubstr;

class RunLogTest : public testing::Test {
 protected:
  // What a log of these steps prints.
  std::string write(const config::Job& job, const std::string& plan_json, const std::vector<i64>& steps) {
    testing::internal::CaptureStderr();
    {
      RunLog log(job, plan_json, steps.front());
      for (const i64 step : steps) log.add({.step = step, .loss = 2.5, .tokens = 10, .time = {1}});
      log.say("a word");
    }
    return testing::internal::GetCapturedStderr();
  }
  Scratch scratch_;
  std::string out_ = (scratch_ / "run").string();
};

TEST_F(RunLogTest, WritesAFolderAndTheTerminal) {
  const config::Job job = small_job("data", out_);
  const std::string told = write(job, "compared", {1, 2});
  EXPECT_THAT(told, testing::AllOf(HasSubstr("step 1/4"), HasSubstr("step 2/4"), HasSubstr("a word\n")));
  EXPECT_THAT(files::get(out_ + "/log.jsonl"),
              testing::AllOf(HasSubstr("{\"step\":1,\"loss\":2.5,"), HasSubstr("{\"step\":2,")));
  EXPECT_EQ(files::get(out_ + "/plan.json"), "compared");
  EXPECT_EQ(config::job_from_toml(files::get(out_ + "/job.toml"), "job.toml"), job);
}

TEST_F(RunLogTest, AFreshRunForgetsThePlanOfAnotherAndARunThatGoesOnKeepsItsLog) {
  const config::Job job = small_job("data", out_);
  write(job, "compared", {1, 2});
  write(job, "", {2});
  EXPECT_EQ(files::get(out_ + "/plan.json"), "compared");
  const std::string log = files::get(out_ + "/log.jsonl");
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2);
  write(job, "", {1});
  EXPECT_FALSE(std::filesystem::exists(out_ + "/plan.json"));
}

TEST_F(RunLogTest, ARunThatGoesOnWithoutValidationLosesThoseOfLaterSteps) {
  write(small_job("data", out_), "", {1});
  const std::string path = out_ + "/validation.jsonl";
  EXPECT_FALSE(std::filesystem::exists(path));
  files::put(path, "{\"step\":1}\n{\"step\":2}\n");
  write(small_job("data", out_), "", {2});
  EXPECT_EQ(files::get(path), "{\"step\":1}\n");
}

TEST_F(RunLogTest, WithoutAFolderThereIsOnlyTheTerminal) {
  EXPECT_THAT(write(small_job("data", ""), "", {1}), HasSubstr("step 1/4"));
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST(NotKept, is_what_a_run_has_no_folder_for_and_the_model_if_asked_for) {
  config::Job job = small_job("data", "");
  job.log.wandb = true;
  EXPECT_THAT(not_kept(job),
              testing::ElementsAre("nothing of this run will be kept, as it has no folder; --out DIR gives it one",
                                   "log.wandb needs run.out: nothing is sent"));
  job.run.out = "run";
  EXPECT_THAT(not_kept(job), testing::IsEmpty());
  job.run.save_last = false;
  EXPECT_THAT(not_kept(job),
              testing::ElementsAre("the model will not be kept when the run ends: run.save_last = false"));
}

}  // namespace
}  // namespace switchyard::train
