// Time of moving parameters and gradients between placements over the links.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/tuple_hash.hpp"
#include "planner/coding.hpp"
#include "planner/space.hpp"
#include "planner/timeline.hpp"
#include "planner/unit_costs.hpp"

namespace switchyard::planner {

/// Position of a rank in a placement.
struct Post {
  int replica = 0, stage = 0, place = 0;  // place: among the ranks of the replica's stage
};
/// Empty if the placement does not use the rank.
std::optional<Post> post_of(const Placement& placement, int rank);

/// Every parameter is modelled as an interval: part t of n, the parts into which a stage's mesh cuts weights, holds
/// [t / n, (t + 1) / n) of each unit of its stage, and home's ranks hold slices of the part in the order of the ranks
/// that use it, or copies of it. Units are transferred in order,
/// each when its ranks are free. A slice crosses to each host that lacks it once, to one of the ranks that need it, and
/// is forwarded inside, as the relay planner does; ranks that hold it send equal shares.
class Transfers {
 public:
  /// Seconds for the embedding, for one layer and for the head.
  struct UnitSeconds {
    double embedding = 0, layer = 0, head = 0;
    /// Seconds for all units on a position of the pipeline.
    double of(StageKind kind, int layers) const;
  };
  explicit Transfers(const UnitCosts& units);

  /// Seconds of moving the parameters that `next` lacks, from the copies of `previous` (none before the first phase)
  /// and home.
  double moves(const std::optional<Placement>& previous, const Placement& next, const Home& home) const;
  /// Seconds of reducing the gradients of `from`, each on one rank at home.
  double reduce(const Placement& from, const Home& home) const;
  /// Times of a phase under `next`: its parameters are moved in `moves` seconds, its gradients reduced in `reduce`.
  PhaseTimes phase(const Placement& next, double moves, double work, double reduce) const;
  PhaseTimes phase(const std::optional<Placement>& previous, const Placement& next, const Home& home,
                   double work) const {
    return phase(next, moves(previous, next, home), work, reduce(next, home));
  }
  /// Seconds that a plan of one phase takes at least, beyond the phase's work and least_finish().
  double beyond_one_phase(const Placement& placement) const;
  /// Seconds of what the ranks of a stage gather and reduce for one run of a unit, on the stage on which it takes
  /// longest (ZeRO-2 and 3, and replicas of the mesh; else 0), and the share of the device that this takes from
  /// computing beside it.
  struct OfRun {
    UnitSeconds gather, reduce;
    double device_share = 0;
  };
  const OfRun& of_run(const Placement& placement) const;
  /// Whatever the stage of ZeRO, from the placement's upwards, they take no less. Where only replicas of the mesh cut
  /// gradients, each copy reduces its own; further cuts share what crosses hosts, which may take less.
  OfRun least_of_run(Placement placement) const;
  /// Seconds of the end of a step: broadcast of sums to home's copies, norm and update.
  double finish(const Home& home) const;
  /// Whatever home is, it takes no less.
  double least_finish() const;

 private:
  struct Interval {
    double begin = 0, end = 0;
  };
  /// Distinct intervals, in order.
  class Intervals {
   public:
    void clear() { list_.clear(); }
    void add(const Interval& interval);
    /// Length of the union that lies outside of all `others`.
    double measure_without(const Intervals& others) const;

   private:
    std::vector<Interval> list_;
  };
  /// The stage of a placement that has a unit; the stage of each rank and the part of its units that the rank holds.
  /// Stage -1: none.
  struct Seat {
    int stage = -1;
    Interval part;
  };
  struct Seats {
    std::vector<int> stage_of_unit;
    std::vector<Seat> of_rank;
  };
  /// Tables of a transfer: the next placement, home, and the previous placement if there is one.
  static constexpr size_t kTables = 3;
  /// Units that are on the same stages in all tables.
  struct UnitClass {
    std::array<int, kTables> stage = {};
    i64 units = 0, elements = 0;
  };
  /// Shares of a unit: what a host lacks, in all and per adapter of the ranks that need it; and the most that a device
  /// of the host receives, or a holder sends, inside the host.
  struct Lack {
    double of_host = 0, of_adapter = 0, inside = 0;
  };
  static Interval part_of(const Placement& placement, const Post& post, int cuts);
  /// What ranks do not share: nothing; what other pipelines have, as each gathers for its own runs; what other copies
  /// in a pipeline have, too, as each has gradients of its own.
  enum class Apart { nothing, pipelines, copies };
  static int apart_number(const Placement& placement, const Post& post, Apart apart);
  /// cuts: shares of a part, of which each rank holds one; as Placement::cuts, or 1.
  const Seats& seats(const Placement& placement, int cuts, Apart apart = Apart::nothing) const;
  std::vector<UnitClass> classes(std::span<const Seats* const> tables) const;
  double inside(double bytes, const Codings& codings) const;
  double across(double bytes, double messages, const Codings& codings) const;
  Lack lack_of(std::span<const Seats* const> tables, const std::array<int, kTables>& stages, size_t begin,
               size_t end) const;
  std::vector<double> unit_times(std::span<const Seats* const> tables, const std::vector<UnitClass>& classes,
                                 i64 element, const Codings& codings) const;
  double last_unit(std::span<const Seats* const> tables, i64 element, const Codings& codings) const;
  /// sums: of gradients, to home's further copies.
  enum class What { parameters, gradients, sums };
  double transfer(const std::optional<Placement>& previous, const Placement& next, const Home& home, What what) const;
  /// Bytes of an element that the update reads and writes; seconds in which all ranks agree on the norm.
  i64 updated_bytes() const;
  double norm_seconds() const;
  UnitSeconds of_units(const Placement& placement, int cuts, Apart apart, DType type, const Codings& codings) const;

  const UnitCosts& units_;
  int shared_by_;                // devices with one adapter
  Codings gradients_, gathers_;  // what is encoded
  // By the keys of previous, next and home, what is moved, and whether home has copies.
  using Key = decltype(std::tuple_cat(PlacementKey(), PlacementKey(), PlacementKey(), std::tuple<What, bool>()));
  mutable std::unordered_map<Key, double, TupleHash> known_;
  mutable std::map<Home, double> finish_;
  mutable std::unordered_map<PlacementKey, OfRun, TupleHash> of_run_;
  // By placement_key, cuts and what is apart.
  mutable std::unordered_map<std::tuple<std::uint64_t, std::uint64_t, int, Apart>, Seats, TupleHash> seats_;
  mutable Intervals held_, needed_;  // of one host
};

}  // namespace switchyard::planner
