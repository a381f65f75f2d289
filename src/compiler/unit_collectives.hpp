// Which parameters a transfer of a unit gathers or reduces by collectives of groups, in place of its messages.
#pragma once

#include <compare>
#include <map>
#include <vector>

#include "compiler/assemble.hpp"
#include "layout/group_collectives.hpp"

namespace switchyard::compiler {

/// A transfer of a unit, in all its rounds: what its tasks in all steps have in common. before: strategy of the phase
/// before, of moves. strategy: -1 for broadcasts. group, part (of replicas that go in step), stage: of gathers and
/// reduce-scatters.
struct UnitTransfer {
  ir::TaskKind kind = ir::TaskKind::move;
  int unit = 0, before = -1, strategy = -1, group = -1, part = -1, stage = -1;
  auto operator<=>(const UnitTransfer&) const = default;
};

/// The transfer of which a task is a round, or a part of one.
UnitTransfer unit_transfer_of(const ir::Task& task, const batch::StepPlan& plan, const Plans& plans);
/// The transfers that steps may have, one for each kind of messages: layers on the same ranks differ in names only.
std::vector<UnitTransfer> unit_transfers(const Plans& plans);

/// Groups by parameter: their collectives (layout::group_collectives) are all messages of the parameter, of all rounds.
/// round: the one whose tasks run the collectives: the first one, or the last one of sums; each group is within one of
/// its tasks.
struct UnitCollectives {
  int round = 0;
  std::map<int, std::vector<layout::GroupCollective>> of_param{};
};
UnitCollectives collectives_of(const UnitTransfer& transfer, const Plans& plans);

}  // namespace switchyard::compiler
