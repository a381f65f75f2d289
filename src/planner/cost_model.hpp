// The planner's model of a phase: what a strategy takes for the documents of a range of lengths, and what memory.
#pragma once

#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "planner/lanes.hpp"
#include "planner/space.hpp"
#include "planner/unit_costs.hpp"

namespace switchyard::planner {

/// Documents longer than bounds[lo - 1] (lo = 0: all) and up to bounds[hi - 1]: of the ranges between neighbouring bounds lo ... hi - 1.
struct Range {
  int lo = 0, hi = 0;
  auto operator<=>(const Range&) const = default;
};

/// bounds: possible longest documents of buckets, rising. steps: lengths of the documents of steps that stand for all; times are means.
struct Workload {
  std::vector<i64> bounds;
  std::vector<std::vector<i64>> steps;
};

/// How a phase spends its time, means over ranks: compute + communication + idle is the phase.
struct PhaseParts {
  double seconds = 0, compute = 0, communication = 0, idle = 0;
};

/// Bytes of the fullest rank, but for home. At home a rank has `home` bytes besides.
struct MemoryNeed {
  i64 parameters = 0, gradients = 0, activations = 0;
  i64 total() const { return parameters + gradients + activations; }
};

class CostModel {
 public:
  /// errors  UserError if a document is longer than the last bound
  CostModel(const UnitCosts& units, Workload workload);

  /// Whether the range has documents.
  bool any(Range range) const { return total_[slot(range)].documents > 0; }
  const std::vector<i64>& bounds() const { return workload_.bounds; }
  i64 longest(Range range) const { return workload_.bounds[static_cast<size_t>(range.hi - 1)]; }

  /// Never above seconds(), from sums over the range alone. rough: without tables of the head, of recomputation and of the capacity;
  /// layers: without those of embedding and head.
  double rough_bound(const Placement& placement, Range range) const;
  double layers_bound(const Shape& shape, i64 capacity, Range range) const { return bound(shape, capacity, range, true); }
  double bound(const Shape& shape, i64 capacity, Range range) const { return bound(shape, capacity, range, false); }
  /// Closer, from the rows into which a step packs the documents.
  double rows_bound(const Shape& shape, i64 capacity, Range range) const;
  /// The documents packed as a step packs them, the schedule of every pipeline replayed; the slowest pipeline, mean over the steps.
  double seconds(const Shape& shape, i64 capacity, Range range) const { return parts(shape, capacity, range).seconds; }
  PhaseParts parts(const Shape& shape, i64 capacity, Range range) const;

  /// Of rows full to the capacity, in as many micro-batches at a time as the schedule ever keeps; gpipe: as the steps' documents make.
  MemoryNeed need(const Shape& shape, i64 capacity, Range range) const;
  /// Never above it, without packing documents.
  MemoryNeed least_need(const Shape& shape, i64 capacity, Range range) const;
  /// State of a rank at home: master weights, moments, summed gradients, and their image in the precision of computing.
  i64 home_bytes(const Placement& home) const;
  /// Never above home_bytes of any placement on the ranks.
  i64 least_home_bytes() const;

  const UnitCosts& units() const { return units_; }

 private:
  struct Sums {
    i64 documents = 0, tokens = 0, longest = 0, shortest = 0;
    double pairs = 0;
  };
  /// Stages from `first` on that are alike, and of which none is slower than `first`.
  struct StageRun {
    int first = 0, count = 0, layers = 0;
    StageKind kind = StageKind::whole;
  };
  using Lanes = std::vector<std::vector<Row>>;
  size_t slot(Range range) const { return static_cast<size_t>(range.lo * (levels_ + 1) + range.hi); }
  const std::vector<StageRun>& stages(const Placement& placement) const;
  double bound(const Shape& shape, i64 capacity, Range range, bool layers_alone) const;
  double step_bound(const Shape& shape, i64 capacity, const Sums& sums, bool layers_alone) const;
  const std::vector<Lanes>& lanes(const Placement& placement, i64 capacity, Range range) const;
  Lanes packed(const std::vector<i64>& lengths, const Placement& placement, i64 capacity, Range range) const;
  double send(int tp, bool crosses, i64 T) const;
  const std::vector<bool>& crossings(const Placement& placement) const;
  MemoryNeed need_of(const Shape& shape, i64 capacity, Range range, i64 micro_batches) const;
  /// Of a run's stages, by the tokens of a row.
  struct RunTime {
    Spent forward, backward;
    double send[2] = {0, 0};  // to the next stage on the same host, on another one
  };
  using RunTimes = std::unordered_map<i64, RunTime>;
  std::vector<RunTimes*> run_times(const Shape& shape) const;
  const RunTime& run_time(const Shape& shape, const StageRun& run, i64 T, RunTimes& known) const;
  double lane_bound(const Shape& shape, const std::vector<Row>& rows, const std::vector<RunTimes*>& known) const;
  double lane_seconds(const Shape& shape, const std::vector<Row>& rows, const std::vector<RunTimes*>& known, PhaseParts& spent) const;

  const UnitCosts& units_;
  Workload workload_;
  int levels_;
  std::vector<Sums> total_;             // by slot
  std::vector<std::vector<Sums>> sums_;  // by slot, of each step
  mutable std::map<std::pair<int, int>, std::vector<StageRun>> stages_;  // by stages and layers for the head
  mutable std::map<std::tuple<int, int, int, i64, Range>, std::vector<Lanes>> lanes_;
  mutable std::map<std::tuple<StageKind, int, int, config::Recompute>, RunTimes> run_times_;  // by kind, layers, tensor ranks, recomputation
  mutable std::map<int, Spent> rough_;
  mutable std::map<Placement, i64> home_bytes_;
  mutable std::map<Placement, std::vector<bool>> crossings_;
};

}  // namespace switchyard::planner
