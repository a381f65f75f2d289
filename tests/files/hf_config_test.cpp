#include "files/hf_config.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/errors.hpp"
#include "files/disk.hpp"
#include "files/tensor_writer.hpp"
#include "scratch.hpp"

namespace switchyard::files {
namespace {

using config::Family;
using config::ModelConfig;
using nlohmann::json;
using testing::HasSubstr;

const std::filesystem::path kFixtures = SWITCHYARD_FIXTURES;

ModelConfig parse(const std::string& text) { return hf_config_from_json(text, "config.json"); }

std::string refusal(const std::string& text) {
  return message_of<UserError>([&] { parse(text); });
}

TEST(ReadHfConfig, reads_the_fixtures) {
  const ModelConfig llama = read_hf_config(kFixtures / "llama-gqa");
  EXPECT_EQ(llama, (ModelConfig{.family = Family::llama,
                                .hidden_size = 64,
                                .layers = 4,
                                .heads = 8,
                                .kv_heads = 4,
                                .head_dim = 8,
                                .ffn_size = 172,
                                .vocab_size = 131,
                                .max_positions = 256,
                                .norm_eps = 1e-5,
                                .rope_theta = 1e4,
                                .rope_scaling = {}}));
  const ModelConfig tied = read_hf_config(kFixtures / "llama-tied/config.json");
  EXPECT_TRUE(tied.tied_embeddings);
  EXPECT_EQ(tied.rope_theta, 5e5);
  EXPECT_EQ(tied.norm_eps, 1e-6);
  EXPECT_EQ(read_hf_config(kFixtures / "llama3-rope").rope_scaling, (config::RopeScaling{8, 1, 4, 64}));
  const ModelConfig qwen2 = read_hf_config(kFixtures / "qwen2");
  EXPECT_EQ(qwen2, (ModelConfig{.family = Family::qwen2,
                                .hidden_size = 48,
                                .layers = 2,
                                .heads = 6,
                                .kv_heads = 2,
                                .head_dim = 8,
                                .ffn_size = 136,
                                .vocab_size = 149,
                                .max_positions = 256,
                                .norm_eps = 1e-6,
                                .rope_theta = 1e6,
                                .rope_scaling = {},
                                .tied_embeddings = true,
                                .qkv_bias = true}));
  const ModelConfig gpt2 = read_hf_config(kFixtures / "gpt2");
  EXPECT_EQ(gpt2, (ModelConfig{.family = Family::gpt2,
                               .hidden_size = 40,
                               .layers = 3,
                               .heads = 5,
                               .kv_heads = 5,
                               .head_dim = 8,
                               .ffn_size = 160,
                               .vocab_size = 127,
                               .max_positions = 160,
                               .rope_scaling = {},
                               .tied_embeddings = true,
                               .qkv_bias = true,
                               .o_bias = true,
                               .mlp_bias = true}));
}

TEST(ReadHfConfig, fills_absent_keys_as_transformers_does) {
  EXPECT_EQ(parse(R"({"model_type":"llama"})"), (ModelConfig{.family = Family::llama,
                                                             .hidden_size = 4096,
                                                             .layers = 32,
                                                             .heads = 32,
                                                             .kv_heads = 32,
                                                             .head_dim = 128,
                                                             .ffn_size = 11008,
                                                             .vocab_size = 32000,
                                                             .max_positions = 2048,
                                                             .norm_eps = 1e-6,
                                                             .rope_scaling = {}}));
  const ModelConfig mistral = parse(R"({"model_type":"mistral","sliding_window":null})");
  EXPECT_EQ(mistral.kv_heads, 8);
  EXPECT_EQ(mistral.ffn_size, 14336);
  EXPECT_EQ(mistral.max_positions, 131072);
  EXPECT_EQ(parse(R"({"model_type":"mistral","sliding_window":null,"num_key_value_heads":null})").kv_heads, 32);
  const ModelConfig qwen2 = parse(R"({"model_type":"qwen2"})");
  EXPECT_EQ(qwen2.vocab_size, 151936);
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.tied_embeddings || qwen2.o_bias || qwen2.qk_norm);
  const ModelConfig olmo2 = parse(R"({"model_type":"olmo2"})");
  EXPECT_EQ(olmo2.norm_eps, 1e-5);
  EXPECT_EQ(olmo2.vocab_size, 50304);
  EXPECT_EQ(olmo2.kv_heads, 32);
  const ModelConfig qwen3 =
      parse(R"({"model_type":"qwen3","hidden_size":1024,"num_attention_heads":16,"num_key_value_heads":8})");
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.tied_embeddings || qwen3.qkv_bias);
  const ModelConfig gpt2 = parse(R"({"model_type":"gpt2"})");
  EXPECT_EQ(gpt2.ffn_size, 3072);
  EXPECT_EQ(gpt2.max_positions, 1024);
  EXPECT_TRUE(gpt2.tied_embeddings && gpt2.gelu_tanh);
}

