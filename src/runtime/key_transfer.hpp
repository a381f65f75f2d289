// Keys and values of attention on their way between ring ranks, and their gradients on their way back.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "runtime/kernel_call.hpp"

namespace switchyard::runtime {

/// What the queries of a ring rank see, brought together from the ranks that have it. Refers to the call.
class KeyTransfer {
 public:
  explicit KeyTransfer(KernelCall& call) : call_(call), seen_(call.feeds.seen) {}
  /// Whether any ring rank of the micro-batch sees keys of another one.
  bool any() const;
  /// Keys and values by token, (seen_keys, features) each; where the rank sees its own only, these.
  std::pair<at::Tensor, at::Tensor> gathered(const at::Tensor& keys, const at::Tensor& values);
  /// Tensors for the gradients of what `gathered` gave: in the state dtype; where the rank sees its own keys only,
  /// the outputs.
  std::pair<at::Tensor, at::Tensor> gradients(at::Tensor& keys, at::Tensor& values) const;
  /// Each gradient to the rank that has its key. A rank's outputs are the sums of what all make of its keys, its own
  /// first, in the order of ring ranks: the same bits in each run.
  void returned(const std::pair<at::Tensor, at::Tensor>& from, at::Tensor& keys, at::Tensor& values);

 private:
  bool is_gathered() const { return call_.feeds.seen_keys() > 0; }
  template <class Fill>
  void exchange(const char* what, const Fill& fill);

  KernelCall& call_;
  const std::vector<batch::SeenKeys>& seen_;
};

}  // namespace switchyard::runtime
