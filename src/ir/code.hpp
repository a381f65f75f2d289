// Code: what one pipeline stage of a group does with a micro-batch, compiled once. It contains no batch and no global
// rank: positions are places in the stage's replica (ulysses * outer * inner ranks), T is left open.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/key_passing.hpp"
#include "base/pass.hpp"
#include "ir/operator.hpp"
#include "layout/exchange.hpp"

namespace switchyard::ir {

/// A tensor of a segment. box[position]: which part of the value the rank holds; along a token dim the unit is T /
/// positions. Members of one `root` lie side by side in one allocation (columns), in ascending order of `root_slot`.
struct Buffer {
  std::string name{};
  ValueKind kind = ValueKind::activation;
  int value = -1;                  // in the graph
  Type type{};                     // type of the whole value
  layout::Layout layout{};         // on the replica's mesh
  std::vector<layout::Box> box{};  // by position
  int root = -1, root_slot = 0;
};

/// Whether the ranks have shards of equal sizes at two positions.
bool same_sizes(const Buffer& buffer, int a, int b);

/// The queues of a rank run side by side; each runs its work in order. collective: what the ranks of a replica exchange
/// inside runs.
/// gather: parameters that are cut by rows, for the runs that read them.
enum class Queue { compute, forward, backward, bulk, gather, switching, collective };

/// One operation. op == null: a reshard, out[0] from in[0] by one of `exchanges`, of which there is one for each of the
/// stage's patterns of hosts; over_ulysses: with it ulysses goes from tokens to heads or back.
/// first_partial[position]: this position may add terms that must count once (biases). queue: operators compute;
/// reshards are collectives, which are launched at their place in the list and then run beside the instructions behind
/// it. after: positions in the segment of the collectives that end before this instruction starts. drop: activations
/// that nothing reads later in this segment (nor in the backward segment); they are dropped when the instruction has
/// ended. drop_roots: roots of whose members none is left then.
struct Instr {
  std::shared_ptr<const Operator> op;
  Queue queue = Queue::compute;
  std::vector<std::shared_ptr<const layout::Exchange>> exchanges;
  std::vector<int> in, out, after, drop, drop_roots;
  std::vector<bool> first_partial;
  bool over_ulysses = false;
  int unit = 0;
  Pass pass = Pass::F;
};

struct UnitEvent {
  int unit = 0, instr = 0;
  bool operator==(const UnitEvent&) const = default;
};
/// Where a run of a segment is cut: a task of its own begins with instruction `instr`. after: collectives that end
/// before the piece ahead does; behind a cut nothing waits for collectives ahead of it.
struct Cut {
  int instr = 0;
  std::vector<int> after{};
};
/// Pass F, B, W or BW; the one of pass B has both kinds of gradients unless there is one for weights, too. awaits:
/// parameter units in the order of their first use; last_reads: the instructions after which they are not read again;
/// first_writes: units by the first instruction that adds to their gradients; releases: units whose gradients are
/// complete, with the instruction after which they are. after: collectives that end before the segment does. cuts: in
/// pieces, where depth, ZeRO-2 or 3 has transfers for parts of a run, or micro-batches run in pairs. apart: collectives
/// are pieces of their own, which run beside those behind them; what a piece waits for, it waits for at its start.
struct Segment {
  Pass pass = Pass::F;
  std::vector<Instr> code;
  std::vector<UnitEvent> awaits, releases;
  std::vector<int> after{};
  std::vector<UnitEvent> last_reads{}, first_writes{};
  std::vector<Cut> cuts{};
  bool apart = false;
};

/// Pieces of a segment are numbered from 0; all of them together are kWhole.
inline constexpr int kWhole = -1;
/// The instructions [first, end) of a piece.
struct PieceRange {
  size_t first = 0, end = 0;
  bool has(int instr) const { return first <= static_cast<size_t>(instr) && static_cast<size_t>(instr) < end; }
};
PieceRange range_of(const Segment& segment, int piece);
inline bool is_last(const Segment& segment, int piece) { return range_of(segment, piece).end == segment.code.size(); }
/// Whether the piece is a collective, which runs on the queue of collectives.
bool is_collective(const Segment& segment, int piece);
/// Whether no later piece computes.
bool is_last_computed(const Segment& segment, int piece);
/// The pieces of collectives that end before the piece starts, where these are pieces of their own.
std::vector<int> awaited_pieces(const Segment& segment, int piece);
/// The collectives that end before instruction i starts, or, behind the last one of a piece, before the piece ends.
const std::vector<int>& ending_before(const Segment& segment, size_t i);
/// The units whose parameters a piece reads; to whose gradients it adds.
std::vector<int> units_read(const Segment& segment, int piece);
std::vector<int> units_written(const Segment& segment, int piece);

/// A piece of a segment in the order of the rank that runs it: start(i), where instruction i takes its memory and
/// starts, and end(i), where it is known to have ended and drops its memory. An operator ends before the next
/// instruction starts, a collective where it is waited for, at the latest at the end of its piece. All who run, time or
/// replay a segment do it in this order. Collectives that are pieces of their own end in the pieces that wait for them.
template <class Start, class End>
void walk(const Segment& segment, int piece, Start start, End end) {
  const PieceRange range = range_of(segment, piece);
  for (size_t i = range.first; i < range.end; ++i) {
    if (i > range.first || segment.apart)
      for (const int collective : ending_before(segment, i)) end(static_cast<size_t>(collective));
    start(i);
    if (segment.code[i].queue == Queue::compute) end(i);
  }
  if (range.end < segment.code.size() && segment.apart) return;
  for (const int collective : ending_before(segment, range.end)) end(static_cast<size_t>(collective));
}
template <class Start, class End>
void walk(const Segment& segment, Start start, End end) {
  walk(segment, kWhole, start, end);
}

/// A parameter as a stage uses it: its cut over the replica, and the axes over which its gradient is partial.
struct ParamUse {
  int param = 0;
  layout::Layout used, grad;
};

/// Stage of a group, on a replica mesh of ulysses * outer * inner positions. Boundary buffers are -1 where there is
/// none (first, last stage).
struct StageCode {
  layout::Mesh replica;
  std::vector<std::vector<int>> hosts;  // by position, as layout::host_pattern: the placements of replicas on hosts
  int first_unit = 0, end_unit = 0;
  std::vector<Buffer> buffers;
  /// weight: empty unless gradients are split. joined: then both kinds at once, or empty where nothing is gained by
  /// that. It may run for some micro-batches instead of the other two.
  Segment forward, backward, weight, joined;
  std::array<const Segment*, 4> segments() const { return {&forward, &backward, &weight, &joined}; }
  std::array<Segment*, 4> segments() { return {&forward, &backward, &weight, &joined}; }
  bool joins_gradients() const { return !joined.code.empty(); }
  layout::RowCuts rows;
  /// Whether parameters are gathered for each run, and whether gradients of each run are reduced to rows.
  bool gathers() const { return !rows.stored.empty(); }
  bool reduces() const { return !rows.grad.empty(); }
  /// Blocks of `every` consecutive micro-batches share the copies that are gathered for their runs of a pass, and the
  /// gradients of these runs until they are reduced. one_copy: forward and backward runs of a block share the copies.
  /// kept_unit: they share the copy of this unit, which is the last one of the former and the first one of the latter.
  static constexpr int kNoUnit = -2;
  int every = 1;
  bool one_copy = false;
  int kept_unit = kNoUnit;
  int first_of_block(int micro_batch) const { return micro_batch / every * every; }
  Pass copy_pass(Pass pass, int unit) const { return one_copy || unit == kept_unit ? Pass::F : pass; }
  const Segment& segment(Pass pass) const {
    return pass == Pass::F                         ? forward
           : pass == Pass::W                       ? weight
           : pass == Pass::BW && joins_gradients() ? joined
                                                   : backward;
  }
  std::vector<ParamUse> params;
  std::vector<int> units;  // numbers of these parameters, ascending
  int act_in = -1, act_out = -1, grad_in = -1, grad_out = -1;
  int loss = -1, logits = -1;  // last stage: buffer of the loss per token, of the logits; one of them
  std::vector<int> stash;      // buffers that live from forward to backward or weight
  // How keys come to other ring ranks, and whether collectives and keys move while the stage computes.
  KeyPassing passing = KeyPassing::gather;
  bool overlap = false;
  bool paired = false;  // two micro-batches take turns, so that one computes while the other's collectives run
  // Whether gathers and reductions for runs go on while the stage computes; else each waits for the piece before it,
  // and the next piece waits for them.
  bool overlap_transfers = true;
  bool on_devices = false;       // kernels are those of devices
  bool element_kernels = false;  // those for elements are ours
};

/// Which of the stage's patterns a replica has. InternalError if the stage wasn't compiled for it.
size_t pattern_of(const StageCode& stage, const std::vector<int>& hosts);
inline size_t pattern_of(const StageCode& stage, std::span<const int> ranks, const cluster::Cluster& cluster) {
  return pattern_of(stage, layout::host_pattern(ranks, cluster));
}
/// Number of tokens of the unit in which token dims of boxes count: T is divided into as many as the replica has ranks,
/// so that every cut of T is a whole number of units. InternalError if T can't be divided.
i64 token_unit(int positions, i64 tokens);
inline i64 token_unit(const layout::Mesh& replica, i64 tokens) { return token_unit(replica.size(), tokens); }
/// A box of a buffer with token dims in tokens; unit: token_unit.
layout::Box scaled(const Buffer& buffer, layout::Box box, i64 unit);
/// Bytes in which a reshard makes sums for others at a position, for a micro-batch of so many tokens.
i64 scratch_bytes(const StageCode& stage, const Instr& reshard, size_t pattern, int position, i64 tokens);

/// in_step: so many consecutive replicas share what is gathered and reduced for their runs, and follow one order of
/// items.
struct GroupCode {
  int replicas = 1, in_step = 1;
  std::vector<StageCode> stages;
};

/// Local sizes of a buffer at a position.
std::vector<i64> local_size(const Buffer& buffer, int position, int positions, const Extent& extent);
i64 local_bytes(const Buffer& buffer, int position, int positions, const Extent& extent);
/// Type of the local shard with one token dim left open as kTokens or kSquaredLengths (its share of T is
/// `token_share`).
Type local_type(const Buffer& buffer, int position, int positions, double* token_share);

/// What an operator's instruction works on at a position. cost: per token of the whole micro-batch, where
/// bytes_after_per_token has what the stage's kernels convert, too; share: of its tokens; columns: features of the
/// first operand that has tokens, or heads of stored scores (0: none has); chunk: local tokens that it computes at a
/// time (0: all).
struct LocalWork {
  Cost cost;
  double share = 1, columns = 0, chunk = 0;

  bool by_documents() const {
    return cost.flops_per_pair > 0 || cost.flops_per_square > 0 || cost.bytes_per_square > 0;
  }
  /// Flops of a row's products, or where there are none the bytes that it moves.
  double work_per_row() const {
    return (cost.flops_per_token > 0 ? cost.flops_per_token : cost.bytes_per_token) / share;
  }
  /// How often sums are added to accumulators; between whole chunks by interpolation, so that more tokens never take
  /// more time each.
  double accumulations(double tokens) const { return chunk > 0 ? std::max(1.0, tokens * share / chunk) : 1; }
};
LocalWork local_work(const StageCode& stage, const Instr& instr, int position);
inline Cost local_cost(const StageCode& stage, const Instr& instr, int position) {
  return local_work(stage, instr, position).cost;
}

/// What a rank at a position passes to the other ring ranks of a token's keys and values in an instruction.
KeyBytes key_bytes(const StageCode& stage, const Instr& instr, int position);

/// What an instruction sums inside over ranks of the replica; nothing where every rank has the whole dim.
std::optional<StatisticSums> statistic_sums(const StageCode& stage, const Instr& instr);

std::string to_string(const Graph& graph, const StageCode& stage);

}  // namespace switchyard::ir
