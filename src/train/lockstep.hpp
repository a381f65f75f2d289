// How much of their speed ranks lose by waiting for one another.
#pragma once

#include <functional>
#include <vector>

#include "base/clock.hpp"
#include "cluster/hardware.hpp"
#include "train/measurement_barrier.hpp"
#include "train/rank.hpp"

namespace switchyard::train {

/// Stretches of computing of one length. seconds: of each without barriers; shares: in each round, the share of their
/// speed that ranks keep with a barrier after each stretch.
struct Stretches {
  double seconds = 0;
  std::vector<double> shares{};
};
/// The median share by length. It rises with length: lengths of which a longer one has a lower share get their mean.
cluster::EfficiencyCurve lockstep_curve(const std::vector<Stretches>& by_length);

/// Computes `units` of work that all take as long.
using Work = std::function<void(i64 units)>;

/// Times rounds of stretches of 1 ms to 0.3 s, in which all ranks compute with barriers and without. What the barriers
/// take by themselves is left out. Only such rounds show what is lost: where ranks share cores, or have a share of one
/// in each period, a rank that waits leaves its time to others or to its next stretch. wait: a barrier of all ranks.
/// Every rank calls it and gets the same.
std::vector<Stretches> timed_stretches(MeasurementBarrier& barrier, const Work& work, const std::function<void()>& wait,
                                       int rounds, SecondsClock clock);

/// The share of their speed that the slowest of all ranks keeps, by compute seconds between barriers; empty for one
/// rank, which waits for none.
cluster::EfficiencyCurve profile_lockstep(MeasurementBarrier& barrier, Precision precision,
                                          const RankSettings& settings, bool quick);

}  // namespace switchyard::train
