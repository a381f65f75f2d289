// Which ranks do the same in a step: what is replayed for one of them holds for all.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "batch/step_plan.hpp"
#include "compiler/holdings.hpp"

namespace switchyard::compiler {

/// All that the replay of a rank's memory depends on, as numbers: ranks with equal ones have equal memory at any time.
class Likeness {
 public:
  Likeness(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans) : program_(program), plan_(plan), plans_(plans) {}
  std::vector<i64> of(const Holdings& holdings);

 private:
  void add(std::initializer_list<i64> numbers) { key_.insert(key_.end(), numbers); }
  void add_holdings(const Holdings& holdings);
  void add_state(const ir::Task& task, const StateKey& state);
  const std::vector<int>& shapes_of(int strategy, int group, int stage, const CompiledStrategy& s);

  const ir::Program& program_;
  const batch::StepPlan& plan_;
  const Plans& plans_;
  int rank_ = 0;
  std::vector<i64> key_;
  std::map<std::tuple<int, int, int>, std::vector<int>> shapes_;  // strategy, group, stage -> a number for each position
};

}  // namespace switchyard::compiler
