// Evaluations: a store without an optimizer holds the parameters in the precision of computation, gives the same losses
// as one with it, and a step takes as much memory as predicted.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/allocation.hpp"
#include "compiler/memory.hpp"
#include "kernels/memory.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

constexpr const char* kStrategies[] = {
    "dp=4,zero=0",
    "dp=4",
    "dp=4,zero=2",
    "dp=4,zero=3",
    "tp=4",
    "tp=4,inner=2",
    "dp=2,tp=2,sequence_parallel=false",
    "ulysses=4",
    "dp=2,ulysses=2,zero=3",
    "ring=4",
    "ring=4,zero=3,exchange=ring",
    "depth=4",
    "depth=2,tp=2",
    "ring=2,depth=2",
    "dp=2,pp=2",
    "dp=2,pp=2,zero=3",
    "tp=2,pp=2,schedule=interleaved",
    "pp=2,ring=2",
    "depth=2,pp=2,schedule=zero-bubble",
};

compiler::Plans plans_of(const std::vector<std::string>& specs, bool trained, int hosts, Precision precision,
                         const config::StrategySettings& settings = {}) {
  config::ModelConfig model = tiny_llama();
  model.layers = 4;
  std::vector<config::Strategy> strategies;
  for (const std::string& spec : specs) {
    strategies.push_back(config::strategy_from_spec(spec, 4, model.layers, settings));
    config::validate(strategies.back(), model, 4);
  }
  ir::Graph graph = models::build(model, precision, models::Output::loss);
  if (trained) ir::differentiate(graph);
  return compiler::Plans(std::move(graph), strategies, 0, cluster::uniform(hosts, 4 / hosts),
                         switching::Planner::relay);
}

Labels of_two_sources(const Documents& documents) {
  Labels labels{.sources = 2};
  for (size_t d = 0; d < documents.size(); ++d) labels.source.push_back(static_cast<int>(d % 2));
  return labels;
}

i64 class_bytes(const compiler::MemoryPeak& peak, compiler::MemoryClass what) {
  return peak.bytes[static_cast<size_t>(what)];
}

TEST(Evaluation, TheStoreHoldsNothingButParametersInThePrecisionOfComputation) {
  kernels::install_rank_allocator();
  for (const char* precision : {"bf16", "fp32", "fp64"})
    for (const char* spec : kStrategies) {
      SCOPED_TRACE(fmt::format("{} in {}", spec, precision));
      const compiler::Plans plans = plans_of({spec}, false, 1, precision_from(precision));
      for (int rank = 0; rank < 4; ++rank) {
        kernels::RankMemory memory(i64{1} << 28);
        const kernels::MemoryScope scope(&memory);
        Store store(plans, rank, at::kCPU);
        i64 bytes = 0;
        for (int unit = 0; unit < static_cast<int>(plans.units().size()); ++unit)
          bytes += allocated(store.holdings.home_elements(unit) * size_of(plans.graph().precision().compute));
        EXPECT_EQ(memory.live(), bytes);
        const int zero = plans.anchor().strategy.zero;
        for (int unit = 0; (zero == 0 || zero == 3) && unit < static_cast<int>(plans.units().size()); ++unit)
          EXPECT_EQ(store.holdings.working_elements(0, -1, unit), 0) << "all working parameters are views of home";
        for (const HomeUnit& unit : store.home.units()) {
          for (const at::Tensor* none : {&unit.master, &unit.m, &unit.v, &unit.grad}) EXPECT_FALSE(none->defined());
          for (const HomeShard& shard : unit.shards)
            for (const at::Tensor* none : {&shard.master, &shard.m, &shard.v, &shard.grad})
              EXPECT_FALSE(none->defined());
        }
        memory.reset_peak();
        store.home.initialize([](int, const layout::Box&, at::Tensor values) { values.fill_(0.3); });
        EXPECT_EQ(memory.peak(), bytes) << "values are written where they stay";
        const kernels::MemoryScope outside(nullptr);
        for (const HomeUnit& unit : store.home.units())
          for (const HomeShard& shard : unit.shards)
            EXPECT_NEAR(shard.compute_copy.to(at::kDouble).mean().item<double>(), 0.3, 1e-3);
      }
    }
}