TEST(ReadHfConfig, reads_biases_activations_and_rotary_settings) {
  const ModelConfig llama = parse(R"({"model_type":"llama","attention_bias":true,"mlp_bias":true,"head_dim":64})");
  EXPECT_TRUE(llama.qkv_bias && llama.o_bias && llama.mlp_bias);
  EXPECT_EQ(llama.head_dim, 64);
  EXPECT_FALSE(parse(R"({"model_type":"gpt2","activation_function":"gelu"})").gelu_tanh);
  EXPECT_TRUE(parse(R"({"model_type":"gpt2","activation_function":"gelu_pytorch_tanh"})").gelu_tanh);
  const std::string scaling =
      R"("factor":4,"low_freq_factor":2,"high_freq_factor":3,"original_max_position_embeddings":100)";
  EXPECT_EQ(parse(R"({"model_type":"llama","rope_scaling":{"type":"llama3",)" + scaling + "}}").rope_scaling,
            (config::RopeScaling{4, 2, 3, 100}));
  const ModelConfig newer =
      parse(R"({"model_type":"llama","rope_parameters":{"rope_theta":77.5,"rope_type":"llama3",)" + scaling + "}}");
  EXPECT_EQ(newer.rope_theta, 77.5);
  EXPECT_EQ(newer.rope_scaling.factor, 4);
  const auto scaling_of = [](const std::string& keys) {
    return parse(R"({"model_type":"llama","max_position_embeddings":96,"rope_scaling":{)" + keys + "}}").rope_scaling;
  };
  using config::RopeScalingType;
  EXPECT_EQ(scaling_of(R"("type":"linear","factor":2.5)"),
            (config::RopeScaling{.factor = 2.5, .type = RopeScalingType::linear}));
  config::RopeScaling yarn{.factor = 4, .original_context = 96, .type = RopeScalingType::yarn};
  EXPECT_EQ(scaling_of(R"("type":"yarn","factor":4)"), yarn);
  EXPECT_EQ(scaling_of(R"("type":"yarn","factor":4,"beta_fast":0,"beta_slow":0,"original_max_position_embeddings":0)"),
            yarn)
      << "0 is no value for transformers either";
  yarn.attention_factor = (0.2 * std::log(4) + 1) / (0.3 * std::log(4) + 1);
  EXPECT_EQ(scaling_of(R"("type":"yarn","factor":4,"mscale":2,"mscale_all_dim":3)"), yarn);
  yarn = {.factor = 4,
          .original_context = 24,
          .type = RopeScalingType::yarn,
          .beta_fast = 8,
          .beta_slow = 2,
          .attention_factor = 1.5};
  EXPECT_EQ(scaling_of(R"("type":"yarn","factor":4,"original_max_position_embeddings":24,"beta_fast":8,"beta_slow":2,)"
                       R"("attention_factor":1.5,"mscale":2,"mscale_all_dim":3)"),
            yarn);
  EXPECT_EQ(scaling_of(R"("type":"dynamic","factor":2,"original_max_position_embeddings":24)"),
            (config::RopeScaling{.factor = 2, .original_context = 96, .type = RopeScalingType::dynamic}));
  EXPECT_EQ(parse(R"({"model_type":"llama","rope_scaling":{"rope_type":"default"}})").rope_scaling.factor, 0);
  EXPECT_EQ(parse(R"({"model_type":"llama","rope_theta":null,"rope_parameters":{"rope_theta":77.5}})").rope_theta,
            77.5);
  EXPECT_EQ(scaling_of(R"("type":"linear","rope_type":"linear","factor":2,"beta_fast":3,"mscale":4)").beta_fast, 32)
      << "as transformers ignores the keys of other types";
}

