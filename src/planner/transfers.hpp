// Parameters and gradients between placements: how long they take on the links.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "planner/space.hpp"
#include "planner/unit_costs.hpp"

namespace switchyard::planner {

/// Where a rank stands in a placement.
struct Post {
  int replica = 0, stage = 0, part = 0;
};
/// Nothing if the placement leaves the rank out.
std::optional<Post> post_of(const Placement& placement, int rank);

/// Every parameter is taken as an interval: part t of tp holds [t / tp, (t + 1) / tp) of each unit of its stage, and
/// home's ranks the part's slices in order of its pipelines, or copies of it. Units go one after the other, as their
/// ranks take them. A slice crosses to each host that lacks it once, to one of the ranks that need it, and is passed on
/// inside, as the relay planner does it; those that have it share the sending evenly.
class Transfers {
 public:
  explicit Transfers(const UnitCosts& units)
      : units_(units), shared_by_(units.hardware().inter_host ? units.hardware().inter_host->shared_by : 1) {}

  /// Parameters that `next` lacks, from the copies of `previous` (none before the first phase) and home.
  double moves(const std::optional<Placement>& previous, const Placement& next, const Home& home) const;
  /// Gradients of `from`, each added up on one rank at home.
  double reduce(const Placement& from, const Home& home) const;
  /// At home sums come to all copies; norm and update.
  double finish(const Home& home) const;

 private:
  struct Interval {
    double begin = 0, end = 0;
  };
  /// Which stage of a placement has a unit, and which stage and what of its units a rank has. Stage -1: none.
  struct Seat {
    int stage = -1;
    Interval part;
  };
  struct Seats {
    std::vector<int> stage_of_unit;
    std::vector<Seat> of_rank;
  };
  /// Tables of a transfer: users of the next placement, home, and the previous placement if there is one.
  static constexpr size_t kTables = 3;
  /// Units that lie on the same stages in all tables.
  struct UnitClass {
    std::array<int, kTables> stage = {};
    i64 units = 0, elements = 0;
  };
  /// Shares of a unit: what a host lacks, by adapters of those that need it; and what a device of it takes, or one that
  /// has something sends, inside the host.
  struct Lack {
    double of_host = 0, of_adapter = 0, inside = 0;
  };
  static Interval part_of(const Home& home, const Post& post);
  static double measure(std::vector<Interval>& intervals);
  const Seats& seats(const Home& home) const;
  std::vector<UnitClass> classes(std::span<const Seats* const> tables) const;
  double inside(double bytes) const;
  double across(double bytes) const;
  Lack lack_of(std::span<const Seats* const> tables, const std::array<int, kTables>& stages, size_t begin,
               size_t end) const;
  std::vector<double> unit_times(std::span<const Seats* const> tables, const std::vector<UnitClass>& classes,
                                 i64 element) const;
  double last_unit(std::span<const Seats* const> tables, i64 element) const;
  double transfer(const std::optional<Placement>& previous, const Placement& next, const Home& home, DType type) const;

  const UnitCosts& units_;
  int shared_by_;  // devices with one adapter
  struct Key {
    std::uint64_t previous = 0, next = 0, home = 0;  // packed placements
    DType type = DType::f32;
    bool copies = false;  // at home
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  mutable std::unordered_map<Key, double, Hash> known_;
  mutable std::map<Home, double> finish_;
  mutable std::map<std::pair<std::uint64_t, bool>, Seats>
      seats_;                                 // by packed placement, and whether all have the whole part
  mutable std::vector<Interval> held_, all_;  // of one host
};

}  // namespace switchyard::planner
