// Common parts of the benchmarks' ranks: the plans of a model given on the command line.
#pragma once

#include <string>
#include <vector>

#include "compiler/assemble.hpp"
#include "config/job.hpp"
#include "config/model.hpp"

namespace switchyard::train {

/// Plans of the model with its loss and gradients, under strategies "dp,tp,pp"; home is where the first strategy uses
/// the parameters. Code is for that type of device. UserError if a strategy doesn't fit the model and the cluster's
/// ranks.
compiler::Plans bench_plans(const config::ModelConfig& model, const std::string& precision,
                            const std::vector<std::string>& strategies, const cluster::Cluster& cluster,
                            cluster::DeviceType device = cluster::DeviceType::cpu);

}  // namespace switchyard::train
