// Times of operators in steps of small models, measured on all ranks at once.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/clock.hpp"
#include "base/units.hpp"
#include "cluster/hardware.hpp"
#include "train/measurement_barrier.hpp"
#include "train/rank.hpp"

namespace switchyard::train {

/// Tables by the names of operators; other work of a step has the names "adamw", "sum_of_squares", "zero", "copy",
/// "add" (rows: elements). matmul: rate of square matrix products; alone_speedup: how much faster these are while the
/// other ranks wait. speed_change: by how much that rate rose from the slowest round of measurements to the fastest.
/// host_launch: on a device, the host's time to issue an operator.
struct OperatorProfile {
  std::map<std::string, cluster::OperatorTable> tables;
  FlopsPerSecond matmul{};
  double alone_speedup = 1, speed_change = 0;
  Seconds host_launch{};
};

/// Every rank of the fabric calls it and gets the same result. clock: of all times. head_dim: features of heads with
/// which attention is timed beside the usual 64. quick: only three models with steps of few tokens, which takes
/// seconds. Models for GPUs are wider than those for CPUs, and their steps longer. on_progress: called with the share
/// of the work that is done, 0 to 1.
OperatorProfile profile_operators(MeasurementBarrier& barrier, Precision precision, const RankSettings& settings,
                                  SecondsClock clock, i64 head_dim, bool quick,
                                  const std::function<void(double share)>& on_progress);

}  // namespace switchyard::train
