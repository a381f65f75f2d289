// What a model is: sizes and settings, with Hugging Face's meanings.
#pragma once

#include <string>
#include <string_view>

#include "base/dtype.hpp"
#include "config/rope_scaling.hpp"

namespace switchyard::config {

enum class Family { llama, mistral, qwen2, qwen3, gpt2, olmo2 };
inline constexpr int kFamilyCount = 6;

/// fused: scores are never stored whole. unfused: softmax(q k^T) is stored, tokens x tokens for each document and head.
enum class AttentionKind { fused, unfused };

struct ModelConfig {
  Family family = Family::llama;
  i64 hidden_size = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn_size = 0, vocab_size = 0;
  i64 max_positions = 0;   // learned positions (gpt2): rows of the table; rotary: advisory
  i64 sliding_window = 0;  // tokens that a query sees (mistral); 0: all before it. Longer documents are refused
  double norm_eps = 1e-5, rope_theta = 10000, initializer_range = 0.02;
  RopeScaling rope_scaling;
  bool tied_embeddings = false;
  bool qkv_bias = false;  // qwen2 (llama: attention_bias also has o_bias)
  bool o_bias = false, mlp_bias = false;
  bool qk_norm = false;   // qwen3
  bool gelu_tanh = true;  // gpt2: gelu_new; false: exact gelu
  AttentionKind attention = AttentionKind::fused;
  double dropout = 0;  // gpt2: of attention weights, outputs of blocks and the embedding
  bool operator==(const ModelConfig&) const = default;
};

/// UserError naming the field and the remedy, e.g. heads not a multiple of kv_heads, zero sizes, odd head_dim with
/// rotary.
void validate(const ModelConfig& model);
/// Parameters of the model (a tied embedding counts once).
i64 parameter_count(const ModelConfig& model);
/// A model of published sizes, with context and rope as released: "7b", "llama3-8b", ... UserError lists the names.
ModelConfig model_preset(const std::string& name);
/// "3b, 7b, ...".
std::string model_preset_names();
/// A model of a family before its sizes: biases, norms of q and k, tied embeddings as the family has them.
ModelConfig family_defaults(Family family);
/// "fused", "unfused".
std::string_view name_of(AttentionKind attention);
/// "llama", "mistral", "qwen2", "qwen3", "gpt2", "olmo2".
std::string_view name_of(Family family);
/// UserError lists the names.
Family family_from(std::string_view name);

}  // namespace switchyard::config
