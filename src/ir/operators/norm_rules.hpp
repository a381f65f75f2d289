// What RMSNorm and LayerNorm have in common. Where ranks have parts of the features, the weights are cut, too, and the
// ranks sum statistics of each token, in the state dtype.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "base/allocation.hpp"
#include "ir/operator.hpp"

namespace switchyard::ir {

/// The gradient of the norm's input so far, which the norm's own gradient adds in the same pass; -1: none.
inline int take_existing(std::vector<int>& existing) {
  const int value = existing[0];
  existing[0] = -1;
  return value;
}

/// Labels whose features may be cut where those of this input are, for then ranks sum statistics; otherwise they are
/// whole.
inline std::string over_features(std::string labels, const LayoutQuery& query, size_t input) {
  if (query.in[input].split[1].empty()) return labels;
  std::erase(labels, '!');
  return labels;
}

/// Bytes of the sums that a gradient makes, `per_token` for each token, where a rank has some of the features only.
/// in: the gradient's inputs, x second and a statistic fourth.
inline i64 bytes_of_sums(std::span<const Type> in, i64 features, i64 tokens, i64 per_token) {
  return in[1].shape.size[1] < features ? allocated(per_token * tokens * size_of(in[3].dtype)) : 0;
}

/// Bytes of the weight in the dtype of statistics, or of the constant that is added to the variance.
inline i64 weight_or_constant(const Type& weight) { return std::max(wide_bytes(weight, 0), kConstantBytes); }

}  // namespace switchyard::ir
