// Weights cut by rows (depth, ZeRO-2 and 3): steps equal those of one rank, transfers carry the bytes that they must,
// and memory is as predicted.
#include <gmock/gmock.h>

#include "compiler/memory.hpp"
#include "kernels/memory.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

using testing::Each;
using testing::IsEmpty;

// 4 layers; dims that no number of ranks divides.
config::ModelConfig model_of(const std::string& family) {
  config::ModelConfig model = config::family_defaults(family == "gpt2" ? config::Family::gpt2 : config::Family::llama);
  model.layers = 4;
  model.hidden_size = 32;
  model.heads = 4;
  model.kv_heads = family == "gpt2" ? 4 : 2;
  model.head_dim = 8;
  model.ffn_size = 46;
  model.vocab_size = 41;
  model.max_positions = 64;
  model.tied_embeddings = family != "llama";
  if (family == "gpt2") {
    model.attention = config::AttentionKind::unfused;
    model.dropout = 0.1;
  }
  return model;
}

compiler::Plans plans_of(const std::string& family, const std::vector<std::string>& specs, int ranks, int hosts = 1,
                         Precision precision = kFp64, int home = 0) {
  const config::ModelConfig model = model_of(family);
  ir::Graph graph = models::build(model, precision, models::Output::loss);
  ir::differentiate(graph);
  std::vector<config::Strategy> strategies;
  for (const std::string& spec : specs) {
    strategies.push_back(config::strategy_from_spec(spec, ranks, model.layers));
    config::validate(strategies.back(), model, ranks);
  }
  return compiler::Plans(std::move(graph), std::move(strategies), home, cluster::uniform(hosts, ranks / hosts),
                         switching::Planner::relay);
}

// Replicas get unequal numbers of micro-batches.
std::vector<Documents> two_batches() { return {tiny_documents(13, 1), tiny_documents(11, 2)}; }

const TinyRun& on_one_rank(const std::string& family) {
  static std::map<std::string, TinyRun> known;
  const auto it = known.find(family);
  if (it != known.end()) return it->second;
  return known[family] = run_tiny(plans_of(family, {"1,1,1"}, 1), two_batches());
}

void expect_like_one_rank(const TinyRun& run, const std::string& family) {
  ASSERT_THAT(run.ends, Each(IsEmpty()));
  const TinyRun& one = on_one_rank(family);
  for (size_t s = 0; s < run.steps.size(); ++s) {
    EXPECT_NEAR(run.steps[s].loss, one.steps[s].loss, 1e-10 * one.steps[s].loss);
    EXPECT_NEAR(run.steps[s].norm, one.steps[s].norm, 1e-10 * one.steps[s].norm);
  }
  for (size_t p = 0; p < run.master.size(); ++p)
    EXPECT_LT(gap(run.master[p], one.master[p]), 1e-10) << "parameter " << p;
}

int ranks_of(const std::string& spec) {
  return static_cast<int>(config::ranks_of(config::read_strategy_text(spec).groups));
}

i64 count(const ir::Program& program, ir::TaskKind kind) {
  return std::ranges::count(program.tasks, kind, &ir::Task::kind);
}

