// Collectives of groups that a fabric serves, in place of messages: which of them a job has, and where its ranks use
// them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/fabric.hpp"
#include "compiler/unit_collectives.hpp"
#include "runtime/kernel_call.hpp"

namespace switchyard::runtime {

/// Communicators for collectives that a rank has at most.
inline constexpr int kMostGroups = 16;

/// The groups with collectives on a job's channels, sums among them or not; at most kMostGroups for each rank, those
/// that are used most first: in runs, for runs, for gradients, for switches. Where one group of a collective finds no
/// room, all others of it are messages, too.
std::vector<comm::Channel> collective_groups(const compiler::Plans& plans, bool with_sums);

/// A stretch of an exchange that a fabric serves, as a rank takes part in it. ranks: the group's, global.
struct ServedStretch {
  const layout::Stretch* stretch = nullptr;
  const layout::GroupCollective* group = nullptr;
  std::vector<int> ranks{};
  size_t place = 0;
};

/// The stretches that the fabric serves in the reshards of a stage, for each exchange in the order of
/// Exchange::stretches. ranks: the stage's, by position; pattern: how they lie on hosts.
ServedStretches served_stretches(const ir::StageCode& stage, size_t pattern, const std::vector<int>& ranks,
                                 int position, const comm::Fabric& fabric);

/// The collectives of units' transfers that a fabric serves; each is found once. Thread-safe.
class ServedTransfers {
 public:
  explicit ServedTransfers(const comm::Fabric& fabric) : fabric_(fabric) {}
  /// The served collectives of the transfer that a task belongs to; none where its messages may be encoded.
  const compiler::UnitCollectives& of(const ir::Task& task, const batch::StepPlan& plan, const compiler::Plans& plans);

 private:
  const comm::Fabric& fabric_;
  std::mutex mutex_;
  std::map<std::pair<const compiler::Plans*, compiler::UnitTransfer>, compiler::UnitCollectives> known_;
};

}  // namespace switchyard::runtime