TEST(ReadHfConfig, takes_the_sizes_of_gpt2_by_their_other_names) {
  const ModelConfig gpt2 = parse(R"({"model_type":"gpt2","hidden_size":1024,"num_attention_heads":16,)"
                                 R"("num_hidden_layers":3,"max_position_embeddings":77,"n_layer":3})");
  EXPECT_EQ(gpt2.hidden_size, 1024);
  EXPECT_EQ(gpt2.heads, 16);
  EXPECT_EQ(gpt2.layers, 3);
  EXPECT_EQ(gpt2.max_positions, 77);
  EXPECT_EQ(gpt2.ffn_size, 4096);
}

TEST(ReadHfConfig, keeps_the_window_of_a_mistral) {
  EXPECT_EQ(parse(R"({"model_type":"mistral"})").sliding_window, 4096) << "the default of transformers";
  EXPECT_EQ(parse(R"({"model_type":"mistral","sliding_window":17,"max_position_embeddings":16})").sliding_window, 17);
  EXPECT_EQ(parse(R"({"model_type":"mistral","sliding_window":null})").sliding_window, 0);
  EXPECT_EQ(parse(R"({"model_type":"llama","sliding_window":17})").sliding_window, 0) << "llama has no such key";
}

TEST(ReadHfConfig, accepts_windows_that_hide_nothing) {
  EXPECT_NO_THROW(parse(R"({"model_type":"qwen2","use_sliding_window":false,"sliding_window":4096})"));
  EXPECT_NO_THROW(
      parse(R"({"model_type":"qwen2","use_sliding_window":true,"sliding_window":4096,"max_window_layers":32})"));
  EXPECT_NO_THROW(
      parse(R"({"model_type":"qwen2","use_sliding_window":true,"sliding_window":null,"max_window_layers":0})"));
}

