// Statistics that an operator sums inside, over ranks of its replica that have parts of a dim each.
#pragma once

#include <string>

#include "runtime/kernel_call.hpp"

namespace switchyard::runtime {

/// The ranks among which an operator's sums go (ir::StatisticSums).
class StatisticRanks {
 public:
  explicit StatisticRanks(const KernelCall& call);
  /// Whether there are others than this one.
  explicit operator bool() const { return !channel_.ranks.empty(); }
  /// Sums, or takes the maximum, in place and blocking, with the same bits on all of these ranks.
  void sum(const std::string& name, at::Tensor& statistics) const { reduce(name, statistics, false); }
  void maximum(const std::string& name, at::Tensor& statistics) const { reduce(name, statistics, true); }

 private:
  void reduce(const std::string& name, at::Tensor& statistics, bool maximum) const;
  void reduce_on_device(const std::string& name, at::Tensor& statistics, bool maximum, i64 number) const;

  const KernelCall& call_;
  comm::Channel channel_;
};

}  // namespace switchyard::runtime
