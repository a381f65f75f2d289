// What one rank holds of the parameters: at home, as a strategy uses them, and as their gradients accumulate. The store
// allocates by it, the memory prediction counts by it.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "compiler/assemble.hpp"

namespace switchyard::compiler {

/// Parameters of a unit that lie next to each other, and where they are while a strategy runs.
struct WorkingGroup {
  /// home: views of home's compute copy; previous: tensors of the strategy that ran before; own: memory of the working
  /// parameters.
  enum class Source { home, previous, own } source = Source::own;
  std::vector<int> params;
  i64 elements = 0;
};

/// The boxes of all ranks, found in one pass over the maps. Refers to the plans.
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
  /// What of the rank's home no other rank counts.
  const std::vector<const layout::Box*>& owned(int param) const { return owned_[static_cast<size_t>(param)]; }

  /// All parameters of a unit, those of one group together: the order in memory.
  const std::vector<std::vector<int>>& groups(int unit) const { return groups_[static_cast<size_t>(unit)]; }
  /// Those that the rank uses under `strategy`, with `previous` (-1: none) still there. Members of a group share their
  /// source.
  std::vector<WorkingGroup> working(int strategy, int previous, int unit) const;

  /// Elements of home's flat tensors, each group padded to kGroupAlignment.
  i64 home_elements(int unit) const;
  /// Elements that working parameters has of its own.
  i64 working_elements(int strategy, int previous, int unit) const;
  /// Of a group's accumulators.
  i64 gradient_elements(int strategy, const std::vector<int>& group) const;
  const std::vector<int>& group_of(int param) const;

 private:
  const Plans& plans_;
  int rank_;
  std::vector<std::vector<const layout::Box*>> used_, grad_;   // [strategy][param]
  std::vector<std::vector<const layout::Box*>> home_, owned_;  // [param]
  std::vector<std::vector<std::vector<int>>> groups_;          // [unit]
};

/// What the working parameters of a unit take over from what their own ranks hold, of other boxes than home's and the
/// previous strategy's (-1: none): elements that each rank copies. The rest are views or come with moves.
std::map<int, i64> copied_elements(const Plans& plans, int strategy, int previous, int unit);

/// Groups start on their own cache lines.
inline constexpr i64 kGroupAlignment = 16;  // elements
inline i64 aligned(i64 elements) { return (elements + kGroupAlignment - 1) / kGroupAlignment * kGroupAlignment; }

/// The tensors of a micro-batch on a rank, at one position of the pipeline.
struct StateKey {
  int phase = 0, replica = 0, micro_batch = 0, stage = 0;
  auto operator<=>(const StateKey&) const = default;
};
/// Those that a run or send works on at the rank: a send at its source, its target, or both. When the last task that
/// works on a state is done, it ends.
std::vector<StateKey> states_of(const ir::Task& task, int rank);

/// A task's need of a unit in a phase: its working parameters of parameters, or its gradient accumulators.
struct UnitUse {
  int phase = 0, unit = 0;
  bool gradient = false;
  auto operator<=>(const UnitUse&) const = default;
};
/// What a task needs on a rank. When the last task that needs working parameters or accumulator is done, its memory is
/// free.
std::vector<UnitUse> unit_uses(const ir::Task& task, int rank, const batch::StepPlan& plan, const Plans& plans);

}  // namespace switchyard::compiler
