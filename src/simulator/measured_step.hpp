// What the ranks of a step computed, as it was measured: in place of what the simulator would predict.
#pragma once

#include <vector>

#include "ir/computed_time.hpp"
#include "ir/program.hpp"

namespace switchyard::simulator {

class MeasuredStep {
 public:
  /// of_rank: of every rank, in any order. Refers to the program.
  MeasuredStep(const ir::Program& program, std::vector<std::vector<ir::ComputedTime>> of_rank);

  /// Seconds that the slowest of its ranks computed a task of the program: all of it, or of a run instructions first ..
  /// end-1. 0 where nothing was measured.
  double slowest(const ir::Task& task) const;
  double slowest(const ir::Task& task, int first, int end) const;

 private:
  const ir::Program& program_;
  std::vector<std::vector<ir::ComputedTime>> of_rank_;  // by task and instruction
};

}  // namespace switchyard::simulator