TEST(ReadHfConfig, names_the_key_that_is_not_supported_and_what_is) {
  const auto expect = [](const std::string& keys, const std::string& message) {
    EXPECT_THAT(refusal("{" + keys + "}"), HasSubstr("config.json: " + message)) << keys;
  };
  expect(R"("model_type":"bloom")",
         R"("model_type" is "bloom": supported are llama, mistral, qwen2, qwen3, gpt2 and olmo2.)");
  expect(R"("hidden_size":4)", R"("model_type" is absent: supported are llama)");
  expect(R"("model_type":"llama","hidden_act":"gelu")", R"("hidden_act" is "gelu": llama supports "silu".)");
  expect(R"("model_type":"gpt2","activation_function":"relu")",
         R"("activation_function" is "relu": gpt2 supports "gelu_new")");
  expect(R"("model_type":"gpt2","scale_attn_by_inverse_layer_idx":true)",
         R"("scale_attn_by_inverse_layer_idx" is true: only false is supported.)");
  expect(R"("model_type":"gpt2","add_cross_attention":true)", R"("add_cross_attention" is true: only false)");
  expect(R"("model_type":"gpt2","scale_attn_weights":false)", R"("scale_attn_weights" is false: only true)");
  expect(R"("model_type":"gpt2","n_embd":770)", R"("n_embd" is 770: it must be a multiple of n_head.)");
  expect(R"("model_type":"qwen3","attention_bias":true)",
         R"("attention_bias" is true: qwen3 is supported with false.)");
  expect(R"("model_type":"mistral","sliding_window":0)",
         R"("sliding_window" is 0: it must be at least 1, or null for full attention.)");
  expect(R"("model_type":"qwen2","use_sliding_window":true)", R"("use_sliding_window" is true: sliding windows)");
  expect(R"("model_type":"qwen2","layer_types":["full_attention","sliding_attention"])",
         R"("layer_types" is ["full_attention","sliding_attention"]: only)");
  expect(R"("model_type":"llama","rope_scaling":{"rope_type":"longrope","factor":2})",
         R"("rope_scaling.rope_type" is "longrope": supported are "llama3", "linear", "yarn", "dynamic" and)");
  expect(R"("model_type":"llama","rope_scaling":{"type":"dynamic"})",
         R"("rope_scaling.factor" is absent: rotary scaling of type dynamic needs it.)");
  expect(R"("model_type":"llama","rope_scaling":{"type":"dynamic","factor":0.5})",
         R"("rope_scaling.factor" is 0.5: it must be at least 1.)");
  expect(R"("model_type":"llama","rope_scaling":{"type":"yarn"})",
         R"("rope_scaling.factor" is absent: rotary scaling of type yarn needs it.)");
  expect(R"("model_type":"llama","rope_scaling":{"type":"linear","factor":0.5})",
         R"("rope_scaling.factor" is 0.5: it must be at least 1.)");
  expect(R"("model_type":"llama","rope_scaling":{"type":"yarn","factor":2,"truncate":false})",
         R"("rope_scaling.truncate" is false: only true)");
  expect(R"("model_type":"llama","rope_scaling":{"type":"llama3","factor":2})",
         R"("rope_scaling.low_freq_factor" is absent: rotary scaling of type llama3)");
  expect(R"("model_type":"llama","partial_rotary_factor":0.5)", R"("partial_rotary_factor" is 0.5: only 1)");
  expect(R"("model_type":"llama","rope_parameters":{"rope_type":"default","partial_rotary_factor":0.5})",
         R"("rope_parameters.partial_rotary_factor" is 0.5: only 1)");
  expect(R"("model_type":"olmo2","attention_bias":true)",
         R"("attention_bias" is true: olmo2 is supported with false.)");
  expect(R"("model_type":"qwen3","rope_parameters":{"full_attention":{"rope_theta":7}})",
         R"("rope_parameters.full_attention" is {"rope_theta":7}: only one rotation for all layers)");
  expect(R"("model_type":"llama","rope_scaling":{"factor":8})",
         R"("rope_scaling.rope_type" is absent: beside "factor", it must name the type of scaling.)");
  expect(R"("model_type":"llama","rope_scaling":{"type":"linear","rope_type":"dynamic","factor":8})",
         R"("rope_scaling.type" is "linear": rope_type says something else; remove one of them.)");
  expect(R"("model_type":"llama","rope_theta":5,"rope_parameters":{"rope_theta":7})",
         R"("rope_parameters.rope_theta" is 7: another "rope_theta" says something else)");
  expect(R"("model_type":"llama","rope_scaling":{"rope_type":"default","rope_theta":7})",
         R"("rope_scaling.rope_theta" is 7: another "rope_theta" says something else)");
  expect(R"("model_type":"llama","rope_scaling":{"type":"yarn","factor":2,"attention_factor":0})",
         R"("rope_scaling.attention_factor" is 0: it must be above 0.)");
  expect(R"("model_type":"gpt2","n_head":12,"num_attention_heads":16)",
         R"("num_attention_heads" is 16: "n_head" says something else; remove one of them.)");
  expect(R"("model_type":"llama","rope_scaling":{"type":"linear","factor":2},)"
         R"("rope_parameters":{"rope_type":"linear","factor":4})",
         R"("rope_parameters" is {"factor":4,"rope_type":"linear"}: "rope_scaling" says something else)");
  expect(R"("model_type":"qwen2","original_max_position_embeddings":4096,"rope_scaling":{"type":"yarn","factor":4})",
         R"("original_max_position_embeddings" is 4096: "rope_scaling" or "max_position_embeddings" says something)");
  expect(R"("model_type":"qwen2","is_causal":false)", R"("is_causal" is false: only true is supported.)");
  expect(
      R"("model_type":"mistral","sliding_window":null,"auto_map":{"AutoModel":"modeling_x.X"})",
      R"("auto_map" is {"AutoModel":"modeling_x.X"}: the model has code of its own; remove the key if that computes a )"
      "mistral.");
  expect(R"("model_type":"llama","quantization_config":{})", R"("quantization_config" is {}: quantized weights)");
}

