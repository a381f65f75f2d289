#include "ir/operators/unfused_attention.hpp"

#include <algorithm>

#include "base/allocation.hpp"
#include "base/errors.hpp"
#include "ir/graph.hpp"
#include "ir/operators/attention_heads.hpp"
#include "ir/operators/dropout.hpp"

namespace switchyard::ir {
namespace {

// Cost of stored scores: for each pair and head `products` products of 2 D flops, `passes` passes over values of q's
// element size, and `masks` bytes of dropout masks.
Cost stored_scores(std::span<const Type> in, std::span<const Type> out, const Type& q, double products, double passes,
                   double masks, i64 head_dim) {
  Cost cost = memory_bound(in, out);
  const double heads = static_cast<double>(q.shape.size[1] / head_dim);
  cost.flops_per_token = 0;
  cost.narrowest = static_cast<double>(head_dim);
  cost.flops_per_square = 2 * products * static_cast<double>(q.shape.size[1]);
  cost.bytes_per_square = heads * (passes * static_cast<double>(size_of(q.dtype)) + masks);
  return cost;
}

// Bytes that attention with stored scores takes for the longest document. scores: in the dtype of statistics; narrow:
// scores in the queries' dtype, 0 where it is the same; statistics: a number for each row of scores; queries: a result
// for the queries; shared: one for keys that several query heads share, at most as large; 0 where none are shared.
struct StoredBytes {
  i64 scores = 0, narrow = 0, statistics = 0, queries = 0, shared = 0;
  StoredBytes(const Type& q, const Type& k, i64 head_dim, i64 longest) {
    const i64 rows = longest * q.shape.size[1] / head_dim, state = size_of(state_of(q.dtype)), own = size_of(q.dtype);
    scores = allocated(rows * longest * state);
    if (own != state) narrow = allocated(rows * longest * own);
    statistics = allocated(rows * state);
    queries = allocated(rows * head_dim * own);
    if (k.shape.size[1] != q.shape.size[1]) shared = queries;
  }
};

}  // namespace

std::vector<Type> UnfusedAttention::shape(std::span<const Type> in) const {
  const layout::Shape attention_pairs{{in[0].shape.size[1] / head_dim_, kSquaredLengths},
                                      {head_alignments(in, head_dim_, kv_heads_), {}}};
  std::vector<Type> out = {in[0], {in[0].dtype, attention_pairs}};
  if (dropout_ > 0) out.insert(out.end(), {{DType::u8, attention_pairs}, {in[0].dtype, attention_pairs}});
  return out;
}

LayoutRule UnfusedAttention::layout(const LayoutQuery& query) const {
  const std::vector<int>& axes = query.in[0].split[1];
  const layout::Layout q = heads_cut(axes), k = heads_cut(key_axes(query, axes, kv_heads_)),
                       attention_pairs{{axes, {}}, {}};
  LayoutRule rule{{q, k, k}, {q, attention_pairs}};
  if (dropout_ > 0) rule.gives.insert(rule.gives.end(), {attention_pairs, attention_pairs});
  return rule;
}

std::vector<int> UnfusedAttention::input_gradient(Graph& graph, const Call& call, const std::vector<int>& dy,
                                                  std::vector<int>&) const {
  check(dy[0] >= 0, "attention without a gradient");
  std::vector<int> in = {dy[0], call.in[0], call.in[1], call.in[2]};
  in.insert(in.end(), call.out.begin() + 1, call.out.end());
  return graph.call(std::make_shared<UnfusedAttentionDx>(head_dim_, kv_heads_, dropout_), in, "d qkv");
}

// The scores are written, read and written by the softmax, and read by the product with the values; dropout reads,
// writes, and writes its mask.
Cost UnfusedAttention::cost(std::span<const Type> in, std::span<const Type> out) const {
  return stored_scores(in, out.first(1), in[0], 2, dropout_ > 0 ? 6 : 4, dropout_ > 0 ? 1 : 0, head_dim_);
}

// The most that a document takes at a time: scores and their softmax; scores while they are made; scores and their
// mask; the choice of what dropout keeps, head by head, or its product with the weights; the product with the values.
i64 UnfusedAttention::workspace(std::span<const Type> in, std::span<const Type>, const CallSize& size) const {
  const StoredBytes bytes(in[0], in[1], head_dim_, size.longest);
  i64 dropout = 0;
  if (dropout_ > 0)
    dropout = std::max(dropout_workspace(size.longest, size.longest), bytes.narrow > 0 ? bytes.narrow : bytes.scores);
  return std::max({2 * bytes.scores, bytes.shared + bytes.narrow + bytes.scores + kConstantBytes,
                   bytes.scores + allocated(size.longest * size.longest) + kConstantBytes + allocated(1), dropout,
                   bytes.shared + bytes.queries});
}

LayoutRule UnfusedAttentionDx::layout(const LayoutQuery& query) const {
  const std::vector<int>& axes = query.in[1].split[1];
  const layout::Layout q = heads_cut(axes), k = heads_cut(key_axes(query, axes, kv_heads_)),
                       attention_pairs{{axes, {}}, {}};
  const layout::Layout dk = key_gradient(k, axes);
  LayoutRule rule{{q, q, k, k, attention_pairs}, {q, dk, dk}};
  if (dropout_ > 0) rule.needs.insert(rule.needs.end(), {attention_pairs, attention_pairs});
  return rule;
}

// The gradient of the softmax's result w is written, then read together with w and written by the softmax's backward
// pass, then read by two products; another product reads w. Dropout's backward pass reads and writes it and reads the
// mask.
Cost UnfusedAttentionDx::cost(std::span<const Type> in, std::span<const Type> out) const {
  return stored_scores(in.first(4), out, in[1], 4, dropout_ > 0 ? 9 : 7, dropout_ > 0 ? 1 : 0, head_dim_);
}

// The gradient of the softmax's result, when it is made; with the weighted one and their difference; or with the
// gradients of queries and of the keys that they share.
i64 UnfusedAttentionDx::workspace(std::span<const Type> in, std::span<const Type>, const CallSize& size) const {
  const StoredBytes bytes(in[1], in[2], head_dim_, size.longest);
  const i64 scores = bytes.narrow > 0 ? 2 * bytes.scores + bytes.narrow : 3 * bytes.scores;
  return std::max({bytes.shared + bytes.narrow + bytes.scores, 2 * bytes.scores + bytes.statistics,
                   3 * bytes.scores + std::max(bytes.narrow, kConstantBytes), scores + bytes.shared + bytes.queries});
}

}  // namespace switchyard::ir
