// What the ranks of the benchmarks have in common: memory of their own, and the plans of a model made up on the command line.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/assemble.hpp"
#include "config/model.hpp"
#include "kernels/memory.hpp"

namespace switchyard::train {

/// Memory of a rank without a budget: of the thread that makes it, and of each that runs begin_stream().
class BenchMemory {
 public:
  BenchMemory();
  std::function<void()> begin_stream();
  i64 peak() const { return memory_.peak(); }

 private:
  kernels::RankMemory memory_;
  kernels::MemoryScope scope_;
};

/// Plans of the model with its loss, differentiated, under strategies "dp,tp,pp"; home lies where the first uses the parameters.
/// UserError if a strategy doesn't fit the model and the cluster's ranks.
compiler::Plans bench_plans(const config::ModelConfig& model, const std::string& precision, const std::vector<std::string>& strategies,
                            const cluster::Cluster& cluster);

}  // namespace switchyard::train