TEST(ReadHfConfig, names_the_key_of_a_wrong_type) {
  EXPECT_THAT(refusal(R"({"model_type":"llama","hidden_size":"64"})"),
              HasSubstr(R"("hidden_size" is "64": it must be a whole number)"));
  EXPECT_THAT(refusal(R"({"model_type":"llama","hidden_size":-64})"),
              HasSubstr(R"("hidden_size" is -64: it must be a whole number)"));
  EXPECT_THAT(refusal(R"({"model_type":"gpt2","n_embd":9223372036854775807})"), HasSubstr("at most 2^31"));
  EXPECT_THAT(refusal(R"({"model_type":"llama","rope_theta":true})"),
              HasSubstr(R"("rope_theta" is true: it must be a number.)"));
  EXPECT_THAT(refusal(R"({"model_type":"llama","mlp_bias":1})"),
              HasSubstr(R"("mlp_bias" is 1: it must be true or false.)"));
  EXPECT_THAT(refusal(R"({"model_type":7})"), HasSubstr(R"("model_type" is 7: it must be a string.)"));
  EXPECT_THAT(refusal(R"({"model_type":"llama","rope_scaling":3})"),
              HasSubstr(R"("rope_scaling" is 3: it must be an object or null.)"));
  EXPECT_THAT(refusal(R"({"model_type":"llama","num_attention_heads":0})"),
              HasSubstr(R"("num_attention_heads" is 0: it must be at least 1.)"));
  EXPECT_THAT(refusal("[]"), HasSubstr("config.json: it is not a JSON object."));
  for (const char* number : {"NaN", "Infinity", "1e999"})
    EXPECT_THAT(refusal(std::string("{\"rms_norm_eps\": ") + number + "}"),
                HasSubstr("config.json: it is not valid JSON: "));
}

TEST(ReadHfConfig, names_the_file_when_the_sizes_do_not_fit_each_other) {
  EXPECT_THAT(refusal(R"({"model_type":"llama","num_key_value_heads":5})"),
              HasSubstr("config.json: model.heads = 32 is not a multiple of kv_heads = 5."));
}

TEST(ReadHfConfig, of_an_adapter_or_a_cache_of_the_hub_says_what_to_do) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "adapter");
  put(scratch / "adapter/adapter_config.json", "{}");
  EXPECT_THAT(message_of<UserError>([&] { read_hf_config(scratch / "adapter"); }),
              HasSubstr(": it holds an adapter (adapter_config.json), not a model. Merge it into its model"));
  std::filesystem::create_directories(scratch / "models--owner--name/snapshots/0123");
  EXPECT_THAT(message_of<UserError>([&] { read_hf_config(scratch / "models--owner--name"); }),
              HasSubstr("whose files are in a folder of its snapshots/. Give that folder."));
}

TEST(ReadHfConfig, of_a_name_on_the_hub_says_that_it_must_be_downloaded) {
  EXPECT_EQ(
      message_of<UserError>([] { read_hf_config("owner/model"); }),
      "there is no model folder owner/model. Check the path; a model of Hugging Face's hub has to be downloaded "
      "first, as by hf download NAME --local-dir FOLDER. If a run started from it and it is gone, take what the run "
      "has: --set model.path=RUN/checkpoints/step-.../model.");
}

