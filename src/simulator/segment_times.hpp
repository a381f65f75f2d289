// Times of a compiled segment on a cluster, part by part.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "cluster/hardware.hpp"
#include "codecs/rule.hpp"
#include "compiler/ring_keys.hpp"
#include "cost/exchange.hpp"
#include "ir/code.hpp"

namespace switchyard::simulator {

enum class Activity { compute, communication };

/// A part of a segment without events inside, on the slowest rank of the replica. It takes fixed + per_pair * attention
/// pairs + per_square * squared lengths seconds; attention pairs: of a query and a key that it sees; both are sums over
/// the micro-batch's documents.
struct Piece {
  Activity what = Activity::compute;
  double fixed = 0, per_pair = 0, per_square = 0;
  int exchange = -1;  // in SegmentTimes::exchanges; what the piece takes of devices and ports while it communicates
  ir::Queue queue = ir::Queue::compute;  // compute: nothing else is computed meanwhile; collective: it goes on beside
                                         // the pieces behind it
  int needs =
      0;  // so many pieces of the collective queue, counted from the segment's start, have ended before it starts
  int first = 0, end = 0;  // instructions of the segment whose operators it computes
  double share = 1;        // share of their time: a step of attention has a part of one
};

/// A unit that is awaited or released at the start of piece `before`.
struct UnitMark {
  size_t before = 0;
  int unit = 0;
};

/// All collectives have ended at the end.
struct SegmentTimes {
  std::vector<Piece> pieces;
  std::vector<cost::Exchange> exchanges;  // each kind once
  std::vector<UnitMark> awaits, releases;
};

/// Whether an instruction has shards of the same sizes at two positions of a stage.
bool same_sizes(const ir::StageCode& stage, const ir::Instr& instr, int a, int b);

/// A part of a segment in which the same goes on: computing, an exchange (of SegmentTimes::exchanges), or both.
/// seconds: of each by itself.
struct Part {
  double seconds = 0;
  bool computes = false;
  int exchange = -1;
};

/// Takes a segment's pieces in their order, with the seconds that each takes by itself, and appends to `parts` what
/// goes on at the same time. How much computing and communication slow each other down is left to the caller.
class Queues {
 public:
  void add(const Piece& piece, double seconds, std::vector<Part>& parts);
  /// Adds the rest of the collectives that have not ended.
  void finish(std::vector<Part>& parts);

 private:
  bool empty() const { return first_ == collectives_.size(); }
  void end_first(std::vector<Part>& parts);

