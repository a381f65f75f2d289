// Small planned and simulated steps for the report's tests.
#pragma once

#include <string>
#include <vector>

#include "../simulator/simple_steps.hpp"
#include "config/job.hpp"
#include "report/runs.hpp"

namespace switchyard::report {

/// A job of the small model with a bucket of 64 tokens for the first strategy, 32 for the second, and so on.
inline config::Job job_of(const std::vector<std::string>& strategies, int ranks, int zero = 1) {
  config::Job job;
  job.model.config = compiler::small_llama();
  job.batch.sequences = 4;
  job.run.ranks = ranks;
  job.run.precision = "fp32";
  for (size_t s = 0; s < strategies.size(); ++s)
    job.buckets.push_back(
        {.max_length = i64{64} >> s,
         .degrees = config::read_strategy_text(strategies[s]).groups,
         .strategy = config::strategy_from_spec(strategies[s], ranks, job.model.config.layers, {.zero = zero})});
  return job;
}

/// Links take 1 us and 1 GB/s, arithmetic 1 GFLOP/s.
inline cluster::Hardware with_links(int hosts, int devices) {
  cluster::Hardware hardware = simulator::arithmetic_only(hosts, devices);
  hardware.intra_host = {{1e-6}, {1e9}, 1, {}};
  hardware.inter_host = hardware.intra_host;
  return hardware;
}

struct SimulatedStep {
  SimulatedStep(const std::vector<std::string>& strategies, int hosts, int devices, std::vector<i64> lengths_in,
                int zero = 1)
      : job(job_of(strategies, hosts * devices, zero)),
        hardware(with_links(hosts, devices)),
        plans(compiler::plans_of(job, hardware.placement())),
        lengths(std::move(lengths_in)),
        plan(batch::plan_batch(0, lengths, compiler::bucket_specs(job, plans), compiler::work_model(job.model.config))),
        program(compiler::assemble(plan, plans, {})),
        simulation(simulator::simulate(program, plan, plans, hardware)) {}
  PlannedView view() const { return {&job, &plans, &plan, &program, &lengths, &simulation, &hardware}; }

  config::Job job;
  cluster::Hardware hardware;
  compiler::Plans plans;
  std::vector<i64> lengths;
  batch::StepPlan plan;
  ir::Program program;
  simulator::Simulation simulation;
};

}  // namespace switchyard::report
