#include "train/validation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "../files/scratch.hpp"
#include "small_run.hpp"
#include "train/train_job.hpp"

namespace switchyard::train {
namespace {

// tests/system/test_validation.py has the other strategies.
TEST(Validation, is_the_loss_of_the_trained_model_by_length_under_switching_strategies) {
  const Scratch scratch;
  write_small_corpus(scratch / "data");
  const auto validated = [&](const std::string& out, const std::vector<std::string>& sets) {
    std::vector<std::string> all = {"validation.path=" + (scratch / "data").string(), "validation.sequences=6",
                                    "validation.every=0", "run.steps=2"};
    all.insert(all.end(), sets.begin(), sets.end());
    train({small_job((scratch / "data").string(), (scratch / out).string(), all), ""}, {});
    return nlohmann::json::parse(files::get(scratch / (out + "/validation.jsonl")));
  };
  const auto two = validated("two", {});
  const auto one = validated("one", {"run.ranks=1", "bucket.0.strategy=1,1,1", "bucket.1.strategy=1,1,1"});
  EXPECT_EQ(two.at("step"), 2);
  for (const char* key : {"loss", "loss/to 32", "loss/to 16"}) {
    EXPECT_NEAR(two.at(key).get<double>(), one.at(key).get<double>(), 1e-12) << key;
    EXPECT_NEAR(two.at(key).get<double>(), std::log(131.0), 1.0) << key;
  }
  EXPECT_EQ(two.at("tokens"), two.at("tokens/to 32").get<i64>() + two.at("tokens/to 16").get<i64>());
}

}  // namespace
}  // namespace switchyard::train
