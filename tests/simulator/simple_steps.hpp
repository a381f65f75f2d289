// Plans, batches and hardware so simple that times can be told by hand.
#pragma once

#include <string>
#include <vector>

#include "../compiler/small_models.hpp"
#include "cluster/hardware.hpp"

namespace switchyard::simulator {

inline constexpr double kEndless = 1e30;

/// 1 GFLOP/s; memory, links and launches take no time.
inline cluster::Hardware arithmetic_only(int hosts, int devices) {
  cluster::Hardware hardware;
  hardware.name = "test";
  hardware.hosts = hosts;
  hardware.devices_per_host = devices;
  for (const DType type : {DType::f32, DType::bf16}) hardware.device.rates[type] = {{1e9}, {kEndless}, {}};
  hardware.intra_host = {{0}, {kEndless}, 1, {}};
  hardware.inter_host = hardware.intra_host;
  return hardware;
}

inline compiler::Plans plans_under(const std::vector<std::string>& strategies, int hosts, int devices, int zero = 1,
                                   const compiler::CodeOptions& how = {}, const config::Compression& encoded = {}) {
  const config::ModelConfig model = compiler::small_llama();
  std::vector<config::Strategy> made;
  for (const std::string& strategy : strategies)
    made.push_back(
        config::strategy_from_spec(strategy, hosts * devices, model.layers, {.zero = zero, .compression = encoded}));
  return compiler::Plans(compiler::training_graph(model), std::move(made), 0, cluster::uniform(hosts, devices),
                         switching::Planner::relay, how);
}

/// Documents of 32 tokens, one a micro-batch, under each strategy in turn.
struct Step {
  Step(const compiler::Plans& plans, int documents_of_each) {
    plan.valid_tokens = 1;
    i64 document = 0;
    for (size_t s = 0; s < plans.strategies().size(); ++s) {
      batch::PhasePlan& phase = plan.phases.emplace_back();
      phase.strategy = static_cast<int>(s);
      phase.replica.resize(plans.strategies()[s].replicas.size());
      for (int d = 0; d < documents_of_each; ++d)
        phase.replica[static_cast<size_t>(d) % phase.replica.size()].push_back({{32}, {{{document++, 0, 32, 1}}}});
    }
    program = compiler::assemble(plan, plans, {});
  }
  batch::StepPlan plan;
  ir::Program program;
};

}  // namespace switchyard::simulator
