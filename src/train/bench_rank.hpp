// What the ranks of the benchmarks have in common: the plans of a model made up on the command line.
#pragma once

#include <string>
#include <vector>

#include "compiler/assemble.hpp"
#include "config/model.hpp"

namespace switchyard::train {

/// Plans of the model with its loss, differentiated, under strategies "dp,tp,pp"; home lies where the first uses the
/// parameters. UserError if a strategy doesn't fit the model and the cluster's ranks.
compiler::Plans bench_plans(const config::ModelConfig& model, const std::string& precision,
                            const std::vector<std::string>& strategies, const cluster::Cluster& cluster);

}  // namespace switchyard::train
