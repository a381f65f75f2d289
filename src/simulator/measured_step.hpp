// Measured times of the ranks' computing in a step, in place of what the simulator would predict.
#pragma once

#include <vector>

#include "ir/computed_time.hpp"
#include "ir/program.hpp"

namespace switchyard::simulator {

class MeasuredStep {
 public:
  /// of_rank: of every rank, in any order. Refers to the program.
  MeasuredStep(const ir::Program& program, std::vector<std::vector<ir::ComputedTime>> of_rank);

  /// Seconds that the slowest of its ranks computed a task of the program. 0 where nothing was measured.
  double slowest(const ir::Task& task) const;
  /// Seconds that instructions first .. end-1 of a run took in the slowest group of its ranks. Those of a group compute
  /// the same, so the group took their mean: by how much they differ is chance, of the machine that measured.
  double slowest(const ir::Task& run, const std::vector<std::vector<int>>& groups, int first, int end) const;

 private:
  double seconds(const ir::Task& task, int rank, int first, int end) const;

  const ir::Program& program_;
  std::vector<std::vector<ir::ComputedTime>> of_rank_;  // by task and instruction
};

}  // namespace switchyard::simulator
