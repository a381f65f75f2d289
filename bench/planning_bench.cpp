// Benchmarks of planning before and between steps: layouts, switches, batches and programs.
//
//   planning_bench [--benchmark_filter=REGEX] [--benchmark_format=json]
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "batch/ring_assignment.hpp"
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

// A thousand documents of up to a million tokens, 4M in all, on the ring ranks of a replica on hosts of 8.
void ring_assignment_of(benchmark::State& state) {
  constexpr int kDocuments = 1000;
  std::vector<i64> lengths{1 << 20};
  while (lengths.size() < kDocuments) lengths.push_back(32768 / (1 + std::ssize(lengths) * 7919 % 997) * 16);
  const auto ranks = static_cast<int>(state.range(0));
  // The costs are those of 7e9 parameters, 4096 wide and with 32 layers, at 300 TFLOP/s, 400 GB/s inside hosts and
  // 50 GB/s between them.
  constexpr double flops = 3e14, bytes_per_key = 2.0 * 4096 * 2 * 32 * 3;
  const batch::Ring ring{
      .ranks = ranks,
      .ranks_per_host = 8,
      .capacity = i64{8 << 20} / ranks,
      .costs = {6 * 7e9 / flops, 12.0 * 4096 * 32 / flops, bytes_per_key / 4e11, bytes_per_key / 5e10, 1e-4}};
  for (auto _ : state) {
    const auto found = batch::assign(lengths, ring);
    if (!found) state.SkipWithError("no assignment");
    benchmark::DoNotOptimize(&found);
  }
}

struct StepCase {
  int hosts, documents;
  const char *long_documents, *short_documents;  // strategies
};

// Assembles the program of a step of 7b under two strategies, on hosts of 8 devices.
void program_of(benchmark::State& state, const StepCase& c) {
  const std::string text = fmt::format(R"(
model = {{preset = "7b"}}
batch = {{sequences = {}, context = 32768}}
run = {{steps = 1, ranks = {}, precision = "bf16"}}
bucket = [{{max_length = 32768, strategy = "{}"}}, {{max_length = 4096, strategy = "{}"}}]
)",
                                       c.documents, 8 * c.hosts, c.long_documents, c.short_documents);
  const config::Job job = config::job_from_toml(text, "bench");
  const compiler::Plans plans = compiler::plans_of(job, cluster::uniform(c.hosts, 8));
  const batch::StepPlan plan = batch::plan_batch(0, falling_lengths(c.documents), compiler::bucket_specs(job, plans),
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
BENCHMARK(ring_assignment_of)->Arg(8)->Arg(64)->Unit(benchmark::kMillisecond);
constexpr StepCase kStepOf16{2, 512, "1,8,2", "8,1,2"}, kStepOf1024{128, 4096, "128,8,1", "1024,1,1"};
BENCHMARK_CAPTURE(program_of, 16_ranks, kStepOf16)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(program_of, 1024_ranks, kStepOf1024)->Unit(benchmark::kMillisecond);

}  // namespace
