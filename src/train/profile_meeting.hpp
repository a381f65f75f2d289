// Ranks that measure together.
#pragma once

#include <functional>
#include <vector>

#include "comm/fabric.hpp"

namespace switchyard::train {

/// On a channel of all ranks. Every rank calls the same functions in the same order.
class Meeting {
 public:
  explicit Meeting(comm::Fabric& fabric);
  comm::Fabric& fabric() { return fabric_; }
  /// Number by number over all ranks.
  std::vector<double> mean(const std::vector<double>& mine);
  std::vector<double> longest(const std::vector<double>& mine);
  /// Seconds of a call, all ranks calling at once: the lower quartile of several on the rank that takes longest.
  double longest_of(const std::function<void()>& work);

 private:
  std::vector<std::vector<double>> everyones(const std::vector<double>& mine);
  double usual(const std::function<void()>& work);

  comm::Fabric& fabric_;
  comm::Channel everyone_;
  i64 meetings_ = 0;
};

}  // namespace switchyard::train
