// What a micro-batch is fed: its documents' tokens put in the order that the plan's pieces state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "batch/step_plan.hpp"
#include "kernels/attention.hpp"

namespace switchyard::runtime {

/// The documents of one global batch, by the plan's numbers.
using Documents = std::vector<std::vector<std::int32_t>>;

/// (T) each: ids, positions, labels (-1: none) i64; weights in the state dtype, 1 / valid_tokens where there is a
/// label; keys i64, a random number for each token, undefined unless asked for.
struct MicroBatchFeeds {
  i64 T = 0, squared_lengths = 0;
  at::Tensor ids, positions, labels, weights, keys;
  std::vector<kernels::AttentionBlock> blocks;
};

/// Of what the keys of tokens are a function, with the document's number in the step and the position.
struct DropoutSeed {
  std::uint64_t seed = 0;
  i64 step = 0;
};

/// One ring rank (attention inside the replica sees whole documents). seed: for models with dropout.
MicroBatchFeeds feeds_of(const batch::MicroBatch& micro_batch, const Documents& documents, i64 valid_tokens,
                         DType state, const at::Device& device, std::optional<DropoutSeed> seed = std::nullopt);

}  // namespace switchyard::runtime
