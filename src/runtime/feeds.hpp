// Inputs of a micro-batch: its documents' tokens in the order that the plan's pieces state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "batch/step_plan.hpp"
#include "kernels/attention.hpp"

namespace switchyard::runtime {

/// The tokens of the documents of one global batch, by their numbers in the plan.
using Documents = std::vector<std::vector<std::int32_t>>;

/// Each tensor has shape (T): ids, positions, labels (-1: none) i64; weights in the state dtype, 1 / valid_tokens where
/// there is a label; keys i64, a random number for each token, undefined unless a seed is given.
struct MicroBatchFeeds {
  i64 T = 0, squared_lengths = 0;
  at::Tensor ids, positions, labels, weights, keys;
  std::vector<kernels::AttentionBlock> blocks;
};

/// The keys of tokens are a function of this, the document's number in the step, and the position.
struct DropoutSeed {
  std::uint64_t seed = 0;
  i64 step = 0;
};

/// Inputs of a micro-batch with a single ring shard: attention inside the replica sees whole documents. seed: for
/// models with dropout.
/// errors  InternalError if the micro-batch has several ring shards, cuts a document, or its pieces don't add up to T
MicroBatchFeeds feeds_of(const batch::MicroBatch& micro_batch, const Documents& documents, i64 valid_tokens,
                         DType state, const at::Device& device, std::optional<DropoutSeed> seed = std::nullopt);

}  // namespace switchyard::runtime
