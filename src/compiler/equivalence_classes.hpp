// Which ranks do the same in a step: what is replayed for one of them holds for all.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "batch/step_plan.hpp"
#include "compiler/holdings.hpp"

namespace switchyard::compiler {

/// All that the replay of a rank's memory depends on, as numbers: ranks with equal ones have equal memory at any time.
class EquivalenceClasses {
 public:
  /// with_waits: also what a rank's tasks wait for on the rank itself.
  EquivalenceClasses(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans,
                     const BoxesByRank& boxes, bool with_waits);
  /// The first rank of each rank's class, by rank.
  std::vector<int> first_like() const;

 private:
  void number_groups();
  void add_holdings(int rank);
  void add_home(int rank, std::vector<i64>& key);
  void add_task(const ir::Task& task);
  void add_waits(const ir::Task& task);
  /// ring: of the member for which it counts.
  void add_key_rows(const ir::Task& run);
  i64 number_of(const ir::Task& task, int ring = 0);
  int ring_of(const ir::Task& send, int rank) const;
  const std::vector<i64>& states_of_members(const ir::Task& task);
  i64 state_number(const ir::Task& task, const StateKey& state, int rank);
  static void add_sends(const ir::StageCode& code, const ir::Instr& reshard, size_t pattern, int position,
                        std::vector<i64>& sizes);
  const std::vector<int>& shapes_of(int strategy, int replica, int stage, int ring, const CompiledStrategy& s);
  const batch::PhasePlan& phase(int p) const { return plan_.phases[static_cast<size_t>(p)]; }

  const ir::Program& program_;
  const batch::StepPlan& plan_;
  const Plans& plans_;
  const BoxesByRank& boxes_;
  std::vector<std::vector<i64>> keys_;         // [rank]
  std::vector<int> group_of_;                  // a parameter's group, over all units
  std::vector<i64> group_elements_;            // scratch
  std::vector<int> last_task_, tasks_before_;  // [rank]: the last task that it had, and how many
  std::vector<size_t> first_place_;            // [task]: of its ranks in places_
  std::vector<int> places_;                    // in its rank's list
  std::map<std::tuple<int, int, int, size_t>, std::vector<int>>
      shapes_;  // strategy, group, stage, pattern -> a number for each position
  std::map<std::tuple<int, int, int>, std::map<std::vector<i64>, int>>
      shape_numbers_;                         // strategy, group, stage -> of sizes
  std::map<std::vector<i64>, i64> numbers_;   // one for tasks that differ in ranks and messages only
  std::map<std::vector<i64>, i64> gathered_;  // groups of parameters
  // phase, replica, index, stage -> by rank of the run
  std::map<std::tuple<int, int, int, int>, std::vector<i64>> key_rows_;
  std::map<std::tuple<int, int, int, int>, i64> micro_batches_;  // phase, replica, index, ring rank -> their number
  std::map<std::tuple<const void*, const void*, int, int, int>, std::vector<i64>>
      states_;  // messages, their names, phase, replica, stage
};

}  // namespace switchyard::compiler