  std::vector<std::pair<int, double>> collectives_;  // exchange, seconds left
  size_t first_ = 0;                                 // the first that hasn't ended
  int ended_ = 0;
};

/// Keys and values of attention that ring ranks pass on, or their gradients, which go back and are summed: columns of
/// each, by position of the code.
struct PassedKeys {
  std::vector<i64> columns;
  DType type{};
  bool summed = false;
  bool operator==(const PassedKeys&) const = default;
};
/// A round of them, all positions side by side.
cost::Exchange exchange_of(const PassedKeys& passed, const compiler::RingKeys& keys, size_t round,
                           const codecs::Rule& encoding, const cluster::Hardware& hardware,
                           const cluster::Cluster& placement);

/// Keys that the ring ranks of a run's micro-batch pass on. How long that takes is the same for all of them and in all
/// passes.
struct TimedKeys {
  compiler::RingKeys keys;
  // By columns of each position, type, whether it is summed, and round.
  std::map<std::tuple<std::vector<i64>, DType, bool, size_t>, cost::Exchange> exchanges{};
};

/// Times of a segment on the ranks of a replica, by position, for micro-batches of any size: of computing, and of the
/// collectives beside it, in the order in which they are executed. An operator takes what the longer of its arithmetic
/// and its memory traffic takes (roofline; S. Williams et al., CACM 52(4), 2009), with the device's efficiency curves;
/// attention takes both. Computing between two collectives is slowed as the device's lockstep curve says. The host
/// issues operators and collectives one by one and runs ahead of the device, which rests where they are shorter than
/// that takes: a segment takes max(n h, d), or n h + d if the host waits for the device (n calls, h host_launch, d the
/// device's time with one document of T tokens). Resting counts as computing. Refers to the segment, the hardware and
/// the placement.
class SegmentTimer {
 public:
  /// piece: of the segment; ir::kWhole: all of it.
  SegmentTimer(const ir::StageCode& stage, const ir::Segment& segment, int piece, const std::vector<int>& ranks,
               const cluster::Hardware& hardware, const cluster::Cluster& placement,
               const config::Compression& compression = {});
  /// The segment's times for a micro-batch of T tokens. keys: what ring ranks pass on meanwhile, of which the timer's
  /// ranks are the `ring`th; null: nothing. What attention takes for pairs is then in the fixed times of its blocks,
  /// unless they are not known (no SeenKeys).
  /// errors  UserError if the device has no rates for a data type
  SegmentTimes at(i64 T, TimedKeys* keys = nullptr, int ring = 0) const;
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  // What instructions with the same operator and sizes compute: on each position that differs from those before it.
  struct Computation {
    const ir::Operator* op = nullptr;
    DType type{};
    std::vector<ir::LocalWork> positions;
  };
  // A step of a reshard; bytes in messages and elements copied are for one token of each rank, or altogether.
  struct Exchange {
    std::vector<cost::Message> messages;
    i64 copied = 0;
    DType type{};
    bool by_tokens = false;
    codecs::Rule encoding{};
  };
  // Statistics that operators sum among ranks.
  struct Sums {
    i64 element = 0, chunk = 0;  // bytes; tokens at a time, as ir::StatisticSums
    std::vector<i64> per_token;
    std::vector<std::vector<int>> groups;  // positions that sum together
    i64 units = 0;                         // units of tokens, see ir::StatisticGroups
    bool operator==(const Sums&) const = default;
  };
  using Kind = std::variant<Computation, Exchange, Sums, PassedKeys>;
  // A part of an instruction, and which part of it has ended before.
  struct Call {
    Piece piece{};
    ir::Queue queue = ir::Queue::compute;
    int after = -1;
  };
  // Those of all instructions, one after the other. ends: of each instruction.
  struct Calls {
    std::vector<Call> all{};
    std::vector<size_t> ends{};
    std::span<const Call> of(size_t instr) const {
      const size_t first = instr == 0 ? 0 : ends[instr - 1];
      return std::span(all).subspan(first, ends[instr] - first);
    }
  };
  // Results so far for the calls of a micro-batch.
  struct Known {
    i64 T = 0;
    TimedKeys* keys = nullptr;
    int ring = 0;
    std::vector<std::optional<Piece>> pieces{};              // a piece for each kind
    std::map<std::pair<size_t, size_t>, Piece> transfers{};  // a piece for each kind of keys, by round
  };

  void add(const ir::Instr& instr);
  void add_kind(Kind kind);
  static bool same(const Kind& a, const Kind& b);
  Piece computed(const Computation& computation, i64 T) const;
  Piece measured(const cluster::OperatorTable& table, const ir::LocalWork& local, i64 T) const;
  cost::Exchange exchanged(const Exchange& exchange, i64 T) const;
  cost::Exchange statistic_sums(const Sums& sums, i64 T) const;
  void add_calls(size_t instr, Known& known, SegmentTimes& times, std::vector<Call>& calls) const;
  void add_calls_with_keys(size_t instr, Known& known, SegmentTimes& times, std::vector<Call>& calls) const;
  void rest_for_host(const Calls& calls, double host, i64 T, SegmentTimes& times) const;
  void put_in_order(const Calls& calls, double rest, SegmentTimes& times) const;
  static Piece transferred(const cost::Exchange& exchange, SegmentTimes& times);
  std::vector<Piece> blocks(const Piece& attention, const Known& known) const;
  const cost::Exchange& passed_on(const PassedKeys& passed, TimedKeys& keys, size_t round) const;
  void add_keys(const ir::Instr& instr, bool gradients);

  const ir::StageCode& stage_;
  const ir::Segment& segment_;
  const int piece_;
  const ir::PieceRange range_;
  const std::vector<int> ranks_;
  const cluster::Hardware& hardware_;
  const cluster::Cluster& placement_;
  const config::Compression compression_;
  std::vector<Kind> kinds_;                  // each once
  std::vector<std::vector<size_t>> pieces_;  // pieces of an instruction
};

/// The same for one T.
SegmentTimes segment_times(const ir::StageCode& stage, const ir::Segment& segment, i64 T, const std::vector<int>& ranks,
                           const cluster::Hardware& hardware, const cluster::Cluster& placement);

}  // namespace switchyard::simulator
