// Memory of a rank over a step, before it runs: the tasks of a Program are replayed with what each takes and drops.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "batch/step_plan.hpp"
#include "compiler/holdings.hpp"
#include "compiler/worst_order.hpp"

namespace switchyard::compiler {

enum class MemoryClass {
  master,
  moments,
  home_gradients,
  residuals,
  compute_copy,
  parameters,
  gradients,
  activations,
  workspace
};
inline constexpr size_t kMemoryClasses = 9;
const char* name_of(MemoryClass what);

/// Rotary tables of a rank: for so many positions of heads with head_dim features. They are kept from step to step.
/// by_document: each micro-batch has its own, a row for each token, from its first rotation to its end.
struct RotaryTables {
  i64 positions = 0, head_dim = 0;
  bool by_document = false;
  /// Bytes of the cosines, or of the sines.
  i64 bytes(DType type) const { return positions * head_dim / 2 * size_of(type); }
};
/// The tables that each rank makes before its first step: for the longest document that a job takes, 0: not known.
/// They have no positions if micro-batches have tables of their own.
RotaryTables rotary_tables(const ir::Graph& graph, i64 longest_document);

/// bytes[c]: what class c takes at the rank's peak; task: the Program's task in which that is, -1 before the
/// first. kept: the most that forward passes keep for backward passes at any time.
struct MemoryPeak {
  std::array<i64, kMemoryClasses> bytes{};
  i64 total = 0, kept = 0;
  int task = -1;
  MemoryClass largest() const;
};

/// The order in which the tasks of a rank's streams pass. expected: as estimated. worst: what takes memory beside the
/// computing (receives) is there as early, and what gives it back (reductions, sends) is done as late, as the waits
/// allow; collectives, gathers and moves to the next strategy hold memory from their earliest start to their latest
/// end. Where the order is fixed, as with one strategy and no pipeline, the two are equal, and are what a run needs.
enum class ExecutionOrder { expected, worst };

/// Peak of a rank in a training step. Each receive's buffer is there from the end of what its queue did before, and of
/// the run that it waits for. Blocks are counted as the allocator rounds them, to 64 bytes.
MemoryPeak predict_memory(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans,
                          const Holdings& holdings, ExecutionOrder order = ExecutionOrder::expected);

/// The same of all ranks. Ranks that do the same with tensors of the same sizes are replayed once.
std::vector<MemoryPeak> predict_all(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans,
                                    ExecutionOrder order = ExecutionOrder::expected);

/// The same over time, in the expected order: what the rank takes before its first task (task -1), then the peak within
/// each of its tasks, in their order. The highest of them is the peak.
std::vector<MemoryPeak> memory_by_task(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans,
                                       const Holdings& holdings);

/// The rank with the highest peak in the worst order, and the peak.
std::pair<int, MemoryPeak> rank_with_highest_peak(const ir::Program& program, const batch::StepPlan& plan,
                                                  const Plans& plans);

/// Memory of an asynchronous checkpoint beside a step, by rank: a copy of the master weights, moments and error
/// feedback that it writes.
std::vector<i64> checkpoint_copies(const Plans& plans);

/// Whether programs of a step keep to a memory budget. What they have in common is made once.
class BudgetCheck {
 public:
  BudgetCheck(const batch::StepPlan& plan, const Plans& plans, i64 budget);
  ~BudgetCheck();
  /// Whether one rank keeps to the budget, in the worst order: rank 0, or the one that was the last to exceed it, as it
  /// mostly exceeds it in a similar program, too. Takes a fraction of the time of all ranks.
  bool may_fit(const ir::Program& program);
  /// The highest peak of all ranks in the worst order if it is at most `budget` bytes, otherwise nothing: the first
  /// rank that is known to exceed the budget answers for all.
  std::optional<MemoryPeak> peak_within(const ir::Program& program);
  /// After either has found that a program that prefetches `units` exceeds the budget: the largest of units / 2,
  /// units / 4, ... with which that rank may keep to it; 0 if there is none, whether it fits or not.
  int fewer_units(int units) const;

 private:
  struct Common;
  MemoryPeak peak_of(const ir::Program& program, const Arrivals& arrivals, int rank);
  const batch::StepPlan& plan_;
  const Plans& plans_;
  i64 budget_;
  std::unique_ptr<Common> common_;
  int suspect_ = 0;
  std::vector<i64> phase_peaks_;  // bytes of the rank that was looked at last, by the phase whose tasks ran
};

/// The program of a step, or of an evaluation if the graph has no backward pass, that prefetches as many units as
/// `fits`, asked of one program after the other, allows; without prefetch if none fits. prefetch: whether to try any.
/// first: the first of them, if it is known.
ir::Program assemble_within(const batch::StepPlan& plan, const Plans& plans, bool prefetch,
                            const std::function<bool(const ir::Program&)>& fits,
                            std::optional<ir::Program> first = std::nullopt);
/// The first of them.
ir::Program assemble_first(const batch::StepPlan& plan, const Plans& plans, bool prefetch);

/// "386.1 MiB: activations 201.5 MiB, gradients ..." - classes from the largest to the smallest.
std::string to_string(const MemoryPeak& peak);

}  // namespace switchyard::compiler
