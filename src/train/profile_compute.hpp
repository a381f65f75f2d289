// Operators as they take in steps of small models, all ranks side by side.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/units.hpp"
#include "cluster/hardware.hpp"
#include "train/measurement_barrier.hpp"
#include "train/rank.hpp"

namespace switchyard::train {

/// Tables by the names of operators; those of the step besides them are "adamw", "sum_of_squares", "zero", "copy",
/// "add" (rows: elements). Operators as they take where nothing disturbs; lockstep: what ranks that wait for one
/// another after so many seconds keep of that speed. matmul: of a rank's square products in between; alone_speedup: of
/// those while the other ranks wait.
struct OperatorProfile {
  std::map<std::string, cluster::OperatorTable> tables;
  cluster::EfficiencyCurve lockstep{};
  FlopsPerSecond matmul{};
  double alone_speedup = 1;
};

/// Every rank of the fabric calls it and gets the same. quick: of the smallest models only, in seconds. told: so much
/// of the work is done, 0 to 1.
OperatorProfile profile_operators(MeasurementBarrier& barrier, Precision precision, const RankSettings& settings,
                                  bool quick, const std::function<void(double share)>& told);

}  // namespace switchyard::train
