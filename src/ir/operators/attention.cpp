#include "ir/operators/attention.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/allocation.hpp"
#include "base/errors.hpp"
#include "ir/graph.hpp"
#include "ir/operators/attention_heads.hpp"

namespace switchyard::ir {
namespace {

// Flops: each product takes 2 D per head and pair; the forward pass makes two products, the backward pass five.
Cost attention_cost(std::span<const Type> in, std::span<const Type> out, double query_features, double products,
                    i64 head_dim) {
  Cost cost = memory_bound(in, out);
  cost.flops_per_token = 0;
  cost.narrowest = static_cast<double>(head_dim);
  cost.flops_per_pair = 2 * products * query_features;
  return cost;
}

// What attention by operators of libtorch takes at a time, in the dtype of statistics: scores of up to 512 queries and
// a document's keys, for all heads at once; a number for each of their rows; the queries; keys and values.
struct OperatorBytes {
  i64 scores = 0, statistics = 0, queries = 0, pairs = 0;
  OperatorBytes(const Type& q, const Type& k, i64 head_dim, i64 longest)
      : scores(of(q, std::min(longest, kQueriesAtOnce) * q.shape.size[1] / head_dim * longest)),
        statistics(of(q, std::min(longest, kQueriesAtOnce) * q.shape.size[1] / head_dim)),
        queries(of(q, std::min(longest, kQueriesAtOnce) * q.shape.size[1])),
        pairs(2 * of(q, longest * k.shape.size[1])) {}

