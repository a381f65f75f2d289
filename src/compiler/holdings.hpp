// What one rank holds of the parameters: at home, as a strategy uses them, and as their gradients accumulate. The store
// allocates by it, and the memory prediction counts by it.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "compiler/assemble.hpp"

namespace switchyard::compiler {

/// Parameters of a unit that are adjacent in memory, and where they are while a strategy runs.
struct WorkingGroup {
  /// home: views of home's compute copy; previous: tensors of the strategy that ran before; own: memory of the working
  /// parameters.
  enum class Source { home, previous, own } source = Source::own;
  std::vector<int> params;
  i64 elements = 0;
};

/// The boxes of all ranks, found in one pass over the maps. Keeps references to the plans, which must outlive it.
struct BoxesByRank {
  struct Entry {
    int param = 0;
    const layout::Box* box = nullptr;
  };
  using Table = std::vector<std::vector<Entry>>;  // [rank]
  std::vector<Table> used, grad;                  // [strategy]
  Table home, owned;
};
BoxesByRank boxes_by_rank(const Plans& plans);

class Holdings {
 public:
  Holdings(const Plans& plans, int rank);
  /// The same, faster where there are many ranks.
  Holdings(const Plans& plans, const BoxesByRank& boxes, int rank);

  int rank() const { return rank_; }
  /// The rank's box of a parameter under a strategy; nullptr if it has none. It lives as long as the plans.
  const layout::Box* used(int strategy, int param) const {
    return used_[static_cast<size_t>(strategy)][static_cast<size_t>(param)];
  }
  const layout::Box* grad(int strategy, int param) const {
    return grad_[static_cast<size_t>(strategy)][static_cast<size_t>(param)];
  }
  const std::vector<const layout::Box*>& home(int param) const { return home_[static_cast<size_t>(param)]; }
  /// The part of the rank's home that this rank counts (global norm, saving): each element has one owner.
  const std::vector<const layout::Box*>& owned(int param) const { return owned_[static_cast<size_t>(param)]; }

  /// All parameters of a unit in memory order, members of one group together.
  const std::vector<std::vector<int>>& groups(int unit) const { return groups_[static_cast<size_t>(unit)]; }
  /// The groups that the rank uses under `strategy`, while the parameters of `previous` (-1: none) still exist. Members
  /// of a group share their source.
  std::vector<WorkingGroup> working(int strategy, int previous, int unit) const;

  /// Elements of home's flat tensors, each group padded to kGroupAlignment.
  i64 home_elements(int unit) const;
  /// Elements for which a unit's working parameters need memory of their own.
  i64 working_elements(int strategy, int previous, int unit) const;
  /// Elements of a group's gradient accumulators.
  i64 gradient_elements(int strategy, const std::vector<int>& group) const;
  const std::vector<int>& group_of(int param) const;

 private:
  const Plans& plans_;
  int rank_;
  std::vector<std::vector<const layout::Box*>> used_, grad_;   // [strategy][param]
  std::vector<std::vector<const layout::Box*>> home_, owned_;  // [param]
  std::vector<std::vector<std::vector<int>>> groups_;          // [unit]
};

/// Elements of a unit's working parameters that each rank copies from boxes that it holds, at home or of the previous
/// strategy (-1: none), and that differ from the boxes it needs. The rest are views or come with moves.
std::map<int, i64> copied_elements(const Plans& plans, int strategy, int previous, int unit);

/// Groups start on their own cache lines.
inline constexpr i64 kGroupAlignment = 16;  // elements
inline i64 aligned(i64 elements) { return (elements + kGroupAlignment - 1) / kGroupAlignment * kGroupAlignment; }

/// Whether a message of the task comes from the rank, goes to it.
bool sends(const ir::Task& task, int rank);
bool receives(const ir::Task& task, int rank);

/// The tensors of a micro-batch on a rank, at one position of the pipeline.
struct StateKey {
  int phase = 0, replica = 0, micro_batch = 0, stage = 0;
  auto operator<=>(const StateKey&) const = default;
};
/// The states that a run or send uses on the rank: a send uses those at its source, its target, or both. A state ends
/// when the last task that uses it is done.
std::vector<StateKey> states_of(const ir::Task& task, int rank);

/// A task's use of a unit in a phase: of its working parameters, or of its gradient accumulators.
struct UnitUse {
  int phase = 0, unit = 0;
  bool gradient = false;
  auto operator<=>(const UnitUse&) const = default;
};
/// What a task uses on a rank. The memory of working parameters or accumulators is freed when the last task that uses
/// them is done.
std::vector<UnitUse> unit_uses(const ir::Task& task, int rank, const batch::StepPlan& plan, const Plans& plans);

}  // namespace switchyard::compiler
