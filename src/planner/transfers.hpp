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

#include "base/hash.hpp"
#include "planner/coding.hpp"
#include "planner/space.hpp"
#include "planner/timeline.hpp"
#include "planner/unit_costs.hpp"
#include "planner/weight_parts.hpp"

namespace switchyard::planner {

/// Position of a rank in a placement.
struct Post {
  int replica = 0, stage = 0, place = 0;  // place: among the ranks of the replica's stage
};
/// Empty if the placement does not use the rank.
std::optional<Post> post_of(const Placement& placement, int rank);

/// Every parameter is a matrix, of which a stage's mesh cuts rows and columns as its layout says, and ranks that would
/// hold copies of such a part (home's, ZeRO's) hold slices of its rows, in the order of the ranks. Units are
/// transferred in order, each when its ranks are free. A slice crosses to each host that lacks it once, to one of the
/// ranks that need it, and is forwarded inside, as the relay planner does; ranks that hold it send equal shares.
class Transfers {
 public:
  /// Seconds for the embedding, for one layer and for the head.
  struct UnitSeconds {
    double embedding = 0, layer = 0, head = 0;
    /// Seconds for all units on a position of the pipeline.
    double of(StageKind kind, int layers) const;
    UnitSeconds& operator+=(const UnitSeconds& other);
  };
  explicit Transfers(const UnitCosts& units);

  /// Seconds of moving the parameters that `next` lacks, from the copies of `previous` (none before the first phase)
  /// and home.
  double moves(const std::optional<Placement>& previous, const Placement& next, const Home& home) const;
  /// Seconds of reducing the gradients of `from`, each on one rank at home.
  double reduce(const Placement& from, const Home& home) const;
  /// Times of a phase under `next`: its parameters are moved in `moves` seconds, its gradients reduced in `reduce`,
  /// some of them during the `last_backward` seconds of the work.
  PhaseTimes phase(const Placement& next, double moves, double work, double reduce, double last_backward) const;
  PhaseTimes phase(const std::optional<Placement>& previous, const Placement& next, const Home& home, double work,
                   double last_backward) const {
    return phase(next, moves(previous, next, home), work, reduce(next, home), last_backward);
  }
  /// Wherever home is and however layers are divided over stages, reducing the gradients of `from` takes no less.
  double least_reduce(const Placement& from) const;
  /// Seconds that a phase adds to a plan at least, beyond its work and least_finish(). at_home: home is on its
  /// placement.
  double beyond_phase(const Placement& placement, bool at_home) const;
  /// What a transfer takes of a device that computes beside it.
  double share() const { return share_; }
  /// Seconds that a plan of one phase takes at least, beyond the phase's work and least_finish().
  double beyond_one_phase(const Placement& placement, double last_backward) const;
  /// Seconds of what the ranks of a stage gather and reduce for one run of a unit, on the stage on which it takes
  /// longest (ZeRO-2 and 3, and replicas of the mesh; else 0), with what a rank copies and adds of its own rows, and
  /// the share of the device that this takes from computing beside it. zero: filling the gradients of a run with zeros.
  struct OfRun {
    UnitSeconds gather, reduce, zero;
    double device_share = 0;
  };
  const OfRun& of_run(const Placement& placement) const;
  /// Whatever the stage of ZeRO, from the placement's upwards, they take no less. Where only replicas of the mesh cut
  /// gradients, each copy reduces its own; further cuts share what crosses hosts, which may take less.
  OfRun least_of_run(Placement placement) const;
  /// Seconds of the end of a step: broadcast of sums to home's copies, norm and update.
  double finish(const Home& home) const;
  /// Lower bound of finish() over all homes.
  double least_finish() const;

