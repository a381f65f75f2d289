// Benchmarks of planning before and between steps: layouts, switches, batches and programs.
//
//   planning_bench [--benchmark_filter=REGEX] [--benchmark_format=json]
#include <benchmark/benchmark.h>

#include "compiler/job_plans.hpp"
#include "compiler/switch_figures.hpp"
#include "models/build.hpp"

namespace {

using namespace switchyard;

ir::Graph graph_of(const config::ModelConfig& model) {
  return models::build(model, precision_from("bf16"), models::Output::loss);
}

struct SwitchCase {
  const char *model, *from, *to;
  int hosts, devices;
};

void switch_between(benchmark::State& state, const SwitchCase& c) {
  const config::ModelConfig model = config::model_preset(c.model);
  const cluster::Cluster cluster = cluster::uniform(c.hosts, c.devices);
  const config::Strategy from = config::strategy_from_spec(c.from, cluster.ranks(), model.layers);
  const config::Strategy to = config::strategy_from_spec(c.to, cluster.ranks(), model.layers);
  const ir::Graph graph = graph_of(model);
  const compiler::SwitchMaps maps = compiler::switch_maps(graph, from, to, nullptr);
  for (auto _ : state) {
    const switching::MovePlan plan =
        switching::plan_switch(maps.units, maps.from, maps.compute_copy, maps.to, cluster, switching::Planner::relay);
    benchmark::DoNotOptimize(&plan);
  }
}

void layouts_of(benchmark::State& state, const SwitchCase& c) {
  const config::ModelConfig model = config::model_preset(c.model);
  const int ranks = c.hosts * c.devices;
  const config::Strategy from = config::strategy_from_spec(c.from, ranks, model.layers);
  const config::Strategy to = config::strategy_from_spec(c.to, ranks, model.layers);
  const ir::Graph graph = graph_of(model);
  for (auto _ : state) {
    const compiler::SwitchMaps maps = compiler::switch_maps(graph, from, to, nullptr);
    benchmark::DoNotOptimize(&maps);
  }
}

// Most documents are short and a few long, as in files: 32768 / k tokens, with all k up to 997 equally often.
std::vector<i64> falling_lengths(i64 documents) {
  std::vector<i64> lengths;
  for (i64 n = 0; n < documents; ++n) lengths.push_back(32768 / (1 + n * 7919 % 997));
  return lengths;
}

// Documents divided between two buckets.
void batch_of(benchmark::State& state) {
  const std::vector<i64> lengths = falling_lengths(state.range(0));
  const std::vector<batch::BucketSpec> buckets = {{.max_length = 32768, .strategy = 0, .replicas = 2},
                                                  {.max_length = 4096, .strategy = 1, .replicas = 16}};
  for (auto _ : state) {
    const batch::StepPlan plan = batch::plan_batch(0, lengths, buckets, {1, 1e-4});
    benchmark::DoNotOptimize(&plan);
  }
}

// Assembles the program of a step with 512 documents and two strategies.
void program_of(benchmark::State& state) {
  const config::Job job = config::job_from_toml(R"(
model = {preset = "7b"}
batch = {sequences = 512, context = 32768}
run = {steps = 1, ranks = 16, precision = "bf16"}
bucket = [{max_length = 32768, strategy = "1,8,2"}, {max_length = 4096, strategy = "8,1,2"}]
)",
                                                "bench");
  const compiler::Plans plans = compiler::plans_of(job, cluster::uniform(2, 8));
  const batch::StepPlan plan = batch::plan_batch(0, falling_lengths(512), compiler::bucket_specs(job, plans),
                                                 compiler::work_model(job.model.config));
  for (auto _ : state) {
    const ir::Program program = compiler::assemble(plan, plans, {});
    benchmark::DoNotOptimize(&program);
  }
}

constexpr SwitchCase kSmall{"7b", "2,4,4", "32,1,1", 4, 8}, kLarge{"32b", "8,16,8", "128,4,2", 128, 8};
BENCHMARK_CAPTURE(layouts_of, 7b_32_ranks, kSmall)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(layouts_of, 32b_1024_ranks, kLarge)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(switch_between, 7b_32_ranks, kSmall)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(switch_between, 32b_1024_ranks, kLarge)->Unit(benchmark::kMillisecond);
BENCHMARK(batch_of)->Arg(512)->Arg(16384)->Unit(benchmark::kMillisecond);
BENCHMARK(program_of)->Unit(benchmark::kMillisecond);

}  // namespace
