// A flat tensor that is cut into shards.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "compiler/holdings.hpp"

namespace switchyard::runtime {

inline std::vector<i64> sizes_of(const layout::Box& box) {
  std::vector<i64> sizes;
  for (int d = 0; d < box.dims; ++d) sizes.push_back(box.size(d));
  return sizes;
}

/// Gives out shards one after another: members of a group adjoin, groups are aligned. An undefined tensor has undefined
/// shards.
class FlatMemory {
 public:
  explicit FlatMemory(at::Tensor flat) : flat_(std::move(flat)) {}
  at::Tensor take(const layout::Box& box) {
    if (!flat_.defined()) return {};
    const i64 n = box.elements();
    at::Tensor piece = flat_.narrow(0, at_, n).view(sizes_of(box));
    at_ += n;
    return piece;
  }
  void next_group() { at_ = compiler::aligned(at_); }

 private:
  at::Tensor flat_;
  i64 at_ = 0;
};

}  // namespace switchyard::runtime
