// Keys and values of attention on their way between ring ranks, and their gradients on their way back.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/flight.hpp"
#include "runtime/kernel_call.hpp"
#include "runtime/transfer.hpp"

namespace switchyard::runtime {

/// Brings a ring rank the keys that its queries see, in the rounds of batch::KeyExchange: those of the next step while
/// one is computed, on the ring's stream, or, without one, before it. Refers to the call.
class KeyTransfer {
 public:
  using Pair = std::pair<at::Tensor, at::Tensor>;  // keys, values
  /// One computation: blocks of queries against `keys`, whose gradients go to `gradients`, which are in the
  /// state dtype and have zeros, or what other blocks made. number: among the steps of feeds; first: of all that are
  /// computed.
  struct Step {
    size_t number = 0;
    bool first = true;
    Pair keys, gradients;
    const std::vector<kernels::AttentionBlock>& blocks;
  };
  using Compute = std::function<void(const Step&)>;

  KeyTransfer(KernelCall& call, const at::Tensor& keys, const at::Tensor& values);
  /// Whether any ring rank of the micro-batch sees keys of another one.
  bool any() const { return !exchange_.rounds.empty(); }
  /// Whether rows of queries get results of several steps.
  bool in_steps() const;
  /// One step at least, in their order.
  void forward(const Compute& compute);
  /// The same, and each gradient to the rank that has its key, the way its key came; those of keys that this rank
  /// passed on are added to its own here. keys, values: the gradients of the rank's own, sums of what all make of them,
  /// in a fixed order that begins with its own part: the same bits in each run.
  void backward(at::Tensor& keys, at::Tensor& values, const Compute& compute);

 private:
  const batch::SeenKeys& seen() const { return exchange_.seen[static_cast<size_t>(call_.feeds.ring_rank)]; }
  size_t steps() const { return call_.feeds.blocks.size(); }
  void make_room();
  /// The step's keys are there: computes it, if it has blocks or none has had any.
  void compute_step(size_t step, const Compute& compute, bool backward);
  Pair gradients_of(size_t step);
  void make_own();
  std::optional<Flight> bring(size_t round);
  std::optional<Flight> take_back(size_t step);
  void send(Transfer& transfer, int peer, const Pair& pair) const;
  void receive(Transfer& transfer, int peer, const Pair& pair, bool add) const;
  codecs::Codec codec_of(const at::Tensor& rows, int from, int to) const;
  /// One transaction of the messages in which this rank takes part; visit(transfer, message, the other rank). room: for
  /// what is encoded. awaited: nothing is computed meanwhile.
  template <class Visit>
  Flight start(const char* what, const std::vector<batch::KeyMessage>& messages, bool awaited, const at::Tensor& room,
               const Visit& visit);
  void land(std::optional<Flight>& flight);

  KernelCall& call_;
  const batch::KeyExchange& exchange_;
  at::Tensor room_, gradient_room_;  // for what is encoded
  Pair own_, received_;
  Pair made_;                // gradients of received keys
  Pair own_gradients_, to_;  // gradients of own keys: while they are summed up, and where they go in the end
  bool computed_ = false;
  int on_their_way_ = 0;
};

}  // namespace switchyard::runtime
