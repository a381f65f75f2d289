// What it costs the host to give a stage's instructions to its device: a model so small that its kernels take little,
// on one rank of a CPU. items_per_second counts instructions.
//
//   issue_bench [--benchmark_filter=REGEX]
#include <benchmark/benchmark.h>

#include "ir/autodiff.hpp"
#include "kernels/threads.hpp"
#include "models/build.hpp"
#include "runtime/executor.hpp"
#include "runtime/feeds.hpp"

namespace {

using namespace switchyard;

config::ModelConfig small_model() {
  config::ModelConfig model = config::family_defaults(config::Family::llama);
  model.layers = 8;
  model.hidden_size = 16;
  model.heads = 2;
  model.kv_heads = 2;
  model.head_dim = 8;
  model.ffn_size = 16;
  model.vocab_size = 16;
  model.max_positions = 64;
  model.tied_embeddings = false;
  return model;
}

void run_of_a_stage(benchmark::State& state) {
  kernels::set_up_compute_thread(1);
  ir::Graph graph = models::build(small_model(), precision_from("fp32"), models::Output::loss);
  ir::differentiate(graph);
  const compiler::Plans plans(std::move(graph), {config::strategy_from_spec("1,1,1", 1, small_model().layers)}, 0,
                              cluster::uniform(1, 1), switching::Planner::relay);
  runtime::Store store(plans, 0, at::kCPU);
  const runtime::PhaseKey phase{0, 0};
  for (int unit = 0; unit < static_cast<int>(plans.units().size()); ++unit) store.working.allocate(phase, {}, unit);
  const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
  const runtime::SegmentRunner runner(plans.graph(), stage, 0, DType::f32, at::kCPU);
  runtime::RopeTables rope(10000, {});
  runtime::MicroBatchState micro_batch;
  micro_batch.feeds = runtime::feeds_of({{4}, {{{0, 0, 4, 1}}}}, {{1, 2, 3, 4}}, {}, 3, {.state = DType::f32});
  const runtime::RunHooks hooks{.await = [](int) {}, .release = [](int) {}};
  for (auto _ : state) {
    runner.make_room(micro_batch);
    for (const ir::Segment* segment : {&stage.forward, &stage.backward})
      runner.run(*segment, ir::kWhole, micro_batch, store.working, {phase}, {}, rope, hooks);
  }
  state.SetItemsProcessed(state.iterations() *
                          static_cast<int64_t>(stage.forward.code.size() + stage.backward.code.size()));
}
BENCHMARK(run_of_a_stage)->Unit(benchmark::kMicrosecond);

}  // namespace
