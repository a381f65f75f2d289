#include "report/run_log.hpp"

#include <gtest/gtest.h>

#include "../compiler/small_models.hpp"

namespace switchyard::report {
namespace {

TEST(RunLog, gives_columns_with_gaps_and_the_highest_peak_of_each_rank) {
  const RunLog log = read_log(R"({"step":4,"loss":2.5,"tokens_per_second":10.0,"peak_bytes_per_rank":[5,9],)"
                              R"("predicted_peak_bytes_per_rank":[6,8],"skipped":false})"
                              "\n"
                              R"({"step":5,"loss":null,"tokens_per_second":12.0,"peak_bytes_per_rank":[7,8],)"
                              R"("predicted_peak_bytes_per_rank":[6,9],"skipped":true})"
                              "\n",
                              "log.jsonl");
  EXPECT_EQ(log.steps.step, (std::vector<i64>{4, 5}));
  ASSERT_EQ(log.steps.series.size(), 2u);
  EXPECT_EQ(log.steps.series[0].name, "loss");
  EXPECT_EQ(log.steps.series[0].values, (std::vector<std::optional<double>>{2.5, std::nullopt}));
  EXPECT_EQ(values_of(log.steps, "loss"), std::vector<double>{2.5});
  EXPECT_EQ(values_of(log.steps, "tokens_per_second"), (std::vector<double>{10, 12}));
  EXPECT_TRUE(values_of(log.steps, "bubble_share").empty());
  EXPECT_EQ(value_at(log.steps, "tokens_per_second", 5), 12);
  EXPECT_EQ(value_at(log.steps, "loss", 5), std::nullopt);
  EXPECT_EQ(value_at(log.steps, "loss", 6), std::nullopt);
  EXPECT_EQ(value_at(log.steps, "bubble_share", 4), std::nullopt);
  EXPECT_EQ(log.measured_peak, (std::vector<i64>{7, 9}));
  EXPECT_EQ(log.predicted_peak, (std::vector<i64>{6, 9}));
}

TEST(RunLog, has_the_loss_and_the_tokens_of_each_source) {
  const RunLog log = read_log(
      "{\"step\":1,\"loss\":2,\"tokens/web\":7}\n"
      "{\"step\":2,\"loss\":3,\"loss/web\":3.5,\"tokens/web\":9,\"loss/my code\":2.5}\n",
      "log.jsonl");
  EXPECT_EQ(values_of(log.steps, "tokens/web"), (std::vector<double>{7, 9}));
  const auto found = std::ranges::find(log.steps.series, "loss/my code", &Series::name);
  ASSERT_NE(found, log.steps.series.end());
  EXPECT_EQ(found->values, (std::vector<std::optional<double>>{std::nullopt, 2.5}));
  for (const Series& series : log.steps.series) EXPECT_EQ(series.values.size(), 2u) << series.name;
}

TEST(RunLog, has_validations_in_the_steps_that_they_follow) {
  RunLog log = read_log("{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":3}\n{\"step\":3,\"loss\":1}\n", "log.jsonl");
  add_validations(log,
                  "{\"step\":1,\"loss\":5,\"tokens\":3}\n{\"step\":3,\"loss\":4,\"loss/to 8\":6}\n"
                  "{\"step\":4,\"loss\":4}\n{\"step\":9,",
                  "validation.jsonl");
  const auto column = [&](const std::string& name) {
    return std::ranges::find(log.steps.series, name, &Series::name)->values;
  };
  using Values = std::vector<std::optional<double>>;
  EXPECT_EQ(column("validation/loss"), (Values{5, std::nullopt, 4}));
  EXPECT_EQ(column("validation/loss/to 8"), (Values{std::nullopt, std::nullopt, 6}));
  EXPECT_EQ(log.steps.series.size(), 3u);
  EXPECT_NE(
      message_of([&] { add_validations(log, "{\"step\":0}\n", "v"); }).find("v line 1 is no validation of a run ("),
      std::string::npos);
}

TEST(RunLog, has_the_buckets_that_steps_chose) {
  const RunLog log = read_log("{\"step\":1,\"chosen_buckets\":[0,2]}\n{\"step\":2}\n", "log");
  EXPECT_EQ(log.chosen_buckets, (std::map<i64, std::vector<int>>{{1, {0, 2}}}));
}

TEST(RunLog, skips_a_last_line_that_is_cut_off) {
  EXPECT_EQ(read_log("{\"step\":1,\"loss\":1}\n{\"step\":2,\"lo", "log").steps.step, std::vector<i64>{1});
}

TEST(RunLog, refuses_numbers_that_no_run_writes) {
  const auto told = [](const std::string& text) { return message_of([&] { read_log(text, "log.jsonl"); }); };
  for (const char* line :
       {R"({"step":-2})", R"({"step":0})", R"({"step":1e308})", R"({"step":1.5})", R"({"step":null})",
        R"({"step":9223372036854775807})", R"({"step":1,"loss":1e999})", R"({"step":1,"seconds":-1})",
        R"({"step":1,"seconds":1e308})", R"({"step":1,"intra_bytes":1e308})", R"({"step":1,"inter_bytes":-1})",
        R"({"step":1,"peak_bytes_per_rank":5})", R"({"step":1,"peak_bytes_per_rank":[1e30]})",
        R"({"step":1,"chosen_buckets":[6]})", R"({"step":1,"predicted_peak_bytes_per_rank":[-1]})",
        R"({"step":1,"tokens":{}})"})
    EXPECT_NE(told(std::string(line) + "\n").find("log.jsonl line 1 is no step of a run ("), std::string::npos) << line;
  EXPECT_NE(told("{\"step\":2}\n{\"step\":2}\n").find("line 2 is no step of a run (step = 2 must lie between 3 and"),
            std::string::npos);
}

TEST(RunLog, names_file_and_line_of_what_is_not_a_step) {
  const auto told = [](const std::string& text) { return message_of([&] { read_log(text, "run/log.jsonl"); }); };
  EXPECT_NE(told("{\"step\":1}\nnonsense\n{\"step\":2}\n")
                .find("run/log.jsonl line 2 is no step of a run (this is not valid JSON"),
            std::string::npos);
  EXPECT_NE(told("[1]\n").find("run/log.jsonl line 1 is no step of a run (the document is a list; an object is needed"),
            std::string::npos);
  EXPECT_NE(told("{\"loss\":1}\n").find("run/log.jsonl line 1 is no step of a run"), std::string::npos);
  EXPECT_NE(told("{\"step\":1,\"loss\":\"low\"}\n").find("run/log.jsonl line 1 is no step of a run"),
            std::string::npos);
  EXPECT_NE(told("").find("run/log.jsonl has no steps yet"), std::string::npos);
}

}  // namespace
}  // namespace switchyard::report
