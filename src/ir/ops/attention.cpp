#include <algorithm>

#include "base/errors.hpp"
#include "ir/ops/ops.hpp"

namespace switchyard::ir {
namespace {

// Keys and values are cut by as many of the query's axes, outermost first, as leave every rank a key/value head.
std::vector<int> key_axes(const layout::Mesh& mesh, const std::vector<int>& query_axes, i64 kv_heads) {
  std::vector<int> axes;
  i64 ways = 1;
  for (const int a : query_axes) {
    ways *= mesh.axes[static_cast<size_t>(a)].size;
    if (ways > kv_heads) break;
    axes.push_back(a);
  }
  return axes;
}

layout::Layout heads_cut(const std::vector<int>& axes) { return {{{}, axes}, {}}; }

// Multiply and add of scores and of values: 4 D per head, pair and forward pass; the backward pass makes five products.
Cost attention_cost(std::span<const Type> in, std::span<const Type> out, double query_features, double products, i64 head_dim) {
  Cost cost = memory_bound(in, out);
  cost.flops_per_token = 0;
  cost.narrowest = static_cast<double>(head_dim);
  cost.flops_per_pair = 2 * products * query_features;
  return cost;
}

// Of bf16: two matrices of scores of up to 512 queries and a document's keys, all heads at once, with the rows that they are made
// of in fp32.
i64 attention_workspace(const Type& q, const Type& k, i64 head_dim, i64 longest, i64 key_copies) {
  if (q.dtype != DType::bf16) return 0;
  const i64 queries = std::min<i64>(longest, 512), heads = q.shape.size[1] / head_dim;
  const i64 scores = 2 * heads * queries * longest, rows = 2 * queries * q.shape.size[1] + key_copies * longest * k.shape.size[1];
  return (scores + rows) * size_of(DType::f32);
}

}  // namespace

std::vector<Type> Attention::shape(std::span<const Type> in) const {
  check(in[1].shape.size[1] == kv_heads_ * head_dim_ && in[1].shape == in[2].shape, "attention: keys of {} features, values of {}",
        in[1].shape.size[1], in[2].shape.size[1]);
  std::vector<i64> granules;
  for (const i64 g : in[0].shape.granule[1]) granules.push_back(g / head_dim_);
  const DType state = in[0].dtype == DType::f64 ? DType::f64 : DType::f32;
  return {in[0], tokens_by(state, in[0].shape.size[1] / head_dim_, granules)};
}

LayoutRule Attention::layout(const LayoutQuery& query) const {
  const std::vector<int>& axes = query.in[0].split[1];
  const layout::Layout q = heads_cut(axes), k = heads_cut(key_axes(*query.mesh, axes, kv_heads_));
  return {{q, k, k}, {q, q}};
}

std::vector<int> Attention::input_gradient(Graph& graph, const Call& call, const std::vector<int>& dy, std::vector<int>&) const {
  check(dy[0] >= 0, "attention without a gradient");
  return graph.call(std::make_shared<AttentionDx>(head_dim_, kv_heads_),
                    {dy[0], call.in[0], call.in[1], call.in[2], call.out[0], call.out[1]}, "d qkv");
}

Cost Attention::cost(std::span<const Type> in, std::span<const Type> out) const {
  return attention_cost(in, out, static_cast<double>(in[0].shape.size[1]), 2, head_dim_);
}

i64 Attention::workspace(std::span<const Type> in, std::span<const Type>, i64, i64 longest) const {
  return attention_workspace(in[0], in[1], head_dim_, longest, 2);
}

LayoutRule AttentionDx::layout(const LayoutQuery& query) const {
  const std::vector<int>& axes = query.in[1].split[1];
  const layout::Layout q = heads_cut(axes), k = heads_cut(key_axes(*query.mesh, axes, kv_heads_));
  layout::Layout dk = k;
  dk.partial.assign(axes.begin() + static_cast<std::ptrdiff_t>(k.split[1].size()), axes.end());
  std::sort(dk.partial.begin(), dk.partial.end());
  return {{q, q, k, k, q, q}, {q, dk, dk}};
}

Cost AttentionDx::cost(std::span<const Type> in, std::span<const Type> out) const {
  return attention_cost(in, out, static_cast<double>(in[1].shape.size[1]), 5, head_dim_);
}

i64 AttentionDx::workspace(std::span<const Type> in, std::span<const Type>, i64, i64 longest) const {
  return attention_workspace(in[1], in[2], head_dim_, longest, 4);
}

}  // namespace switchyard::ir
