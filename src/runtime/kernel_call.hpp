// Arguments of a kernel binding: an instruction with its tensors, and what a rank knows besides.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "codecs/rule.hpp"
#include "comm/fabric.hpp"
#include "config/rope_scaling.hpp"
#include "config/strategy.hpp"
#include "ir/code.hpp"
#include "runtime/feeds.hpp"
#include "runtime/flight.hpp"

namespace switchyard::runtime {

struct ServedStretch;
/// The stretches of a stage's exchanges that a fabric serves (runtime/group_calls.hpp).
using ServedStretches = std::map<const layout::Exchange*, std::vector<ServedStretch>>;

/// Rotary tables of one head size: a rank's, or where frequencies depend on the document's length a micro-batch's.
class RopeTables {
 public:
  RopeTables(double theta, config::RopeScaling scaling) : theta_(theta), scaling_(scaling) {}
  bool by_document() const { return config::by_document(scaling_); }
  /// cos, sin (P, D/2) for the positions of the feeds. A micro-batch's are made by the first call.
  std::pair<at::Tensor, at::Tensor> of(int head_dim, const MicroBatchFeeds& feeds);
  /// cos, sin (P, D/2), P at least `positions`, in the dtype and on the device of `like`. Those that are too short are
  /// made anew.
  std::pair<at::Tensor, at::Tensor> get(int head_dim, i64 positions, const at::Tensor& like);

 private:
  double theta_;
  config::RopeScaling scaling_;
  i64 positions_ = 0;
  at::Tensor cos_, sin_;
};

/// The ring ranks of a replica: a channel of all their ranks, and the ranks at this one's position in their code.
/// encoding: of keys, values and their gradients. stream: on which keys move while attention is computed; null: they
/// move before. exchanged: called with when keys or their gradients were passed on, and since when the rank waited for
/// that; may be empty.
struct RingLink {
  comm::Channel channel{};
  i64* number = nullptr;
  std::vector<int> peers{};
  codecs::Rule encoding{};
  Stream* stream = nullptr;
  std::function<void(const Flight::Times&)> exchanged{};
};

/// The replica of a stage: a channel of its ranks for what operators exchange, and one for collectives, each with a
/// running number of its transactions. pattern: how the replica lies on hosts, of StageCode::hosts. stream: on which
/// collectives run beside operators; null: they run where they are launched. compression: of what collectives send.
/// served: what of them the fabric serves by calls of its own; null: nothing.
struct ReplicaLink {
  comm::Fabric* fabric = nullptr;
  comm::Channel channel;
  i64* number = nullptr;
  comm::Channel collectives{};
  i64* collective_number = nullptr;
  size_t pattern = 0;
  config::Compression compression{};
  const ServedStretches* served = nullptr;
  Stream* stream = nullptr;
  RingLink ring{};
};

struct KernelCall {
  const ir::Instr& instr;
  const ir::StageCode& stage;
  int position;
  std::vector<at::Tensor> in, out;  // out: allocated, or accumulators
  const MicroBatchFeeds& feeds;
  RopeTables& rope;
  const ReplicaLink& replica;
  DType state;

  /// First row (dim 0, global) of an operand's local box: where a part of the vocabulary begins. Of tokens in units of
  /// T / positions.
  i64 first_row(int buffer) const { return box(buffer).lo[0]; }
  const layout::Box& box(int buffer) const {
    return stage.buffers[static_cast<size_t>(buffer)].box[static_cast<size_t>(position)];
  }
  template <class Op>
  const Op& op() const {
    return static_cast<const Op&>(*instr.op);
  }
};

using Kernel = void (*)(KernelCall&);

/// The kernel bound to an operator's name; InternalError if there is none.
Kernel find_kernel(const std::string& name);

// Bindings, one function an operator (runtime/bindings/<file>.cpp).
void run_linear(KernelCall&);
void run_linear_dx(KernelCall&);
void run_linear_dw(KernelCall&);
void run_bias_dw(KernelCall&);
void run_rms_norm(KernelCall&);
void run_rms_norm_dx(KernelCall&);
void run_rms_norm_dw(KernelCall&);
void run_layer_norm(KernelCall&);
void run_layer_norm_dx(KernelCall&);
void run_layer_norm_dw(KernelCall&);
void run_rope(KernelCall&);
void run_attention(KernelCall&);
void run_attention_dx(KernelCall&);
void run_unfused_attention(KernelCall&);
void run_unfused_attention_dx(KernelCall&);
void run_dropout(KernelCall&);
void run_dropout_dx(KernelCall&);
void run_swiglu(KernelCall&);
void run_swiglu_dx(KernelCall&);
void run_gelu(KernelCall&);
void run_gelu_dx(KernelCall&);
void run_add(KernelCall&);
void run_embedding(KernelCall&);
void run_embedding_dw(KernelCall&);
void run_head_forward(KernelCall&);
void run_head_loss(KernelCall&);
void run_head_loss_dx(KernelCall&);

/// A reshard among the ranks of a replica, on its way. It keeps its tensors, and has memory for sums that the rank
/// makes for others, and for what it encodes. Refers to the call's stage and instruction. Its transactions are numbered
/// where it is made.
class Reshard {
 public:
  explicit Reshard(const KernelCall& call);
  /// All steps; blocks until they are done.
  void run();

 private:
  const ServedStretch* served_from(size_t step) const;
  void run(const ServedStretch& served, i64 number);
  at::Tensor view(layout::Place place, const layout::Box& units) const;
  codecs::Codec codec_of(const layout::Piece& piece) const;
  int rank_of(const layout::Piece& piece) const { return replica_.collectives.ranks[static_cast<size_t>(piece.peer)]; }

  const ir::Buffer &from_, &to_;
  const layout::Exchange& exchange_;
  size_t position_;
  i64 unit_;    // tokens of a unit
  i64 number_;  // number of the transaction before its first one
  ReplicaLink replica_;
  codecs::Rule encoding_;
  at::Tensor input_, output_, scratch_, room_;
};
void run_reshard(KernelCall&);

}  // namespace switchyard::runtime
