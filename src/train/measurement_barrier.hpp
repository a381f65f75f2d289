// Ranks that measure together.
#pragma once

#include <functional>
#include <vector>

#include "comm/fabric.hpp"

namespace switchyard::train {

double seconds_of(const std::function<void()>& work);

/// On a channel of all ranks. Every rank calls the same functions in the same order.
class MeasurementBarrier {
 public:
  explicit MeasurementBarrier(comm::Fabric& fabric);
  comm::Fabric& fabric() { return fabric_; }
  /// Number by number over all ranks.
  std::vector<double> mean(const std::vector<double>& mine);
  std::vector<double> longest(const std::vector<double>& mine);
  std::vector<double> least(const std::vector<double>& mine);
  /// Of a call that tells its own seconds, all ranks calling at once: the median of several on the rank that takes
  /// longest.
  double longest_of(const std::function<double()>& timed);
  /// The least of several on any rank: what it takes where nothing disturbs.
  double least_of(const std::function<void()>& work);
  /// What is measured on one rank of each host while the others wait, the most of it: on the first ranks of the hosts
  /// for number 0, on the next ones for 1, and so on, again and again.
  double alone(int number, const std::function<double()>& measured);

 private:
  std::vector<std::vector<double>> everyones(const std::vector<double>& mine);
  std::vector<double> repeated(const std::function<double()>& timed);

  comm::Fabric& fabric_;
  comm::Channel everyone_;
  i64 meetings_ = 0;
};

}  // namespace switchyard::train
