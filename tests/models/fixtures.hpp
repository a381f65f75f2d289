// Small models as Hugging Face saved them: their sizes, and the tensors of their files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/model.hpp"
#include "ir/graph.hpp"

namespace switchyard::models {

inline const std::vector<std::string>& fixture_names() {
  static const std::vector<std::string> kNames = {"llama-gqa", "llama-tied", "llama3-rope", "qwen2", "gpt2", "olmo2"};
  return kNames;
}

inline config::ModelConfig fixture_model(const std::string& name) {
  std::ifstream file(SWITCHYARD_FIXTURES "/" + name + "/config.json");
  const nlohmann::json json = nlohmann::json::parse(file);
  const bool gpt2 = json.at("model_type") == "gpt2";
  config::ModelConfig m = config::family_defaults(config::family_from(json.at("model_type").get<std::string>()));
  m.hidden_size = json.at(gpt2 ? "n_embd" : "hidden_size");
  m.layers = json.at(gpt2 ? "n_layer" : "num_hidden_layers");
  m.heads = json.at(gpt2 ? "n_head" : "num_attention_heads");
  m.kv_heads = json.value("num_key_value_heads", m.heads);
  m.head_dim = json.value("head_dim", m.hidden_size / m.heads);
  m.ffn_size = gpt2 ? 4 * m.hidden_size : json.at("intermediate_size").get<i64>();
  m.max_positions = json.at(gpt2 ? "n_positions" : "max_position_embeddings");
  m.vocab_size = json.at("vocab_size");
  m.tied_embeddings = json.value("tie_word_embeddings", gpt2);
  return m;
}

/// Shapes by name, from the header of a safetensors file: its length in 8 bytes, then JSON.
inline std::map<std::string, std::vector<i64>> fixture_tensors(const std::string& name) {
  std::ifstream file(SWITCHYARD_FIXTURES "/" + name + "/model.safetensors", std::ios::binary);
  std::uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof length);
  std::string header(length, ' ');
  file.read(header.data(), static_cast<std::streamsize>(length));
  std::map<std::string, std::vector<i64>> tensors;
  const nlohmann::json entries = nlohmann::json::parse(header);
  for (const auto& [tensor, entry] : entries.items())
    if (tensor != "__metadata__") tensors[tensor] = entry.at("shape").get<std::vector<i64>>();
  return tensors;
}

/// The same from a graph's parameters: rows of one file tensor are joined, [in, out] is what a transposed one has.
inline std::map<std::string, std::vector<i64>> file_tensors(const ir::Graph& graph) {
  std::map<std::string, std::vector<i64>> tensors;
  for (const ir::Param& param : graph.params()) {
    std::vector<i64> size = param.shape.size;
    size[0] += param.file.first;
    if (param.file.transposed) std::swap(size[0], size[1]);
    std::vector<i64>& whole = tensors[param.file.name];
    whole.resize(size.size());
    for (size_t d = 0; d < size.size(); ++d) whole[d] = std::max(whole[d], size[d]);
  }
  return tensors;
}

}  // namespace switchyard::models
