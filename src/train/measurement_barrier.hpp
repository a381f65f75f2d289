// Measurements that all ranks make together.
#pragma once

#include <functional>
#include <vector>

#include "base/clock.hpp"
#include "comm/fabric.hpp"

namespace switchyard::train {

double seconds_of(const std::function<void()>& work, SecondsClock clock = wall_seconds);

/// Exchanges on a channel of all ranks. Every rank calls the same functions in the same order.
class MeasurementBarrier {
 public:
  explicit MeasurementBarrier(comm::Fabric& fabric);
  comm::Fabric& fabric() { return fabric_; }
  /// Mean, maximum and minimum over all ranks, element by element.
  std::vector<double> mean(const std::vector<double>& mine);
  std::vector<double> longest(const std::vector<double>& mine);
  std::vector<double> least(const std::vector<double>& mine);
  /// Median of several repetitions, on the rank on which it is largest, of the seconds that `timed` returns; all ranks
  /// call it at once.
  double longest_of(const std::function<double()>& timed);
  /// Seconds, by `clock`, of the fastest of several repetitions on any rank: the time without disturbance.
  double least_of(const std::function<void()>& work, SecondsClock clock = wall_seconds);
  /// The maximum of what one rank of each host measures while the others wait: the first ranks of the hosts for number
  /// 0, the next ones for 1, and so on, cyclically.
  double alone(int number, const std::function<double()>& measured);

 private:
  std::vector<std::vector<double>> everyones(const std::vector<double>& mine);
  std::vector<double> repeated(const std::function<double()>& timed);

  comm::Fabric& fabric_;
  comm::Channel everyone_;
  i64 exchanges_ = 0;
};

}  // namespace switchyard::train
