#include "config/model.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::config {
namespace {

constexpr std::array<std::string_view, kFamilyCount> kFamilies{"llama", "mistral", "qwen2", "qwen3", "gpt2", "olmo2"};

// Bounds that keep every product of sizes within 64 bits (and are far above those of any model).
constexpr i64 kMostHidden = i64{1} << 20, kMostFfn = i64{1} << 24, kMostVocab = i64{1} << 28,
              kMostPositions = i64{1} << 32;
constexpr i64 kMostLayers = i64{1} << 16, kMostHeads = 4096;

void within(std::string_view name, i64 value, i64 most) {
  if (value < 1) user_error("model.{} = {} must be at least 1.", name, value);
  if (value > most) user_error("model.{} = {} is above {}, the most supported.", name, value, most);
}

void validate_sizes(const ModelConfig& model) {
  within("hidden_size", model.hidden_size, kMostHidden);
  within("layers", model.layers, kMostLayers);
  within("heads", model.heads, kMostHeads);
  within("kv_heads", model.kv_heads, kMostHeads);
  within("head_dim", model.head_dim, kMostHeads);
  within("ffn_size", model.ffn_size, kMostFfn);
  within("vocab_size", model.vocab_size, kMostVocab);
  if (model.max_positions != 0) within("max_positions", model.max_positions, kMostPositions);
}

void validate_gpt2(const ModelConfig& model) {
  if (model.max_positions < 1)
    user_error("model.max_positions is missing: gpt2 learns one row per position. Give the longest context.");
  if (model.kv_heads != model.heads) {
    user_error("model.kv_heads = {} differs from heads = {}: gpt2 has no grouped heads. Leave kv_heads out.",
               model.kv_heads, model.heads);
  }
  if (model.heads * model.head_dim != model.hidden_size) {
    user_error(
        "model.heads = {} times head_dim = {} is not hidden_size = {}, as gpt2 requires. Use a number of heads that "
        "divides hidden_size.",
        model.heads, model.head_dim, model.hidden_size);
  }
  for (const auto& [key, bias] :
       {std::pair("qkv_bias", model.qkv_bias), {"o_bias", model.o_bias}, {"mlp_bias", model.mlp_bias}})
    if (!bias) user_error("model.{} = false: gpt2 has biases everywhere. Leave {} out.", key, key);
  if (model.qk_norm) user_error("model.qk_norm = true: gpt2 has no norms on queries and keys. Leave qk_norm out.");
}

void validate_dropout(const ModelConfig& model) {
  if (!(model.dropout >= 0 && model.dropout < 1))
    user_error("model.dropout = {} must be at least 0 and below 1.", model.dropout);
  if (model.dropout == 0) return;
  if (model.family != Family::gpt2)
    user_error("model.dropout = {}: only gpt2 has dropout. Leave dropout out.", model.dropout);
  if (model.attention == AttentionKind::fused)
    user_error(
        "model.dropout = {}: fused attention has no weights to drop. Set model.attention = \"unfused\", or dropout = "
        "0.",
        model.dropout);
}

void validate_rotary(const ModelConfig& model) {
  if (model.head_dim % 2 != 0)
    user_error("model.head_dim = {} is odd: rotary positions rotate pairs of features. Use an even head_dim.",
               model.head_dim);
  if (!(model.rope_theta > 0)) user_error("model.rope_theta = {} must be above 0.", model.rope_theta);
  validate(model.rope_scaling);
  if (by_document(model.rope_scaling) && model.head_dim == 2)
    user_error("model.head_dim = 2: model.rope_scaling of type dynamic needs at least 4. Use another type.");
}

void validate_olmo2(const ModelConfig& model) {
  for (const auto& [key, bias] :
       {std::pair("qkv_bias", model.qkv_bias), {"o_bias", model.o_bias}, {"mlp_bias", model.mlp_bias}})
    if (bias) user_error("model.{} = true: olmo2 has no biases. Leave {} out.", key, key);
  if (model.qk_norm)
    user_error(
        "model.qk_norm = true: olmo2 has a norm over all heads of q, and one over those of k, instead of norms of each "
        "head. Leave qk_norm out.");
}

i64 gpt2_layer_parameters(const ModelConfig& m) {
  const i64 attention =
      m.hidden_size * 3 * m.hidden_size + 3 * m.hidden_size + m.hidden_size * m.hidden_size + m.hidden_size;
  const i64 mlp = 2 * m.hidden_size * m.ffn_size + m.ffn_size + m.hidden_size;
  return attention + mlp + 2 * 2 * m.hidden_size;  // two LayerNorms, weight and bias
}

i64 llama_layer_parameters(const ModelConfig& m) {
  const i64 q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  i64 count = m.hidden_size * (q + 2 * kv) + q * m.hidden_size + 3 * m.hidden_size * m.ffn_size + 2 * m.hidden_size;
  if (m.qkv_bias) count += q + 2 * kv;
  if (m.o_bias) count += m.hidden_size;
  if (m.mlp_bias) count += 2 * m.ffn_size + m.hidden_size;
  if (m.qk_norm) count += 2 * m.head_dim;
  if (m.family == Family::olmo2) count += q + kv;  // norms of all of them
  return count;
}

struct Preset {
  std::string_view name;
  Family family = Family::llama;
  i64 layers, hidden_size, ffn_size, heads, kv_heads, head_dim = 128, vocab_size = 32000, max_positions = 32768;
  double rope_theta = 1e4, norm_eps = 1e-5;
};

// The first four: sizes as published with HotSPa (SOSP'24), LLaMA's vocabulary, documents up to 32768 tokens. The
// others: config.json as released (Meta-Llama-3-8B and -70B, Qwen3-8B and -32B, Mistral-7B-v0.3).
constexpr std::array<Preset, 9> kPresets{{
    {.name = "3b", .layers = 16, .hidden_size = 2048, .ffn_size = 5120, .heads = 16, .kv_heads = 16},
    {.name = "7b", .layers = 32, .hidden_size = 4096, .ffn_size = 11008, .heads = 32, .kv_heads = 32},
    {.name = "13b", .layers = 40, .hidden_size = 5120, .ffn_size = 13824, .heads = 40, .kv_heads = 40},
    {.name = "32b", .layers = 60, .hidden_size = 6656, .ffn_size = 17920, .heads = 64, .kv_heads = 64, .head_dim = 104},
    {.name = "llama3-8b",
     .layers = 32,
     .hidden_size = 4096,
     .ffn_size = 14336,
     .heads = 32,
     .kv_heads = 8,
     .vocab_size = 128256,
     .max_positions = 8192,
     .rope_theta = 5e5},
    {.name = "llama3-70b",
     .layers = 80,
     .hidden_size = 8192,
     .ffn_size = 28672,
     .heads = 64,
     .kv_heads = 8,
     .vocab_size = 128256,
     .max_positions = 8192,
     .rope_theta = 5e5},
    {.name = "qwen3-8b",
     .family = Family::qwen3,
     .layers = 36,
     .hidden_size = 4096,
     .ffn_size = 12288,
     .heads = 32,
     .kv_heads = 8,
     .vocab_size = 151936,
     .max_positions = 40960,
     .rope_theta = 1e6,
     .norm_eps = 1e-6},
    {.name = "qwen3-32b",
     .family = Family::qwen3,
     .layers = 64,
     .hidden_size = 5120,
     .ffn_size = 25600,
     .heads = 64,
     .kv_heads = 8,
     .vocab_size = 151936,
     .max_positions = 40960,
     .rope_theta = 1e6,
     .norm_eps = 1e-6},
    {.name = "mistral-7b",
     .family = Family::mistral,
     .layers = 32,
     .hidden_size = 4096,
     .ffn_size = 14336,
     .heads = 32,
     .kv_heads = 8,
     .vocab_size = 32768,
     .rope_theta = 1e6},
}};

}  // namespace

