#include "config/model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "../message_of.hpp"

namespace switchyard::config {
namespace {

using testing::HasSubstr;

ModelConfig sized(Family family, i64 layers, i64 hidden, i64 heads, i64 kv_heads, i64 head_dim, i64 ffn, i64 vocab) {
  ModelConfig model = family_defaults(family);
  model.layers = layers;
  model.hidden_size = hidden;
  model.heads = heads;
  model.kv_heads = kv_heads;
  model.head_dim = head_dim;
  model.ffn_size = ffn;
  model.vocab_size = vocab;
  return model;
}

ModelConfig tiny() { return sized(Family::llama, 4, 64, 8, 4, 8, 172, 131); }

/// The message after one change to a good model.
template <class Change>
std::string error_after(Change change) {
  ModelConfig model = tiny();
  change(model);
  return message_of([&] { validate(model); });
}

TEST(Model, parameters_are_counted_as_hugging_face_has_them) {
  EXPECT_EQ(parameter_count(tiny()), 198592);
  ModelConfig tied = sized(Family::llama, 3, 48, 6, 6, 8, 116, 103);
  tied.tied_embeddings = true;
  EXPECT_EQ(parameter_count(tied), 83040);
  ModelConfig qwen2 = sized(Family::qwen2, 2, 48, 6, 2, 8, 136, 149);
  qwen2.tied_embeddings = true;
  EXPECT_EQ(parameter_count(qwen2), 59008);
  EXPECT_EQ(parameter_count(sized(Family::qwen3, 2, 32, 4, 2, 16, 48, 101)), 28192);
  EXPECT_EQ(parameter_count(sized(Family::olmo2, 16, 2048, 16, 16, 128, 8192, 100352)), 1484916736) << "OLMo-2-0425-1B";
  ModelConfig biased = sized(Family::llama, 2, 32, 4, 2, 8, 48, 101);
  biased.qkv_bias = biased.o_bias = biased.mlp_bias = true;
  EXPECT_EQ(parameter_count(biased), 22432);
  ModelConfig gpt2 = sized(Family::gpt2, 3, 40, 5, 5, 8, 160, 127);
  gpt2.max_positions = 160;
  EXPECT_EQ(parameter_count(gpt2), 70720);
}

TEST(Model, presets_have_the_published_sizes) {
  const ModelConfig model = model_preset("7b");
  EXPECT_EQ(model, model_preset("7b"));
  EXPECT_EQ(model.layers, 32);
  EXPECT_EQ(model.hidden_size, 4096);
  EXPECT_EQ(model.ffn_size, 11008);
  EXPECT_EQ(model.heads, 32);
  EXPECT_EQ(model.kv_heads, 32);
  EXPECT_EQ(model.vocab_size, 32000);
  EXPECT_EQ(model.max_positions, 32768);
  EXPECT_FALSE(model.tied_embeddings);
  EXPECT_EQ(parameter_count(model), 6738415616);  // the count of LLaMA 7B
  EXPECT_EQ(parameter_count(model_preset("13b")), 13015864320);
  EXPECT_EQ(model_preset("3b").head_dim, 128);
  EXPECT_EQ(model_preset("32b").layers, 60);
  // Elements of the released checkpoints.
  EXPECT_EQ(parameter_count(model_preset("llama3-8b")), 8030261248);
  EXPECT_EQ(parameter_count(model_preset("llama3-70b")), 70553706496);
  EXPECT_EQ(parameter_count(model_preset("qwen3-8b")), 8190735360);
  EXPECT_EQ(parameter_count(model_preset("qwen3-32b")), 32762123264);
  EXPECT_EQ(parameter_count(model_preset("mistral-7b")), 7248023552);
  EXPECT_EQ(model_preset("qwen3-8b").rope_theta, 1e6);
  EXPECT_EQ(model_preset("llama3-8b").max_positions, 8192);
  std::istringstream names(model_preset_names());
  int count = 0;
  for (std::string name; names >> name; ++count) {
    if (name.ends_with(',')) name.pop_back();
    EXPECT_NO_THROW(validate(model_preset(name))) << name;
  }
  EXPECT_EQ(count, 9);
}

TEST(Model, an_unknown_preset_lists_the_known_ones) {
  EXPECT_EQ(
      message_of([] { model_preset("70b"); }),
      "model.preset = \"70b\" is unknown. Use one of 3b, 7b, 13b, 32b, llama3-8b, llama3-70b, qwen3-8b, qwen3-32b, "
      "mistral-7b.");
}

TEST(Model, families_have_their_biases_and_norms) {
  EXPECT_TRUE(family_defaults(Family::qwen2).qkv_bias);
  EXPECT_FALSE(family_defaults(Family::qwen2).o_bias);
  EXPECT_TRUE(family_defaults(Family::qwen3).qk_norm);
  EXPECT_FALSE(family_defaults(Family::llama).qkv_bias);
  EXPECT_TRUE(family_defaults(Family::gpt2).tied_embeddings);
  EXPECT_TRUE(family_defaults(Family::gpt2).mlp_bias);
}

TEST(Model, family_names_go_there_and_back) {
  for (const Family family :
       {Family::llama, Family::mistral, Family::qwen2, Family::qwen3, Family::gpt2, Family::olmo2}) {
    EXPECT_EQ(family_from(name_of(family)), family);
  }
  EXPECT_EQ(message_of([] { family_from("bert"); }),
            "model.architecture = \"bert\" is unknown. Use one of llama, mistral, qwen2, qwen3, gpt2, olmo2.");
}

TEST(Model, sizes_of_zero_and_beyond_all_bounds_are_refused) {
  EXPECT_EQ(error_after([](ModelConfig& m) { m.layers = 0; }), "model.layers = 0 must be at least 1.");
  EXPECT_EQ(error_after([](ModelConfig& m) { m.vocab_size = -5; }), "model.vocab_size = -5 must be at least 1.");
  EXPECT_THAT(error_after([](ModelConfig& m) { m.hidden_size = i64{1} << 40; }),
              HasSubstr("is above 1048576, the most supported."));
}

TEST(Model, the_largest_sizes_allowed_are_counted_without_overflow) {
  ModelConfig model = sized(Family::llama, 1 << 16, 1 << 20, 4096, 4096, 4096, 1 << 24, 1 << 28);
  model.qkv_bias = model.o_bias = model.mlp_bias = true;
  validate(model);
  EXPECT_GT(parameter_count(model), i64{1} << 61);
}

TEST(Model, heads_must_be_a_multiple_of_the_key_value_heads) {
  EXPECT_EQ(
      error_after([](ModelConfig& m) { m.kv_heads = 3; }),
      "model.heads = 8 is not a multiple of kv_heads = 3. Every key/value head serves equally many query heads: use "
      "a kv_heads that "
      "divides 8.");
}

TEST(Model, rotary_positions_need_an_even_head) {
  EXPECT_EQ(error_after([](ModelConfig& m) { m.head_dim = 7; }),
            "model.head_dim = 7 is odd: rotary positions rotate pairs of features. Use an even head_dim.");
  EXPECT_THAT(error_after([](ModelConfig& m) { m.rope_theta = 0; }),
              HasSubstr("model.rope_theta = 0 must be above 0."));
}

TEST(Model, rotary_scaling_is_checked) {
  EXPECT_EQ(error_after([](ModelConfig& m) { m.rope_scaling.factor = 0.5; }),
            "model.rope_scaling.factor = 0.5 must be at least 1, or 0 for no scaling.");
  const auto dynamic = [](i64 head_dim) {
    return error_after([&](ModelConfig& m) {
      m.head_dim = head_dim;
      m.rope_scaling = {.factor = 2, .type = RopeScalingType::dynamic};
    });
  };
  EXPECT_EQ(dynamic(4), "no error");
  EXPECT_EQ(dynamic(2), "model.head_dim = 2: model.rope_scaling of type dynamic needs at least 4. Use another type.");
}

TEST(Model, norms_and_initial_weights_need_sane_numbers) {
  EXPECT_THAT(error_after([](ModelConfig& m) { m.norm_eps = 0; }), HasSubstr("model.norm_eps = 0 must be above 0."));
  EXPECT_THAT(error_after([](ModelConfig& m) { m.initializer_range = -1; }),
              HasSubstr("model.initializer_range = -1 must not be negative."));
}

TEST(Model, gpt2_has_biases_everywhere_and_no_norms_on_queries_and_keys) {
  ModelConfig model = family_defaults(Family::gpt2);
  model.layers = 2;
  model.hidden_size = 32;
  model.heads = model.kv_heads = 4;
  model.head_dim = 8;
  model.ffn_size = 128;
  model.vocab_size = 100;
  model.max_positions = 64;
  EXPECT_NO_THROW(validate(model));
  model.mlp_bias = false;
  EXPECT_EQ(message_of([&] { validate(model); }),
            "model.mlp_bias = false: gpt2 has biases everywhere. Leave mlp_bias out.");
  model.mlp_bias = model.qk_norm = true;
  EXPECT_EQ(message_of([&] { validate(model); }),
            "model.qk_norm = true: gpt2 has no norms on queries and keys. Leave qk_norm out.");
}

TEST(Model, gpt2_has_positions_and_no_grouped_heads) {
  ModelConfig model = sized(Family::gpt2, 3, 40, 5, 5, 8, 160, 127);
  EXPECT_THAT(message_of([&] { validate(model); }),
              HasSubstr("model.max_positions is missing: gpt2 learns one row per position."));
  model.max_positions = 160;
  EXPECT_NO_THROW(validate(model));
  model.kv_heads = 1;
  EXPECT_THAT(message_of([&] { validate(model); }),
              HasSubstr("model.kv_heads = 1 differs from heads = 5: gpt2 has no grouped heads."));
  model.kv_heads = 5;
  model.head_dim = 9;
  EXPECT_THAT(message_of([&] { validate(model); }),
              HasSubstr("model.heads = 5 times head_dim = 9 is not hidden_size = 40"));
}

TEST(Model, olmo2_has_no_biases_and_norms_of_its_own) {
  const ModelConfig model = sized(Family::olmo2, 3, 48, 6, 3, 8, 132, 139);
  EXPECT_NO_THROW(validate(model));
  ModelConfig biased = model, normed = model;
  biased.o_bias = normed.qk_norm = true;
  EXPECT_EQ(message_of([&] { validate(biased); }), "model.o_bias = true: olmo2 has no biases. Leave o_bias out.");
  EXPECT_THAT(message_of([&] { validate(normed); }),
              HasSubstr("model.qk_norm = true: olmo2 has a norm over all heads"));
}

}  // namespace
}  // namespace switchyard::config
