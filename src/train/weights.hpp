// Initial weights: random, as a function of seed and position, or read from a Hugging Face folder.
#pragma once

#include <memory>
#include <string>

#include "files/safetensors.hpp"
#include "runtime/home.hpp"

namespace switchyard::train {

/// Normal or constant values as the model builder states. Each element is a function of (seed, parameter name, index)
/// alone: the same under every layout.
runtime::Home::Initial random_weights(const ir::Graph& graph, i64 seed);

/// From model*.safetensors of `folder`. UserError naming tensor and file if one is missing or has another shape, if one
/// is left that changes what the model computes, or if a head differs from the embedding that it is tied to.
runtime::Home::Initial weights_from(const ir::Graph& graph, const std::string& folder);
/// By which ranks recognize the same weights, from samples of the folder's files.
std::uint64_t fingerprint_of_weights(const std::string& folder);

/// The file's tensor of a parameter as a (rows, columns) or (rows) tensor of fp64, Conv1D transposed, parts of packed
/// tensors cut out.
at::Tensor from_file_tensor(const ir::Param& param, const files::TensorFolder& folder);

}  // namespace switchyard::train