TEST(ToHfConfig, is_read_back_the_same) {
  for (const char* text :
       {R"({"model_type":"llama","attention_bias":true,"rms_norm_eps":1e-5})",
        R"({"model_type":"gpt2","activation_function":"gelu","tie_word_embeddings":false})",
        R"({"model_type":"mistral","sliding_window":null,"rope_theta":12345.678})",
        R"({"model_type":"mistral","sliding_window":1024})", R"({"model_type":"qwen2","tie_word_embeddings":true})",
        R"({"model_type":"llama","rope_scaling":{"rope_type":"linear","factor":2}})",
        R"({"model_type":"llama","rope_scaling":{"rope_type":"dynamic","factor":2}})",
        R"({"model_type":"llama","rope_scaling":{"rope_type":"yarn","factor":2,"attention_factor":1.5}})",
        R"({"model_type":"qwen3","initializer_range":0.015})", R"({"model_type":"olmo2","rope_theta":500000})"}) {
    const ModelConfig model = parse(text);
    EXPECT_EQ(parse(to_hf_config(model, DType::bf16)), model) << text;
  }
  for (const char* name : {"llama-gqa", "llama-tied", "llama3-rope", "llama-dynamic", "llama-linear", "qwen2",
                           "qwen3-yarn", "gpt2", "olmo2"}) {
    const ModelConfig model = read_hf_config(kFixtures / name);
    EXPECT_EQ(parse(to_hf_config(model, DType::f32)), model) << name;
  }
}

TEST(ToHfConfig, keeps_the_keys_that_the_model_came_with_except_where_it_changed) {
  const std::string before = R"({"model_type": "llama", "architectures": ["LlamaModel"], "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 131, "pretraining_tp": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}, "eos_token_id": [1, 2],
    "torch_dtype": "bfloat16"})";
  ModelConfig model = parse(before);
  const json same = json::parse(to_hf_config(model, DType::f32, before));
  json expected = json::parse(before);
  expected["architectures"] = {"LlamaForCausalLM"};
  expected["torch_dtype"] = expected["dtype"] = "float32";
  expected["bos_token_id"] = expected["rope_scaling"] = nullptr;
  expected["rope_theta"] = 5e5;  // in the older form, too
  EXPECT_EQ(same, expected);
  model.max_positions = 9999;
  model.rope_scaling = {.factor = 4, .low_freq_factor = 1, .high_freq_factor = 2, .original_context = 64};
  const std::string changed = to_hf_config(model, DType::f32, before);
  EXPECT_EQ(parse(changed), model);
  EXPECT_EQ(json::parse(changed).at("rope_theta"), 5e5) << "which was beside the scaling that has changed";
  EXPECT_EQ(json::parse(changed).at("pretraining_tp"), 2);
}

TEST(ToHfConfig, says_the_original_context_of_yarn_where_the_longest_document_no_longer_does) {
  const std::string before = R"({"model_type": "qwen2", "max_position_embeddings": 64, "rope_theta": 1000000,
                                 "rope_scaling": {"type": "yarn", "factor": 4, "mscale": 1}})";
  ModelConfig model = parse(before);
  EXPECT_EQ(json::parse(to_hf_config(model, DType::f32, before)).at("rope_scaling").size(), 3u) << "as it was";
  model.max_positions = 256;  // a job of this context has it so
  const std::string after = to_hf_config(model, DType::f32, before);
  EXPECT_EQ(parse(after), model);
  EXPECT_EQ(json::parse(after).at("rope_scaling").at("original_max_position_embeddings"), 64);
}