class Rows : public testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(Rows, EqualOneRank) {
  const auto& [text, zero] = GetParam();
  const std::string spec = fmt::format("{},zero={}", text, zero);
  const int ranks = ranks_of(spec);
  for (const std::string family : {"llama", "gpt2"}) {  // the latter with one matrix for embedding and head
    SCOPED_TRACE(family);
    const compiler::Plans plans = plans_of(family, {spec}, ranks, ranks % 2 == 0 ? 2 : 1);
    const batch::StepPlan plan = tiny_batch(0, two_batches()[0], plans, {kLongest});
    const ir::Program program = compiler::assemble(plan, plans, {});
    ir::verify(program);
    EXPECT_GT(count(program, ir::TaskKind::reduce_scatter), 0);
    EXPECT_EQ(count(program, ir::TaskKind::gather) > 0, zero == 3 || spec.find("depth") != std::string::npos);
    expect_like_one_rank(run_tiny(plans, two_batches()), family);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Zero, Rows,
    testing::Combine(testing::Values("dp=2", "dp=3,micro_batch_sequences=1", "dp=4,recompute=full",
                                     "dp=2,tp=2,recompute=selective", "dp=2,ulysses=2",
                                     "ulysses=4,micro_batch_sequences=2", "dp=2,pp=2",
                                     "dp=2,tp=2,sequence_parallel=false", "dp=2,pp=2,schedule=gpipe",
                                     "dp=2,pp=2,schedule=interleaved", "dp=3,pp=2,schedule=zero-bubble",
                                     "dp=2,pp=2,schedule=zb-v,micro_batch_sequences=1", "pp=2,ulysses=2,schedule=zb-v",
                                     "dp=4,schedule=zero-bubble,recompute=full"),
                     testing::Values(2, 3)),
    [](const auto& p) { return "Case" + std::to_string(p.index); });

// Places on data may have unequal numbers of micro-batches, as those on depth may.
INSTANTIATE_TEST_SUITE_P(
    Depth, Rows,
    testing::Combine(testing::Values("depth=2", "depth=3,micro_batch_sequences=1",
                                     "dp=2,depth=2,micro_batch_sequences=1", "tp=2,depth=2,inner=2,recompute=selective",
                                     "dp=2,ulysses=2,depth=2", "pp=2,depth=2,schedule=gpipe,recompute=full",
                                     "dp=2,pp=2,depth=2", "pp=2,depth=2,schedule=interleaved",
                                     "pp=2,depth=3,schedule=zero-bubble",
                                     "dp=2,pp=2,depth=2,schedule=zb-v,micro_batch_sequences=1,inside=pipeline"),
                     testing::Values(0, 1, 2, 3)),
    [](const auto& p) { return "Case" + std::to_string(p.index); });

// Blocks of micro-batches share copies and gradients; the last one of each replica is mostly shorter.
INSTANTIATE_TEST_SUITE_P(
    Every, Rows,
    testing::Combine(testing::Values("dp=3,micro_batch_sequences=1,every=2", "dp=4,recompute=full,every=3",
                                     "dp=2,tp=2,recompute=selective,micro_batch_sequences=2,every=4",
                                     "ulysses=4,micro_batch_sequences=2,every=2",
                                     "dp=2,pp=2,micro_batch_sequences=1,every=3",
                                     "dp=2,pp=2,schedule=gpipe,micro_batch_sequences=2,every=100",
                                     "dp=2,pp=2,schedule=interleaved,micro_batch_sequences=1,every=2",
                                     "dp=3,pp=2,schedule=zero-bubble,micro_batch_sequences=1,every=2",
                                     "dp=2,pp=2,schedule=zb-v,micro_batch_sequences=1,every=3",
                                     "dp=2,pp=2,schedule=zeropp,micro_batch_sequences=1,every=3",
                                     "dp=3,pp=2,schedule=zeropp,micro_batch_sequences=1,every=2,recompute=full",
                                     "dp=2,pp=2,schedule=zeropp,chunks=1,micro_batch_sequences=1,every=4",
                                     "dp=4,schedule=zeropp,chunks=4,micro_batch_sequences=1,every=2",
                                     "dp=2,schedule=zeropp,micro_batch_sequences=1,recompute=selective",
                                     "dp=2,depth=2,micro_batch_sequences=1,every=2",
                                     "pp=2,depth=2,schedule=zb-v,micro_batch_sequences=1,every=4,inside=pipeline"),
                     testing::Values(3)),
    [](const auto& p) { return "Case" + std::to_string(p.index); });
INSTANTIATE_TEST_SUITE_P(
    EveryAtDepth, Rows,
    testing::Combine(testing::Values("depth=3,micro_batch_sequences=1,every=2",
                                     "pp=2,depth=2,schedule=interleaved,micro_batch_sequences=1,every=3"),
                     testing::Values(0, 1, 2)),
    [](const auto& p) { return "Case" + std::to_string(p.index); });

// For each block of micro-batches, a layer's parameters are gathered for the forward and for the backward passes, in
// the precision of computation, and its gradients are reduced once, in that of state: each of n ranks gets n - 1 of n
// parts. Replicas in step do so for the most micro-batches of any of them; depth alone leaves places on data to
// themselves.
TEST(RowTraffic, IsTwoGathersAndOneReductionOfEachLayerForEachBlockOfMicroBatches) {
  for (const char* spec :
       {"dp=4,zero=3", "dp=4,zero=3,micro_batch_sequences=1,every=2",
        "dp=2,ulysses=2,zero=3,micro_batch_sequences=1,every=4",
        "dp=4,zero=3,schedule=zero-bubble,micro_batch_sequences=1,every=3",
        "dp=2,depth=2,micro_batch_sequences=1,every=2", "dp=2,ulysses=2,zero=3,recompute=full",
        "dp=4,zero=3,schedule=zero-bubble", "dp=4,zero=2", "depth=4", "dp=2,depth=2", "dp=2,depth=2,zero=2",
        "dp=2,depth=2,zero=3", "ulysses=2,depth=2", "ulysses=2,depth=2,zero=2,schedule=zero-bubble"}) {
    SCOPED_TRACE(spec);
    const Precision precision = precision_from("bf16");
    const compiler::Plans plans = plans_of("llama", {spec}, 4, 1, precision);
    const Documents documents = tiny_documents(13, 1);
    const batch::StepPlan plan = tiny_batch(0, documents, plans, {kLongest});
    const config::Strategy& strategy = plans.strategies()[0].strategy;
    const layout::StageMesh& mesh = strategy.groups[0].stages[0].mesh;
    const layout::RowCuts rows = layout::row_cuts(mesh, strategy.zero);
    const size_t in_step = strategy.zero < 2 && mesh[layout::StageAxis::depth] > 1 ? mesh[layout::StageAxis::depth]
                                                                                   : plan.phases[0].replica.size();
    i64 runs = 0;  // those of a block for each of which every replica in step has a copy
    for (size_t first = 0; first < plan.phases[0].replica.size(); first += in_step) {
      size_t most = 0;
      for (size_t i = first; i < first + in_step; ++i) most = std::max(most, plan.phases[0].replica[i].size());
      EXPECT_GT(most, 1u);
      const size_t blocks = (most + static_cast<size_t>(strategy.every) - 1) / static_cast<size_t>(strategy.every);
      runs += static_cast<i64>(blocks * in_step);
    }
    std::map<ir::TaskKind, std::map<int, i64>> bytes;  // by unit
    for (const ir::Task& task : compiler::assemble(plan, plans, {}).tasks)
      if (task.is<ir::Gather>() || task.is<ir::ReduceScatter>()) bytes[task.kind()][task.unit()] += task.bytes;
    for (int unit = 1; unit <= 4; ++unit) {
      i64 elements = 0;
      for (const int p : plans.units()[static_cast<size_t>(unit)].tensors)
        elements += plans.graph().param(p).shape.elements();
      const auto once = [&](const std::vector<layout::StageAxis>& cuts) {
        return runs * mesh.positions() * elements / mesh.parts(cuts) * (mesh.parts(cuts) - 1);
      };
      EXPECT_EQ(bytes[ir::TaskKind::gather][unit], 2 * once(rows.stored) * size_of(precision.compute));
      EXPECT_EQ(bytes[ir::TaskKind::reduce_scatter][unit], once(rows.grad) * size_of(precision.state));
    }
  }
}

// However streams run: copies and gradients of runs come and go at places in the order of computing.
TEST(RowMemory, IsTheBoundWithoutPipelinesAndAtMostItWith) {
  kernels::install_rank_allocator();
  for (const char* spec : {"dp=4,zero=3",
                           "dp=2,tp=2,zero=3,recompute=full",
                           "dp=2,ulysses=2,zero=2",
                           "dp=4,zero=3,schedule=zero-bubble",
                           "dp=2,pp=2,zero=3,schedule=zb-v",
                           "dp=4,zero=2",
                           "depth=4",
                           "depth=4,zero=0",
                           "dp=2,depth=2,zero=0",
                           "dp=2,depth=2,zero=2",
                           "dp=2,depth=2,zero=3",
                           "tp=2,depth=2,recompute=full",
                           "ulysses=2,depth=2,schedule=zero-bubble",
                           "pp=2,depth=2,schedule=zb-v",
                           "pp=2,depth=2",
                           "dp=4,zero=3,micro_batch_sequences=1,every=2",
                           "dp=2,tp=2,zero=3,micro_batch_sequences=1,every=4,recompute=full",
                           "dp=4,zero=3,schedule=zero-bubble,micro_batch_sequences=1,every=3",
                           "dp=2,depth=2,micro_batch_sequences=1,every=2",
                           "dp=2,depth=2,micro_batch_sequences=2,every=2",
                           "dp=2,pp=2,zero=3,schedule=zb-v,micro_batch_sequences=1,every=2",
                           "dp=2,pp=2,zero=3,micro_batch_sequences=1,every=3",
                           "dp=4,zero=3,schedule=zeropp,micro_batch_sequences=1,every=2",
                           "dp=2,tp=2,zero=3,schedule=zeropp,chunks=4,micro_batch_sequences=1,every=3,recompute=full",
                           "dp=2,pp=2,zero=3,schedule=zeropp,micro_batch_sequences=1,every=3",
                           "ring=4",
                           "ring=4,zero=3",
                           "ring=4,ring_degree=uniform,recompute=full",
                           "tp=2,ring=2,recompute=selective",
                           "ring=2,ulysses=2",
                           "dp=2,ring=2,zero=2",
                           "ring=2,depth=2",
                           "pp=2,ring=2",
                           "ring=4,packing=stream,exchange=ring",
                           "ring=4,zero=3,exchange=ring",
                           "tp=2,ring=2,recompute=selective,exchange=ring",
                           "ring=2,ulysses=2,packing=stream,exchange=ring",
                           "pp=2,ring=2,exchange=ring"})
    for (const int hosts : {1, 2}) {
      SCOPED_TRACE(fmt::format("{} on {} hosts", spec, hosts));
      const compiler::Plans plans = plans_of("llama", {spec}, 4, hosts, precision_from("fp32"));
      const Documents documents = tiny_documents(13, 5);
      const batch::StepPlan plan = tiny_batch(0, documents, plans, {kLongest});
      const ir::Program program = compiler::assemble(plan, plans, {});
      const std::vector<i64> peaks = measured(plans, program, plan, documents).peaks;
      for (int rank = 0; rank < 4; ++rank) {
        const i64 bound = compiler::predict_memory(program, plan, plans, compiler::Holdings(plans, rank),
                                                   compiler::ExecutionOrder::worst)
                              .total;
        EXPECT_LE(peaks[static_cast<size_t>(rank)], bound) << "rank " << rank;
        if (plans.strategies()[0].groups[0].stages.size() == 1) {
          EXPECT_EQ(peaks[static_cast<size_t>(rank)], bound) << "rank " << rank;
        }
      }
    }
}

// What is freed is overwritten with NaN. Gradients of weights run later than that, and read none of it.
TEST(RowWeights, GetTheirGradientsWhenTheCopyOfTheirChunkIsFreed) {
  const compiler::Plans plans =
      plans_of("llama", {"dp=2,pp=2,zero=3,every=3,schedule=zeropp,micro_batch_sequences=1"}, 4);
  const batch::StepPlan plan = tiny_batch(0, two_batches()[0], plans, {kLongest});
  const ir::Program program = compiler::assemble(plan, plans, {});
  for (int rank = 0; rank < 4; ++rank) {
    std::map<compiler::UnitUse, int> copies;  // tasks to come that use it
    const auto count = [&](const ir::Task& task, int by) {
      for (const compiler::UnitUse& use : compiler::unit_uses(task, rank, plan, plans))
        if (use.of_run() && !use.gradient) copies[use] += by;
    };
    const std::vector<int>& tasks = program.of_rank[static_cast<size_t>(rank)];
    for (const int id : tasks) count(program.tasks[static_cast<size_t>(id)], 1);
    int freed = 0, weights = 0;
    for (const int id : tasks) {
      const ir::Task& task = program.tasks[static_cast<size_t>(id)];
      count(task, -1);
      if (task.kind() != ir::TaskKind::run || task.pass() != Pass::W) continue;
      const ir::StageCode& code = plans.strategies()[0].groups[0].stages[static_cast<size_t>(task.stage())];
      EXPECT_THAT(ir::units_read(code.weight, task.piece()), IsEmpty());
      ir::Task gradient = task;
      std::get<ir::Run>(gradient.what).pass = Pass::B;
      for (const int unit : ir::units_written(code.weight, task.piece())) {
        ++weights;
        if (const auto copy = copies.find(compiler::use_of_run(gradient, code, unit, false)); copy != copies.end())
          freed += copy->second == 0;
      }
    }
    EXPECT_GT(3 * freed, weights) << "rank " << rank;
  }
  expect_like_one_rank(run_tiny(plans, two_batches()), "llama");
}

class RowSwitches : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(RowSwitches, InsideAStepEqualOneRank) {
  for (int home = 0; home < static_cast<int>(GetParam().size()); ++home)
    for (const bool prefetch : {true, false}) {
      std::vector<i64> bounds = {kLongest, 14, 8};
      bounds.resize(GetParam().size());
      const compiler::Plans plans = plans_of("tied", GetParam(), 4, 2, kFp64, home);
      expect_like_one_rank(run_tiny(plans, two_batches(), {.bounds = bounds, .prefetch = prefetch}), "tied");
    }
}

INSTANTIATE_TEST_SUITE_P(Mixes, RowSwitches,
                         testing::Values(std::vector<std::string>{"dp=4,zero=3", "tp=2,pp=2", "dp=2,tp=2,zero=2"},
                                         std::vector<std::string>{"dp=2,pp=2,zero=3,schedule=zb-v", "dp=4,zero=3"},
                                         std::vector<std::string>{"ulysses=4,zero=2", "dp=2,tp=2,zero=3", "1,4,1"},
                                         std::vector<std::string>{"depth=4", "tp=2,pp=2", "dp=2,depth=2,zero=2"},
                                         std::vector<std::string>{"pp=2,depth=2,schedule=zb-v", "dp=4,zero=3"},
                                         std::vector<std::string>{"ulysses=2,depth=2,zero=3", "tp=2,depth=2", "4,1,1"},
                                         std::vector<std::string>{"dp=2,depth=2,zero=0", "depth=2,tp=2,inner=2"},
                                         std::vector<std::string>{"ring=4,zero=3", "dp=2,ring=2,zero=2", "1,4,1"},
                                         std::vector<std::string>{"dp=4,zero=3,micro_batch_sequences=1,every=2",
                                                                  "dp=2,depth=2,micro_batch_sequences=2,every=3",
                                                                  "dp=2,pp=2,zero=3,micro_batch_sequences=1,every=2"},
                                         std::vector<std::string>{
                                             "dp=2,pp=2,zero=3,micro_batch_sequences=1,every=3,schedule=zeropp",
                                             "dp=4,zero=3",
                                             "pp=2,depth=2,micro_batch_sequences=1,every=2,schedule=zeropp"}));

}  // namespace
}  // namespace switchyard::runtime
