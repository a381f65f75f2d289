// Attention by a device's kernels, which store no scores: libtorch's flash attention, for sequences of any lengths in
// one call, and cuDNN's, which is quicker on some devices, for sequences of one length. Contracts as in
// `attention.hpp`, for bf16 with heads of up to 256 elements in steps of 8. Source: FlashAttention-2, arXiv 2307.08691
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "base/dtype.hpp"
#include "kernels/attention.hpp"

namespace switchyard::kernels {

/// What one call of flash attention computes: sequence i has the queries from query_ends[i] to query_ends[i + 1] and
/// such keys, causal as an AttentionBlock is. All rows of queries and keys are in one; queries that see no keys, and
/// keys that none sees, in such without the others. longest_*: of a sequence, or more.
struct FlashCall {
  at::Tensor query_ends, key_ends;  // i32, on the device, one more than sequences
  i64 longest_queries = 0, longest_keys = 0;
  bool causal = false;
};

/// What one call of cuDNN's attention computes: `count` causal sequences side by side, each of as many queries as keys,
/// `rows`, from rows `queries` and `keys` on. They are computed as sequences of `length`, rows of zeros behind each
/// one; where that is more than `rows`, there is one.
struct PaddedCall {
  i64 queries = 0, keys = 0, rows = 0, length = 0, count = 1;
};

/// The calls of a step. separate: no row of keys is in two blocks.
struct FlashCalls {
  std::vector<FlashCall> mixed;
  std::vector<PaddedCall> padded;
  bool separate = true;
};

/// Whether the device has flash attention, and cuDNN's attention, which has heads of up to 128 elements. They try them,
/// so the host may wait.
bool has_flash_attention(const at::Device& device);
bool has_padded_attention(const at::Device& device, i64 head_dim);

/// The blocks of a step of attention, with the rows of queries and keys that the step has.
struct FlashStep {
  const std::vector<AttentionBlock>& blocks;
  i64 queries = 0, keys = 0;
};
/// The length as which a causal sequence of so many queries and keys is computed; 0: together with others in one call.
using PaddedLength = i64 (*)(i64 rows);
/// The calls of each step, as few as can be: one call's sequences are ascending in queries and keys. Query rows are in
/// one block at most. All come to the device together, without the host waiting. padded_length: of a device that has
/// padded attention.
std::vector<FlashCalls> flash_calls(const std::vector<FlashStep>& steps, const at::Device& device,
                                    PaddedLength padded_length = nullptr);

void flash_attention(at::Tensor& o, at::Tensor& lse, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const FlashCalls& calls, int head_dim, double scale);
void flash_attention_to_more_keys(at::Tensor& o, at::Tensor& lse, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v, const FlashCalls& calls, int head_dim, double scale);
void flash_attention_backward(at::Tensor& dq, at::Tensor& dk, at::Tensor& dv, const at::Tensor& do_,
                              const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& o,
                              const at::Tensor& lse, const FlashCalls& calls, int head_dim, double scale);
void add_flash_attention_gradients(at::Tensor& dq, at::Tensor& dk, at::Tensor& dv, const at::Tensor& do_,
                                   const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& o,
                                   const at::Tensor& lse, const FlashCalls& calls, int head_dim, double scale);

}  // namespace switchyard::kernels
