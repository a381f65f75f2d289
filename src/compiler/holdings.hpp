// A rank's part of the parameters: at home, as a strategy uses them, and as their gradients accumulate. The store
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
  std::vector<Table> used, stored, made, grad;    // [strategy]
  Table home, owned;
};
BoxesByRank boxes_by_rank(const Plans& plans);

class Holdings {
 public:
  Holdings(const Plans& plans, int rank);
  /// The same, faster where there are many ranks.
  Holdings(const Plans& plans, const BoxesByRank& boxes, int rank);

  int rank() const { return rank_; }
  /// The rank's boxes of a parameter under a strategy, as Placed names them; nullptr if it has none. They live as long
  /// as the plans.
  const layout::Box* used(int strategy, int param) const { return at(used_, strategy, param); }
  const layout::Box* stored(int strategy, int param) const { return at(stored_, strategy, param); }
  const layout::Box* made(int strategy, int param) const { return at(made_, strategy, param); }
  const layout::Box* grad(int strategy, int param) const { return at(grad_, strategy, param); }
  const std::vector<const layout::Box*>& home(int param) const { return home_[static_cast<size_t>(param)]; }
  /// State that home has of each element: for the optimizer its master weight, moments and gradient, unless the plans'
  /// graph has no backward pass; a copy to compute with, unless the master weight is one.
  bool has_optimizer() const { return has_optimizer_; }
  bool has_compute_copy() const { return has_compute_copy_; }
  /// Error feedback of the rank's gradients.
  const std::vector<Residual>& residuals() const { return plans_.residuals()[static_cast<size_t>(rank_)]; }
  /// The part of the rank's home that this rank counts (global norm, saving): each element has one owner.
  const std::vector<const layout::Box*>& owned(int param) const { return owned_[static_cast<size_t>(param)]; }

  /// All parameters of a unit in memory order, members of one group together.
  const std::vector<std::vector<int>>& groups(int unit) const { return groups_[static_cast<size_t>(unit)]; }
  /// The groups that the rank stores under `strategy`, while the parameters of `previous` (-1: none) still exist.
  /// Members of a group share their source.
  std::vector<WorkingGroup> working(int strategy, int previous, int unit) const;

  /// Elements of home's flat tensors, each group padded to kGroupAlignment.
  i64 home_elements(int unit) const;
  /// Elements for which a unit's working parameters need memory of their own.
  i64 working_elements(int strategy, int previous, int unit) const;
  /// Elements of a group's gradient accumulators; of the gradients that a run makes of it; of its copy for a run.
  i64 gradient_elements(int strategy, const std::vector<int>& group) const { return sum(grad_, strategy, group); }
  i64 made_elements(int strategy, const std::vector<int>& group) const { return sum(made_, strategy, group); }
  i64 used_elements(int strategy, const std::vector<int>& group) const { return sum(used_, strategy, group); }
  const std::vector<int>& group_of(int param) const;

 private:
  using Boxes = std::vector<std::vector<const layout::Box*>>;
  static const layout::Box* at(const Boxes& boxes, int strategy, int param) {
    return boxes[static_cast<size_t>(strategy)][static_cast<size_t>(param)];
  }
  static i64 sum(const Boxes& boxes, int strategy, const std::vector<int>& group);

  const Plans& plans_;
  int rank_;
  bool has_optimizer_, has_compute_copy_;
  Boxes used_, stored_, made_, grad_;                  // [strategy][param]
  Boxes home_, owned_;                                 // [param]
  std::vector<std::vector<std::vector<int>>> groups_;  // [unit]
  std::vector<size_t> group_of_;                       // [parameter]
};

/// Elements of a unit's working parameters that each rank copies from boxes that it holds, at home or of the previous
/// strategy (-1: none), and that differ from the boxes it needs. The rest are views or come with moves.
std::map<int, i64> copied_elements(const Plans& plans, int strategy, int previous, int unit);

/// Groups start on their own cache lines.
inline constexpr i64 kGroupAlignment = 16;  // elements
inline i64 aligned(i64 elements) { return (elements + kGroupAlignment - 1) / kGroupAlignment * kGroupAlignment; }

/// The tensors of a micro-batch on a rank, at one position of the pipeline.
struct StateKey {
  int phase = 0, replica = 0, micro_batch = 0, stage = 0;
  auto operator<=>(const StateKey&) const = default;
};
/// The states that a run or send uses on the rank: a send uses those at its source, its target, or both. A state ends
/// when the last task that uses it is done.
std::vector<StateKey> states_of(const ir::Task& task, int rank);

/// A task's use of a unit in a phase: of its working parameters, or of its gradient accumulators; with a stage, of what
/// the runs of a block of micro-batches have of their own: the copy that they read (depth, ZeRO-3), the gradients that
/// they make (depth, ZeRO-2, 3). micro_batch: the block's first one.
struct UnitUse {
  int phase = 0, unit = 0;
  bool gradient = false;
  int stage = -1, micro_batch = -1;
  Pass pass = Pass::F;
  bool of_run() const { return stage >= 0; }
  auto operator<=>(const UnitUse&) const = default;
};
/// The use of a unit that a task's run, gather or reduction shares with those of the same stage, pass and block of
/// micro-batches. code: of the task's stage. Gathers and reductions have the pass and micro-batch of the use
/// themselves.
UnitUse use_of_run(const ir::Task& task, const ir::StageCode& code, int unit, bool gradient);
UnitUse use_of_transfer(const ir::Task& task);
/// The units that a task uses on a rank. Their memory is freed when the last task that uses it is done.
std::vector<UnitUse> unit_uses(const ir::Task& task, int rank, const batch::StepPlan& plan, const Plans& plans);
/// The units that a compute task uses until it starts: gradients of runs, of which it awaits the reductions, and what
/// the gathers that it awaits read. So their memory is freed at a place in the order of computing, however late these
/// end.
std::vector<UnitUse> uses_until_start(const ir::Task& task, int rank, const ir::Program& program);

/// The places at which a rank takes memory for the copies that its runs read: after the compute task that their gathers
/// wait for last (kStart: at the step's start) -> a gather of each. Copies that no run of the rank reads are not among
/// them: they lie there while they are gathered.
inline constexpr int kStart = -1;
std::multimap<int, int> rooms_of(const ir::Program& program, int rank, const batch::StepPlan& plan, const Plans& plans);
/// The parameters of the gather's unit that its stage uses.
std::vector<int> params_of(const ir::Task& gather, const batch::StepPlan& plan, const Plans& plans);

}  // namespace switchyard::compiler