 private:
  static constexpr i64 kQueriesAtOnce = 512;
  static i64 of(const Type& q, i64 numbers) { return allocated(numbers * size_of(state_of(q.dtype))); }
};

// Scores and their exponentials, and the result in the order in which it is made and in that in which it is stored.
i64 operator_workspace(const OperatorBytes& bytes) {
  return bytes.pairs + 2 * bytes.scores + 2 * bytes.queries + bytes.statistics;
}

// Weights and their gradients; queries and the gradient of their result. Then the gradient of the queries, as it is
// made and as it is stored, and where it is added in another dtype both again; or the gradient of keys or of values, as
// it is made and as it is stored.
i64 operator_backward_workspace(const OperatorBytes& bytes, bool added_in_another_dtype) {
  return bytes.pairs + 2 * (bytes.scores + bytes.statistics + bytes.queries) +
         std::max((added_in_another_dtype ? 4 : 2) * bytes.queries, bytes.pairs);
}

// Rows of the call of cuDNN's attention for the longest of such documents; 0: there is none.
i64 padded_rows(i64 tokens, i64 head_dim) {
  return fits_padded_attention(head_dim) ? padded_attention_rows(tokens) : 0;
}

// Bytes of copies with padding: of a document's keys and values, and `of_queries` ones of its queries. A document that
// alone is as long as its call needs none.
i64 padded_copies(const Type& q, const Type& k, const CallSize& size, i64 head_dim, i64 of_queries) {
  const i64 rows = padded_rows(size.longest, head_dim);
  if (rows == size.longest && padded_rows(size.tokens - size.longest, head_dim) == 0) return 0;
  return rows * (of_queries * q.shape.size[1] + 2 * k.shape.size[1]) * size_of(q.dtype);
}

i64 flash_rows(const CallSize& size, i64 head_dim) {
  return std::max(size.tokens, padded_rows(size.longest, head_dim));
}

// The kernels' results, before they go to where they belong.
i64 flash_workspace(const Type& q, const Type& k, const CallSize& size, i64 head_dim) {
  const i64 features = q.shape.size[1], rows = flash_rows(size, head_dim);
  return allocated(rows * features * size_of(q.dtype)) + allocated(rows * (features / head_dim) * size_of(DType::f32)) +
         padded_copies(q, k, size, head_dim, 1);
}

// The same of the backward pass: it sums the gradient of the queries in fp32, in rows of 32 or 64 elements, with 128
// rows between sequences, and has gradients of keys for each query head. Padded calls have the statistics with padding.
i64 flash_backward_workspace(const Type& q, const Type& k, const CallSize& size, i64 head_dim) {
  const i64 features = q.shape.size[1], heads = features / head_dim, step = head_dim <= 128 ? 32 : 64;
  const i64 padded = padded_rows(size.longest, head_dim) > 0 ? flash_rows(size, head_dim) : 0;
  const i64 rows = std::max(padded, size.tokens + 128 * size.sequences),
            keys = std::max({padded, size.tokens, size.seen_keys});
  const i64 sums = rows * heads * ((head_dim + step - 1) / step * step + 1) * size_of(DType::f32);
  const i64 of_keys = 2 * keys * (k.shape.size[1] + (k.shape.size[1] == features ? 0 : features));
  return sums + (std::max(padded, size.tokens) * features + of_keys) * size_of(q.dtype) +
         padded * heads * size_of(DType::f32) + padded_copies(q, k, size, head_dim, 3);
}

bool is_flash(const Type& q, const CallSize& size, i64 head_dim) {
  return size.sequences > 0 && fits_flash_attention(q.dtype, head_dim);
}

// Bytes of keys and values, or of their gradients, for so many tokens, as tensors of their own.
i64 pair_bytes(const Type& k, i64 tokens, DType type) {
  return 2 * allocated(tokens * k.shape.size[1] * size_of(type));
}

// Bytes of sums for the rows of queries, where several blocks add to them and the state dtype is another one.
i64 wide_rows(const Type& q, const CallSize& size) {
  const DType state = state_of(q.dtype);
  return size.in_steps && state != q.dtype ? allocated(size.tokens * q.shape.size[1] * size_of(state)) : 0;
}

}  // namespace

bool fits_flash_attention(DType compute, i64 head_dim) {
  return compute == DType::bf16 && head_dim % 8 == 0 && head_dim <= 256;
}

bool fits_padded_attention(i64 head_dim) { return head_dim > 0 && head_dim <= 128; }

i64 padded_attention_rows(i64 tokens) {
  constexpr i64 kShortest = 2048, kLengthsPerOctave = 16;
  if (tokens < kShortest) return 0;
  const i64 unit = static_cast<i64>(std::bit_floor(static_cast<std::uint64_t>(tokens))) / kLengthsPerOctave;
  return (tokens + unit - 1) / unit * unit;
}

i64 attention_head_dim(const Graph& graph) {
  for (const Call& call : graph.calls())
    if (const i64 head_dim = call.op->fused_head_dim(); head_dim > 0) return head_dim;
  return 0;
}

std::vector<Type> Attention::shape(std::span<const Type> in) const {
  return {in[0],
          tokens_by(state_of(in[0].dtype), in[0].shape.size[1] / head_dim_, head_alignments(in, head_dim_, kv_heads_))};
}

LayoutRule Attention::layout(const LayoutQuery& query) const {
  const std::vector<int>& axes = query.in[0].split[1];
  const layout::Layout q = heads_cut(axes), k = heads_cut(key_axes(query, axes, kv_heads_));
  return {{q, k, k}, {q, q}};
}

std::vector<int> Attention::input_gradient(Graph& graph, const Call& call, const std::vector<int>& dy,
                                           std::vector<int>&) const {
  check(dy[0] >= 0, "attention without a gradient");
  return graph.call(std::make_shared<AttentionDx>(head_dim_, kv_heads_),
                    {dy[0], call.in[0], call.in[1], call.in[2], call.out[0], call.out[1]}, "d qkv");
}

Cost Attention::cost(std::span<const Type> in, std::span<const Type> out) const {
  return attention_cost(in, out, static_cast<double>(in[0].shape.size[1]), 2, head_dim_);
}

i64 Attention::workspace(std::span<const Type> in, std::span<const Type>, const CallSize& size) const {
  const i64 keys = pair_bytes(in[1], size.seen_keys, in[1].dtype) + wide_rows(in[0], size);
  if (is_flash(in[0], size, head_dim_)) return keys + flash_workspace(in[0], in[1], size, head_dim_);
  if (!by_operators(in, size)) return keys;
  return keys + operator_workspace({in[0], in[1], head_dim_, size.longest});
}

KeyBytes Attention::key_bytes(std::span<const Type> in) const {
  const i64 columns = in[1].shape.size[1];
  return {.values = 2 * columns * size_of(in[1].dtype), .columns = columns, .type = in[1].dtype};
}

LayoutRule AttentionDx::layout(const LayoutQuery& query) const {
  const std::vector<int>& axes = query.in[1].split[1];
  const layout::Layout q = heads_cut(axes), k = heads_cut(key_axes(query, axes, kv_heads_));
  const layout::Layout dk = key_gradient(k, axes);
  return {{q, q, k, k, q, q}, {q, dk, dk}};
}

Cost AttentionDx::cost(std::span<const Type> in, std::span<const Type> out) const {
  Cost cost = attention_cost(in, out, static_cast<double>(in[1].shape.size[1]), 5, head_dim_);
  cost.backward = true;
  return cost;
}

// Loops take the product of output and its gradient, one number for each query and head. Where keys come from other
// ranks, their gradients are made here, too; those of its own are summed in the dtype of statistics, from the first
// step on or when all are computed.
i64 AttentionDx::workspace(std::span<const Type> in, std::span<const Type>, const CallSize& size) const {
  const DType state = state_of(in[1].dtype);
  const i64 seen = pair_bytes(in[2], size.seen_keys, in[2].dtype), gradients = pair_bytes(in[2], size.seen_keys, state);
  if (!by_operators(in, size)) return seen + gradients + wide_bytes(in[5], size.tokens);
  const bool flash = is_flash(in[1], size, head_dim_), other_dtype = in[1].dtype != state;
  const bool sums_first = size.in_steps || size.seen_keys == 0;
  const i64 sums = other_dtype && (size.in_ring || !flash) ? pair_bytes(in[2], size.tokens, state) : 0;
  const i64 kernel = seen + (flash ? flash_backward_workspace(in[1], in[2], size, head_dim_)
                                   : operator_backward_workspace({in[1], in[2], head_dim_, size.longest},
                                                                 other_dtype && !size.in_steps));
  return gradients + wide_rows(in[1], size) + (sums_first ? sums + kernel : std::max(sums, kernel));
}

KeyBytes AttentionDx::key_bytes(std::span<const Type> in) const {
  const i64 columns = in[2].shape.size[1];
  const DType state = state_of(in[2].dtype);
  return {.values = 2 * columns * size_of(in[2].dtype),
          .gradients = 2 * columns * size_of(state),
          .columns = columns,
          .type = in[2].dtype,
          .gradient_type = state};
}

}  // namespace switchyard::ir