TEST(Evaluation, LossesAreThoseOfAStoreForTrainingAndMemoryIsAsPredicted) {
  kernels::install_rank_allocator();
  for (const char* spec : kStrategies)
    for (const auto& [hosts, precision] : {std::pair(1, "fp64"), std::pair(2, "fp32")}) {
      SCOPED_TRACE(fmt::format("{} on {} hosts in {}", spec, hosts, precision));
      const compiler::Plans trained = plans_of({spec}, true, hosts, precision_from(precision)),
                            evaluated = plans_of({spec}, false, hosts, precision_from(precision));
      const Documents documents = tiny_documents(13, 5);
      const batch::StepPlan plan = tiny_batch(0, documents, evaluated, {kLongest});
      const ir::Program program = compiler::assemble(plan, evaluated, {.train = false});
      const bool moves = std::ranges::count(program.tasks, ir::TaskKind::move, &ir::Task::kind) > 0;
      const Labels labels = of_two_sources(documents);
      const Measured alone = measured(evaluated, program, plan, documents, {.labels = labels});
      const Measured within = measured(evaluated, program, plan, documents, {.stored = &trained, .labels = labels});
      EXPECT_EQ(alone.losses, within.losses);
      EXPECT_GT(std::ranges::max(alone.losses), 0);
      for (const auto& [peaks, stored] : {std::pair(&alone.peaks, &evaluated), std::pair(&within.peaks, &trained)})
        for (int rank = 0; rank < 4; ++rank) {
          const i64 peak = (*peaks)[static_cast<size_t>(rank)];
          const compiler::MemoryPeak bound = compiler::predict_memory(
              program, plan, evaluated, compiler::Holdings(*stored, rank), compiler::ExecutionOrder::worst);
          EXPECT_LE(peak, bound.total) << "rank " << rank;
          if (evaluated.strategies()[0].groups[0].stages.size() == 1 && !moves) {
            EXPECT_EQ(peak, bound.total) << "rank " << rank;
          }
          for (const auto what :
               {compiler::MemoryClass::master, compiler::MemoryClass::moments, compiler::MemoryClass::home_gradients})
            EXPECT_EQ(class_bytes(bound, what) > 0, stored == &trained) << compiler::name_of(what);
          EXPECT_EQ(class_bytes(bound, compiler::MemoryClass::gradients), 0);
        }
    }
}

TEST(Evaluation, LossesOfSeveralStrategiesAreThoseOfAStoreForTraining) {
  kernels::install_rank_allocator();
  for (const std::vector<std::string>& specs :
       {std::vector<std::string>{"tp=4", "dp=4"}, {"dp=4,zero=3", "tp=2,pp=2"}, {"ring=4", "dp=2,pp=2", "dp=4"}}) {
    SCOPED_TRACE(specs.front());
    const compiler::Plans trained = plans_of(specs, true, 2, precision_from("fp32")),
                          evaluated = plans_of(specs, false, 2, precision_from("fp32"));
    std::vector<i64> bounds = {kLongest, 14, 8};
    bounds.resize(specs.size());
    const Documents documents = tiny_documents(13, 5);
    const batch::StepPlan plan = tiny_batch(0, documents, evaluated, bounds);
    const ir::Program program = compiler::assemble(plan, evaluated, {.train = false});
    const Measured alone = measured(evaluated, program, plan, documents);
    EXPECT_EQ(alone.losses, measured(evaluated, program, plan, documents, {.stored = &trained}).losses);
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_LE(alone.peaks[static_cast<size_t>(rank)],
                compiler::predict_memory(program, plan, evaluated, compiler::Holdings(evaluated, rank),
                                         compiler::ExecutionOrder::worst)
                    .total)
          << "rank " << rank;
  }
}

// What encoding a gradient loses is kept for the next gradient.
TEST(Evaluation, KeepsNoErrorFeedback) {
  const config::StrategySettings settings{
      .compression = {.gradients = codecs::Codec::int8, .error_feedback = config::ErrorFeedback::on, .smallest = {0}}};
  const auto residuals = [&](bool trained) {
    const compiler::Plans plans = plans_of({"dp=4"}, trained, 2, precision_from("fp32"), settings);
    size_t parts = 0;
    for (int rank = 0; rank < 4; ++rank) parts += Store(plans, rank, at::kCPU).residuals.parts().size();
    return parts;
  };
  EXPECT_GT(residuals(true), 0u);
  EXPECT_EQ(residuals(false), 0u);
}

}  // namespace
}  // namespace switchyard::runtime
