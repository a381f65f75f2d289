// What a micro-batch is fed: its documents' tokens put in the order that the plan's pieces state.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "batch/step_plan.hpp"
#include "kernels/attention.hpp"

namespace switchyard::runtime {

/// The documents of one global batch, by the plan's numbers.
using Documents = std::vector<std::vector<std::int32_t>>;

/// (T) each: ids, positions, labels (-1: none) i64; weights in the state dtype, 1 / valid_tokens where there is a label.
struct MicroBatchFeeds {
  i64 T = 0;
  at::Tensor ids, positions, labels, weights;
  std::vector<kernels::AttentionBlock> blocks;
};

/// One ring rank (attention inside the lane sees whole documents).
MicroBatchFeeds feeds_of(const batch::MicroBatch& micro_batch, const Documents& documents, i64 valid_tokens, DType state,
                         const at::Device& device);

}  // namespace switchyard::runtime
