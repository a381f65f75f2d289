#include "config/job_keys.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/errors.hpp"

namespace switchyard::config {
namespace {

/// A value of the key's type that differs from `now` and lies in its range.
KeyValue other_value(const KeyInfo& key, const KeyValue& now) {
  switch (key.type) {
    case KeyType::boolean:
      return !std::get<bool>(now);
    case KeyType::integer:
      return std::get<i64>(now) + (static_cast<double>(std::get<i64>(now)) < key.range.most ? 1 : -1);
    case KeyType::bytes:
      return std::get<i64>(now) + 1;
    case KeyType::integers:
      return std::vector<i64>{1, 0};
    case KeyType::number:
      return std::get<double>(now) / 2 + 0.25;
    case KeyType::duration:
      return std::get<double>(now) + 1;
    case KeyType::choice:
      return key.choices.back() == std::get<std::string>(now) ? key.choices.front() : key.choices.back();
    default:
      return "other";
  }
}

/// Checks that every row changes its own field and no other row's.
template <class Owner>
void expect_own_fields(const std::vector<Key<Owner>>& keys, const std::set<std::string>& shared) {
  for (const Key<Owner>& key : keys) {
    Owner owner;
    const KeyValue value = other_value(key, key.get(owner));
    EXPECT_EQ(out_of_range(key, value), "") << key.name;
    key.set(owner, value);
    EXPECT_EQ(key.get(owner), value) << key.name;
    for (const Key<Owner>& other : keys) {
      if (other.name == key.name || shared.contains(other.name)) continue;
      EXPECT_EQ(other.get(owner), other.get(Owner{})) << key.name << " changes " << other.name;
    }
  }
}

TEST(JobKeys, are_found_by_name) {
  EXPECT_EQ(&job_key("batch.context"), &*std::ranges::find(job_keys(), "batch.context", &KeyInfo::name));
  EXPECT_THROW(job_key("batch.contex"), InternalError);
}

TEST(JobKeys, every_key_has_its_own_field) {
  expect_own_fields(job_keys(), {});
  expect_own_fields(bucket_keys(), {"file", "strategy.file"});
}

TEST(JobKeys, every_key_has_one_name_and_a_meaning) {
  std::set<std::string> names;
  for (const KeyInfo& key : job_keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_TRUE(key.meaning.ends_with(".")) << key.name;
  }
  for (const KeyInfo& key : bucket_keys()) EXPECT_TRUE(names.insert("bucket." + key.name).second) << key.name;
}

TEST(JobKeys, the_fingerprint_leaves_out_what_concerns_one_rank) {
  std::set<std::string> names;
  for (const KeyInfo& key : job_keys()) {
    if (key.rank_only) names.insert(key.name);
  }
  EXPECT_EQ(names, (std::set<std::string>{"run.out", "run.log_every", "run.profile", "run.threads", "fabric.interface",
                                          "fabric.token", "fabric.token_file", "log.wandb"}));
}

TEST(JobKeys, of_a_model_every_key_belongs_to_its_function_but_those_that_compute_the_same) {
  std::set<std::string> names;
  for (const KeyInfo& key : job_keys())
    if (key.same_function) names.insert(key.name);
  EXPECT_EQ(names, (std::set<std::string>{"model.preset", "model.path", "model.attention", "model.initializer_range"}));

  for (const Family family : {Family::llama, Family::gpt2}) {
    JobDraft draft;
    draft.job.model.config = family_defaults(family);
    draft.job.model.config.rope_scaling.factor = family == Family::gpt2 ? 0 : 8;
    const std::vector<std::string> function = function_of(draft.job.model.config);
    std::set<std::string> without_effect;
    for (const Key<JobDraft>& key : job_keys()) {
      if (!key.name.starts_with("model.") || key.same_function || key.name == "model.architecture") continue;
      JobDraft changed = draft;
      key.set(changed, other_value(key, key.get(draft)));
      if (function_of(changed.job.model.config) == function) without_effect.insert(key.name);
    }
    using Names = std::set<std::string>;
    EXPECT_EQ(without_effect,
              family == Family::llama
                  ? (Names{"model.max_positions", "model.gelu_tanh", "model.rope_scaling.beta_slow",
                           "model.rope_scaling.beta_fast", "model.rope_scaling.attention_factor"})
                  : (Names{"model.rope_theta", "model.rope_scaling.type", "model.rope_scaling.factor",
                           "model.rope_scaling.low_freq_factor", "model.rope_scaling.high_freq_factor",
                           "model.rope_scaling.beta_slow", "model.rope_scaling.beta_fast",
                           "model.rope_scaling.attention_factor", "model.rope_scaling.original_context"}));
  }
}

TEST(JobKeys, the_function_of_a_model_with_dynamic_scaling_is_that_of_its_factor_and_its_original_context) {
  ModelConfig model = family_defaults(Family::llama);
  const std::vector<std::string> plain = function_of(model);
  model.rope_scaling = {.factor = 2, .type = RopeScalingType::dynamic};
  const std::vector<std::string> dynamic = function_of(model);
  EXPECT_NE(dynamic, plain);
  EXPECT_THAT(dynamic, testing::Contains("model.rope_scaling.type = \"dynamic\""));
  model.rope_scaling.beta_fast = 7;
  EXPECT_EQ(function_of(model), dynamic);
  model.rope_scaling.original_context = 7;
  EXPECT_NE(function_of(model), dynamic);
}

TEST(JobKeys, the_function_of_a_model_is_reported_by_keys) {
  ModelConfig model = family_defaults(Family::qwen2);
  model.rope_theta = 12345.5;
  model.rope_scaling.original_context = 7;  // ignored while scaling is off
  const std::vector<std::string> function = function_of(model);
  for (const char* key : {"model.architecture = \"qwen2\"", "model.rope_theta = 12345.5", "model.qkv_bias = true",
                          "model.o_bias = false", "model.rope_scaling.original_context = 8192.0"})
    EXPECT_THAT(function, testing::Contains(key));
}

TEST(JobKeys, ranges_are_reported_in_words) {
  EXPECT_EQ(out_of_range(job_key("run.steps"), i64{0}), "must be at least 1");
  EXPECT_EQ(out_of_range(job_key("run.steps"), i64{1}), "");
  EXPECT_EQ(out_of_range(job_key("run.ranks"), i64{1} << 40), "must be at most 65536");
  EXPECT_EQ(out_of_range(job_key("optimizer.beta1"), 1.0), "must be at least 0 and below 1");
  EXPECT_EQ(out_of_range(job_key("optimizer.beta1"), 0.0), "");
  EXPECT_EQ(out_of_range(job_key("optimizer.eps"), 0.0), "must be above 0");
  EXPECT_EQ(out_of_range(job_key("optimizer.lr"), std::numeric_limits<double>::infinity()), "must be finite");
  EXPECT_EQ(out_of_range(job_key("optimizer.lr"), std::numeric_limits<double>::quiet_NaN()), "must be finite");
  EXPECT_EQ(out_of_range(job_key("data.path"), std::string("x")), "");
}

TEST(JobKeys, a_choice_lists_its_names) {
  EXPECT_EQ(wanted(job_key("data.long_documents")), "one of \"split\", \"clip\", \"error\" is needed");
  EXPECT_EQ(wanted(job_key("run.precision")), "one of \"auto\", \"fp64\", \"fp32\", \"bf16\" is needed");
}

}  // namespace
}  // namespace switchyard::config
