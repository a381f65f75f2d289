// How heads are cut, the same in attention with and without stored scores.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "base/errors.hpp"
#include "ir/operator.hpp"

namespace switchyard::ir {

/// The axes that cut keys and values: those of the queries, outermost first, as long as every rank has at least one
/// key/value head.
inline std::vector<int> key_axes(const LayoutQuery& query, const std::vector<int>& query_axes, i64 kv_heads) {
  return layout::leading_axes(*query.mesh, query_axes, kv_heads);
}

/// A value by tokens and features whose heads these axes cut.
inline layout::Layout heads_cut(const std::vector<int>& axes) { return {{{}, axes}, {}}; }

/// Alignments of a dim that counts query heads, from those of the queries' features. InternalError if keys and values
/// don't have `kv_heads` heads of this size.
inline std::vector<i64> head_alignments(std::span<const Type> in, i64 head_dim, i64 kv_heads) {
  check(in[1].shape.size[1] == kv_heads * head_dim && in[1].shape == in[2].shape,
        "attention: keys of {} features, values of {}", in[1].shape.size[1], in[2].shape.size[1]);
  std::vector<i64> alignments;
  for (const i64 g : in[0].shape.alignment[1]) alignments.push_back(g / head_dim);
  return alignments;
}

/// The layout of the gradients of keys and values, which are partial over the axes that cut only queries.
inline layout::Layout key_gradient(const layout::Layout& k, const std::vector<int>& query_axes) {
  layout::Layout dk = k;
  dk.partial.assign(query_axes.begin() + static_cast<std::ptrdiff_t>(k.split[1].size()), query_axes.end());
  std::sort(dk.partial.begin(), dk.partial.end());
  return dk;
}

}  // namespace switchyard::ir
