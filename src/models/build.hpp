// Model builders: from a ModelConfig to the forward graph of one lane.
#pragma once

#include "config/model.hpp"
#include "ir/graph.hpp"

namespace switchyard::models {

/// What the graph ends in: the weighted loss per token (training), or logits (T, V) without a loss.
enum class Output { loss, logits };

/// Forward graph of any supported family; for logits without dropout. Units: 0 embedding, 1 .. layers, layers + 1 final norm and head. The stream
/// between layers has role "residual". Parameters carry Hugging Face names.
ir::Graph build(const config::ModelConfig& model, Precision precision, Output output);

/// Llama, Mistral, Qwen2 (biases on q, k, v), Qwen3 (norms on q and k).
void build_llama(ir::Graph& graph, const config::ModelConfig& model, Output output);
/// GPT-2: learned positions, LayerNorm, GELU, Conv1D weights ([in, out] in files).
void build_gpt2(ir::Graph& graph, const config::ModelConfig& model, Output output);

/// As the model says; site: its dropout's number.
std::shared_ptr<const ir::Operator> attention_operator(const config::ModelConfig& model, int site);
/// Loss or logits from the final hidden state; shared by the builders.
void finish(ir::Graph& graph, int hidden, int head_weight, Output output);

}  // namespace switchyard::models
