// Model builders: from a ModelConfig to the forward graph of one replica.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/model.hpp"
#include "ir/graph.hpp"

namespace switchyard::models {

/// The end of the graph: the weighted loss per token (training), or logits (T, V) without a loss.
enum class Output { loss, logits };

/// Forward graph of any supported family; for logits without dropout. Units: 0 embedding, 1 .. layers, layers + 1 final
/// norm and head. The stream between layers has role "residual". Parameters carry Hugging Face names.
ir::Graph build(const config::ModelConfig& model, Precision precision, Output output);

/// Llama, Mistral, Qwen2 (biases on q, k, v), Qwen3 (norms on q and k), OLMo 2 (norms behind the blocks, and of q and
/// k).
void build_llama(ir::Graph& graph, const config::ModelConfig& model, Output output);
/// GPT-2: learned positions, LayerNorm, GELU, Conv1D weights ([in, out] in files).
void build_gpt2(ir::Graph& graph, const config::ModelConfig& model, Output output);

/// The attention that the model's settings ask for; site: the number of its dropout.
std::shared_ptr<const ir::Operator> attention_operator(const config::ModelConfig& model, int site);
/// The parameters of a product, or a table of rows: a weight [rows, columns] named NAMEweight, and NAMEbias [rows].
/// Rows are outputs, columns inputs. Cuts are alignments, as in layout::Shape.
struct Product {
  std::string name{};
  int unit = 0;
  i64 rows = 0, columns = 0;
  layout::DimRole row_role = layout::DimRole::none, column_role = layout::DimRole::none;
  std::vector<i64> row_cuts{}, column_cuts{};
  std::string group{};    // group of the weight
  double std = 0;         // standard deviation of initial weights; biases are 0
  ir::FileTensor file{};  // its name is like `name`, and empty where it is that; biases aren't transposed
};
/// Add one to the graph; its value.
int add_weight(ir::Graph& graph, const Product& product);
int add_bias(ir::Graph& graph, const Product& product);
/// A vector of features, filled with `constant`.
int add_vector(ir::Graph& graph, const std::string& name, int unit, i64 size, layout::DimRole role, double constant);
/// Loss or logits from the final hidden state; shared by the builders.
void finish(ir::Graph& graph, int hidden, int head_weight, Output output);

}  // namespace switchyard::models
