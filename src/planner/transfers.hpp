// Parameters and gradients between placements: how long they take on the links.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "planner/space.hpp"
#include "planner/unit_costs.hpp"

namespace switchyard::planner {

/// Where a rank stands in a placement.
struct Post {
  int lane = 0, stage = 0, part = 0;
};
/// Nothing if the placement leaves the rank out.
std::optional<Post> post_of(const Placement& placement, int rank);

/// Every parameter is taken as an interval: part t of tp holds [t / tp, (t + 1) / tp) of each unit of its stage, and home, which is on the
/// ranks of a placement, the part's slices in order of its pipelines. A slice crosses to a host once and is passed on inside, as the
/// relay planner does it; what a host's adapters carry is spread over them evenly.
class Transfers {
 public:
  explicit Transfers(const UnitCosts& units) : units_(units) {}

  /// Parameters that `next` lacks, from the copies of `previous` (none before the first phase) and home.
  double moves(const std::optional<Placement>& previous, const Placement& next, const Placement& home) const;
  /// Gradients of `from`, each added up at home.
  double flush(const Placement& from, const Placement& home) const;
  /// Norm and update at home.
  double finish(const Placement& home) const;

 private:
  struct Interval {
    double begin = 0, end = 0;
  };
  /// Units that lie on the same stages of all placements.
  struct UnitClass {
    std::vector<int> stage;  // of each placement
    i64 units = 0, elements = 0;
  };
  std::vector<UnitClass> classes(const std::vector<const Placement*>& placements) const;
  static Interval used(const Placement& placement, const Post& post);
  static Interval at_home(const Placement& placement, const Post& post);
  static double measure(std::vector<Interval>& intervals);
  double inside(double bytes) const;
  double across(double bytes) const;
  /// A host's ranks: where they stand in the next placement, at home, and in the previous placement if there is one.
  struct HostPosts {
    std::vector<std::vector<std::optional<Post>>> of;  // [placement][device]
    std::vector<Interval> held, all;                   // of one class of units
    std::vector<double> busy, missing;
  };
  /// Adds what the host's ranks wait for units of the class. placements: in the order of posts.
  void add_class(HostPosts& host, const UnitClass& c, const std::vector<const Placement*>& placements, i64 element) const;
  double transfer(const std::optional<Placement>& previous, const Placement& next, const Placement& home, DType type) const;
  double slowest_host(const std::vector<const Placement*>& placements, i64 element) const;

  const UnitCosts& units_;
  struct Key {
    std::uint64_t previous = 0, next = 0, home = 0;  // packed placements
    DType type = DType::f32;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  mutable std::unordered_map<Key, double, Hash> known_;
  mutable std::map<Placement, double> finish_;
};

}  // namespace switchyard::planner