 private:
  /// Stage of a rank (-1: none), which part of its units the rank has a slice of, and which slice. Ranks with
  /// different `apart` don't share slices.
  struct Seat {
    int stage = -1, place = 0, slice = 0, apart = 0;
    bool operator==(const Seat&) const = default;
  };
  /// Seats of a host's ranks; of each stage that they have, a number that other seats on a stage don't have (from 1),
  /// and the adapters to its ranks, a bit each; those above 64 count as one.
  struct HostSeats {
    struct OfStage {
      int stage = 0, number = 0;
      std::uint64_t adapters = 0;
    };
    std::uint64_t number = 0;  // no other seats of a host have it
    std::vector<Seat> seats;
    std::vector<OfStage> stages{};
    const OfStage* on(int stage) const;
  };
  /// The stage of a placement that has a unit, how it cuts weights, into how many slices a part is cut besides, and the
  /// seats of all ranks. from_first: with the slices of each host counted from its first one.
  struct Seats {
    std::vector<int> stage_of_unit;
    const WeightParts::Cuts* cuts = nullptr;
    int slices = 1;
    Seat first;                                       // seat of the first rank that has a stage
    std::vector<const HostSeats*> hosts, from_first;  // by host
    std::vector<std::vector<int>> hosts_of_stage;
    std::vector<int> adapters_of_stage;
    Rectangle part(const Seat& seat, size_t param) const;
  };
  /// Tables of a transfer: the next placement, home, and the previous placement if there is one.
  static constexpr size_t kTables = 3;
  using Stages = std::array<int, kTables>;
  /// Units of a kind (embedding, layer, head) that are on the same stages in all tables.
  struct UnitClass {
    Stages stage = {};
    size_t kind = 0;
    i64 units = 0, elements = 0;
  };
  /// Elements of a unit: what a host lacks, in all and per adapter of the ranks that need it; and the most that a
  /// device of the host receives, or a holder sends, inside the host.
  struct Lack {
    double of_host = 0, of_adapter = 0, inside = 0;
  };
  /// What a host lacks of a unit of each kind; adapters: of the ranks that need it.
  struct Lacks {
    int adapters = 0;
    std::array<Lack, kUnitKinds> of_kind{};
  };
  static Seat seat_of(const Placement& placement, const Post& post, int slices);
  /// What ranks do not share: nothing; what other pipelines have, as each gathers for its own runs; what other copies
  /// in a pipeline have, too, as each has gradients of its own.
  enum class Apart { nothing, pipelines, copies };
  static int apart_number(const Placement& placement, const Post& post, Apart apart);
  /// cuts: shares of a part, of which each rank holds one; as Placement::cuts, or 1.
  const Seats& seats(const Placement& placement, int cuts, Apart apart = Apart::nothing) const;
  std::vector<UnitClass> classes(std::span<const Seats* const> tables) const;
  double inside(double bytes, const Codings& codings) const;
  double across(double bytes, double messages, const Codings& codings) const;
  const HostSeats& host_seats(std::vector<Seat> seats, int slices) const;
  /// Hosts whose seats lie in the same way to each other, so that they lack as much: their number, and the seats of one
  /// of them by table.
  struct Hosts {
    int count = 0;
    std::array<const HostSeats*, kTables> seats{};
  };
  std::vector<Hosts> hosts_of(std::span<const Seats* const> tables) const;
  const ParamGroups& groups_of(std::span<const Seats* const> tables) const;
  /// stages: of the users and of the possible holders, in each table.
  const Lacks& lacks_of(std::span<const Seats* const> tables, const ParamGroups& groups, const Stages& stages,
                        const Hosts& host) const;
  Lacks new_lacks(std::span<const Seats* const> tables, const ParamGroups& groups, const Stages& stages,
                  const Hosts& host) const;
  /// Adapters of the ranks that hold something of a unit on these stages.
  int senders(std::span<const Seats* const> tables, const Stages& stages) const;
  std::vector<double> unit_times(std::span<const Seats* const> tables, const std::vector<UnitClass>& classes,
                                 const std::vector<Hosts>& hosts, i64 element, const Codings& codings) const;
  double last_unit(std::span<const Seats* const> tables, i64 element, const Codings& codings) const;
  /// sums: of gradients, to home's further copies.
  enum class What { parameters, gradients, sums };
  double transfer(const std::optional<Placement>& previous, const Placement& next, const Home& home, What what) const;
  /// Bytes of an element that the update reads and writes; seconds in which all ranks agree on the norm.
  double updated_bytes() const;
  double norm_seconds() const;
  /// Seconds of filling the accumulators of a stage with zeros, where not each run has gradients of its own.
  double zeroing(const Placement& placement) const;
  UnitSeconds of_units(const Placement& placement, int cuts, Apart apart, DType type, const Codings& codings) const;
  /// Seconds in which an operator moves so many bytes for each element that a rank has of a unit, cut into parts.
  UnitSeconds on_device(const Placement& placement, int cuts, const char* name, DType type, i64 bytes) const;

  const UnitCosts& units_;
  WeightParts parts_;
  int shared_by_;                // devices with one adapter
  double share_;                 // share of a computing device that a transfer beside it takes
  Codings gradients_, gathers_;  // what is encoded
  // By the keys of previous, next and home, what is moved, and whether home has copies.
  using Key = decltype(std::tuple_cat(PlacementKey(), PlacementKey(), PlacementKey(), std::tuple<What, bool>()));
  mutable std::unordered_map<Key, double, TupleHash> known_;
  mutable std::map<Home, double> finish_;
  mutable std::unordered_map<PlacementKey, OfRun, TupleHash> of_run_;
  mutable std::unordered_map<PlacementKey, double, TupleHash> zeroing_, least_reduce_;
  // By placement_key, cuts and what is apart.
  mutable std::unordered_map<std::tuple<std::uint64_t, std::uint64_t, int, Apart>, Seats, TupleHash> seats_;
  // By slices and seats; by slices and the seats on a stage.
  using SeatsKey = std::vector<std::uint64_t>;
  mutable std::unordered_map<SeatsKey, HostSeats, RangeHash> host_seats_;
  mutable std::unordered_map<SeatsKey, int, RangeHash> numbers_;
  // By the groups and, of each table, the number of the seats on the stage (0: none).
  mutable std::unordered_map<std::tuple<const ParamGroups*, int, int, int>, Lacks, TupleHash> lacks_;
  mutable std::array<std::vector<Rectangle>, kTables> parts_of_host_;  // distinct ones, by table
};

}  // namespace switchyard::planner