TEST(ToHfConfig, says_the_original_context_of_dynamic_scaling_where_transformers_reads_it) {
  const std::string before = R"({"model_type": "llama", "max_position_embeddings": 64, "pretraining_tp": 2})";
  ModelConfig model = parse(before);
  model.max_positions = 4096;  // a job of this context has it so
  model.rope_scaling = {.factor = 2, .original_context = 64, .type = config::RopeScalingType::dynamic};
  const json written = json::parse(to_hf_config(model, DType::f32, before));
  EXPECT_EQ(written.at("max_position_embeddings"), 64);
  EXPECT_EQ(written.at("rope_scaling"), json::parse(R"({"rope_type": "dynamic", "factor": 2.0})"));
  EXPECT_EQ(written.at("pretraining_tp"), 2);
  const std::string again = to_hf_config(model, DType::f32, written.dump());
  EXPECT_EQ(json::parse(again), written);
  model.rope_scaling.original_context = 48;
  EXPECT_EQ(parse(to_hf_config(model, DType::f32, again)).rope_scaling, model.rope_scaling);
  model.rope_scaling.original_context = 48.5;
  EXPECT_THAT(message_of<UserError>([&] { to_hf_config(model, DType::f32); }), HasSubstr("only, not 48.5. Round it."));
}

TEST(ToHfConfig, refuses_biases_for_which_the_family_has_no_key) {
  ModelConfig model = parse(R"({"model_type":"llama"})");
  model.qkv_bias = true;
  EXPECT_EQ(message_of<UserError>([&] { to_hf_config(model, DType::f32); }),
            "Hugging Face's llama has no model with qkv_bias = true, o_bias = false, mlp_bias = false, qk_norm = "
            "false. Change them, or "
            "the architecture.");
}

TEST(ToHfConfig, refuses_numbers_that_it_would_have_to_round) {
  ModelConfig model = parse(R"({"model_type":"llama"})");
  model.rope_scaling = {.factor = 2, .original_context = 4096.5};
  EXPECT_EQ(message_of<UserError>([&] { to_hf_config(model, DType::f32); }),
            "Hugging Face's llama has whole numbers for rope_scaling.original_context only, not 4096.5. Round it.");
}

/// Writes the model of `from` again, in several shards: our config.json, our safetensors.
void rewrite(const std::filesystem::path& from, const std::filesystem::path& to) {
  const TensorFolder weights = TensorFolder::open(from);
  std::vector<TensorEntry> entries;
  for (const std::string& name : weights.names()) entries.push_back({name, DType::f32, weights.info(name).shape});
  TensorFolderWriter writer = TensorFolderWriter::create(to, entries, 100'000);
  for (const std::string& name : weights.names()) writer.write(name, 0, weights.data(name));
  writer.finish();
  write_text(to / "config.json", to_hf_config(read_hf_config(from), DType::f32));
}

TEST(ToHfConfig, loads_in_transformers_with_equal_logits) {
  if (!std::filesystem::exists(python())) GTEST_SKIP() << "no Python environment";
  const Scratch scratch;
  const std::string script = python() + " " SWITCHYARD_SOURCE "/tests/files/hugging_face.py ";
  const std::string made = output_of(script + "make " + scratch.path().string() + " llama mistral qwen3 olmo2");
  ASSERT_THAT(made, testing::EndsWith("exit 0\n"));
  std::vector<std::filesystem::path> models{scratch / "llama", scratch / "mistral", scratch / "qwen3",
                                            scratch / "olmo2"};
  for (const char* name : {"llama-gqa", "llama-tied", "llama3-rope", "llama-dynamic", "llama-linear", "qwen2",
                           "qwen3-yarn", "gpt2", "olmo2"})
    models.push_back(kFixtures / name);
  std::string command = script + "compare";
  for (const auto& model : models) {
    const auto copy = scratch / ((model.parent_path() == kFixtures ? "copy-" : "made-") + model.filename().string());
    rewrite(model, copy);
    command += " " + model.string() + " " + copy.string();
  }
  EXPECT_TRUE(std::filesystem::exists(scratch / "copy-llama-gqa/model.safetensors.index.json"));
  const std::string compared = output_of(command);
  EXPECT_THAT(compared, testing::EndsWith("exit 0\n"));
  size_t equal = 0;
  for (size_t at = compared.find("equal "); at != std::string::npos; at = compared.find("equal ", at + 1)) ++equal;
  EXPECT_EQ(equal, models.size()) << compared;
}

}  // namespace
}  // namespace switchyard::files
