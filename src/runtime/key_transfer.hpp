// Keys and values of attention on their way between ring ranks, and their gradients on their way back.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "runtime/kernel_call.hpp"

namespace switchyard::runtime {

/// What the queries of a ring rank see, brought together from the ranks that have it. Refers to the call.
class KeyTransfer {
 public:
  using Pair = std::pair<at::Tensor, at::Tensor>;  // of keys, of values

  explicit KeyTransfer(KernelCall& call) : call_(call), keys_(call.feeds.ring_keys) {}
  /// Whether any ring rank of the micro-batch sees keys of another one.
  bool any() const;
  /// Keys and values by token, (seen_keys, features) each; where the rank sees its own only, these.
  Pair gathered(const at::Tensor& keys, const at::Tensor& values);
  /// Tensors for the gradients of what `gathered` gave: in the state dtype; where the rank sees its own keys only,
  /// the outputs.
  Pair gradients(at::Tensor& keys, at::Tensor& values) const;
  /// Each gradient to the rank that has its key, the way its key came; those of keys that this rank passed on are added
  /// to its own here. A rank's outputs are the sums of what all make of its keys, its own first, then those of its host
  /// and the sums of others in the order of ring ranks: the same bits in each run.
  void returned(const Pair& from, at::Tensor& keys, at::Tensor& values);

 private:
  const batch::SeenKeys& seen() const { return keys_.seen[static_cast<size_t>(call_.feeds.ring_rank)]; }
  bool is_gathered() const { return call_.feeds.seen_keys() > 0; }
  /// One transaction of the messages in which this rank takes part; visit(transfer, message, the other rank).
  template <class Visit>
  void exchange(const char* what, const std::vector<batch::KeyMessage>& messages, const Visit& visit);

  KernelCall& call_;
  const batch::KeyExchange& keys_;
};

}  // namespace switchyard::runtime