void validate(const ModelConfig& model) {
  validate_sizes(model);
  if (model.heads % model.kv_heads != 0) {
    user_error(
        "model.heads = {} is not a multiple of kv_heads = {}. Every key/value head serves equally many query heads: "
        "use a "
        "kv_heads that "
        "divides {}.",
        model.heads, model.kv_heads, model.heads);
  }
  if (!(model.norm_eps > 0)) user_error("model.norm_eps = {} must be above 0.", model.norm_eps);
  if (!(model.initializer_range >= 0))
    user_error("model.initializer_range = {} must not be negative.", model.initializer_range);
  validate_dropout(model);
  if (model.family == Family::gpt2) {
    validate_gpt2(model);
  } else {
    validate_rotary(model);
    if (model.family == Family::olmo2) validate_olmo2(model);
  }
}

i64 parameter_count(const ModelConfig& model) {
  const i64 embedding = model.vocab_size * model.hidden_size;
  const i64 head = model.tied_embeddings ? 0 : embedding;
  if (model.family == Family::gpt2) {
    return embedding + head + model.max_positions * model.hidden_size + model.layers * gpt2_layer_parameters(model) +
           2 * model.hidden_size;
  }
  return embedding + head + model.layers * llama_layer_parameters(model) + model.hidden_size;
}

std::string model_preset_names() {
  std::string names;
  for (const Preset& preset : kPresets) names += fmt::format("{}{}", names.empty() ? "" : ", ", preset.name);
  return names;
}

ModelConfig model_preset(const std::string& name) {
  const auto* preset = std::ranges::find(kPresets, name, &Preset::name);
  if (preset == kPresets.end())
    user_error("model.preset = \"{}\" is unknown. Use one of {}.", name, model_preset_names());
  ModelConfig model = family_defaults(preset->family);
  model.layers = preset->layers;
  model.hidden_size = preset->hidden_size;
  model.ffn_size = preset->ffn_size;
  model.heads = preset->heads;
  model.kv_heads = preset->kv_heads;
  model.head_dim = preset->head_dim;
  model.vocab_size = preset->vocab_size;
  model.max_positions = preset->max_positions;
  model.rope_theta = preset->rope_theta;
  model.norm_eps = preset->norm_eps;
  return model;
}

ModelConfig family_defaults(Family family) {
  ModelConfig model;
  model.family = family;
  model.qkv_bias = family == Family::qwen2 || family == Family::gpt2;
  model.o_bias = model.mlp_bias = family == Family::gpt2;
  model.qk_norm = family == Family::qwen3;
  model.tied_embeddings = family == Family::gpt2;
  return model;
}

std::string_view name_of(AttentionKind attention) { return attention == AttentionKind::fused ? "fused" : "unfused"; }

std::string_view name_of(Family family) { return kFamilies.at(static_cast<size_t>(family)); }

Family family_from(std::string_view name) {
  for (size_t i = 0; i < kFamilies.size(); ++i) {
    if (kFamilies[i] == name) return static_cast<Family>(i);
  }
  user_error("model.architecture = \"{}\" is unknown. Use one of {}.", name, fmt::join(kFamilies, ", "));
}

}  // namespace switchyard::config
