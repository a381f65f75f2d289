// A tiny model with values from formulas, batches drawn from a seed, and runs of some steps on ranks that are threads.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "../comm/rank_threads.hpp"
#include "../standin/test_device.hpp"
#include "batch/planner.hpp"
#include "comm/testing_fabric.hpp"
#include "compiler/bucket_spec.hpp"
#include "ir/autodiff.hpp"
#include "models/build.hpp"
#include "runtime/executor.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {

inline constexpr i64 kLongest = 24;
inline constexpr Precision kFp64{DType::f64, DType::f64};

/// sin(1.3 i + phase), fp64.
inline at::Tensor wave(const std::vector<i64>& size, double phase = 0) {
  at::Tensor t = empty(size, DType::f64, at::kCPU);
  double* value = t.data_ptr<double>();
  for (i64 i = 0; i < t.numel(); ++i) value[i] = std::sin(1.3 * static_cast<double>(i) + phase);
  return t;
}

/// Largest difference of two tensors.
inline double gap(const at::Tensor& a, const at::Tensor& b) { return a.sub(b).abs().max().item<double>(); }

/// 2 layers, hidden 32, 4 heads of 8, 2 key/value heads, ffn 48, vocabulary 40, untied.
inline config::ModelConfig tiny_llama() {
  config::ModelConfig model = config::family_defaults(config::Family::llama);
  model.layers = 2;
  model.hidden_size = 32;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 8;
  model.ffn_size = 48;
  model.vocab_size = 40;
  model.max_positions = 64;
  model.tied_embeddings = false;
  return model;
}

inline compiler::Plans tiny_plans(const std::vector<std::string>& specs, int ranks, int home = 0,
                                  Precision precision = kFp64, int hosts = 1, int zero = 1,
                                  const config::StrategySettings& settings = {}, const compiler::CodeOptions& how = {},
                                  const config::ModelConfig& model = tiny_llama()) {
  ir::Graph graph = models::build(model, precision, models::Output::loss);
  ir::differentiate(graph);
  std::vector<config::Strategy> strategies;
  config::StrategySettings all = settings;
  all.zero = zero;
  for (const std::string& spec : specs)
    strategies.push_back(config::strategy_from_spec(spec, ranks, model.layers, all));
  return compiler::Plans(std::move(graph), strategies, home, cluster::uniform(hosts, ranks / hosts),
                         switching::Planner::relay, how);
}

/// Whole values of a parameter: near 1 for norms, waves of 0.2 for the rest.
inline at::Tensor tiny_value(const ir::Graph& graph, int param) {
  const std::vector<i64>& size = graph.param(param).shape.size;
  const at::Tensor t = wave(size, 0.7 * param).mul(0.2);
  return size.size() == 1 ? t.add(1) : t;
}

inline Home::Initial tiny_values(const ir::Graph& graph) {
  return [&graph](int param, const layout::Box& box, at::Tensor values) {
    values.copy_(view_of(tiny_value(graph, param), layout::whole(graph.param(param).shape.size), box));
  };
}

/// `count` documents of 1 to kLongest tokens.
inline Documents tiny_documents(int count, unsigned seed) {
  std::mt19937 random(seed);
  Documents documents(static_cast<size_t>(count));
  for (auto& document : documents) {
    document.resize(1 + random() % kLongest);
    for (auto& token : document) token = static_cast<std::int32_t>(random() % 40);
  }
  return documents;
}

/// One bucket a strategy, of documents up to bounds[s].
inline batch::StepPlan tiny_batch(i64 step, const Documents& documents, const compiler::Plans& plans,
                                  const std::vector<i64>& bounds) {
  std::vector<batch::BucketSpec> buckets;
  for (size_t s = 0; s < bounds.size(); ++s) {
    batch::BucketSpec bucket = compiler::bucket_spec(plans, static_cast<int>(s), bounds[s]);
    bucket.pipelines.clear();  // all are equal, so that a batch depends on few things
    buckets.push_back(bucket);
  }
  std::vector<i64> lengths;
  for (const auto& document : documents) lengths.push_back(static_cast<i64>(document.size()));
  return batch::plan_batch(step, lengths, buckets, {1, 0.01});
}

struct TinyRun {
  std::vector<StepResult> steps;   // what rank 0 saw
  std::vector<at::Tensor> master;  // whole parameters at the end
  bool copies_agree = true;        // those of a parameter at home, to the last bit
  std::vector<std::string> ends;   // error that ended each rank; empty: none
};

struct TinyOptions {
  std::vector<i64> bounds{kLongest};
  bool prefetch = true;
  int faulty_rank = -1;  // its n-th transaction fails
  i64 faulty_transaction = 1;
  std::optional<double> poison{};  // written to one element of rank 0's first master tensor
  std::optional<bool> beside{};    // ExecutorOptions::beside
  bool silent = false;             // the faulty rank doesn't come back instead of failing
  std::function<std::unique_ptr<comm::Fabric>(std::unique_ptr<comm::Fabric>)>
      wrap{};  // what goes around each rank's fabric
  comm::FabricOptions fabric{};
  std::vector<Labels> labels{};  // labels of each batch; empty: all count
  config::RopeScaling rope_scaling{};
  at::Device device = standin::test_device();
};

/// How many labels of a batch count.
inline i64 labels_that_count(const Documents& documents, const Labels& labels) {
  i64 count = 0;
  for (size_t d = 0; d < documents.size(); ++d)
    for (size_t i = 1; i < documents[d].size(); ++i)
      count += labels.counts.empty() || labels.counts[d].empty() || labels.counts[d][i] != 0;
  return count;
}

/// One step a batch, AdamW with clipping.
inline TinyRun run_tiny(const compiler::Plans& plans, const std::vector<Documents>& batches,
                        const TinyOptions& options = {}) {
  const int ranks = plans.cluster().ranks();
  std::vector<batch::StepPlan> steps;
  std::vector<ir::Program> programs;
  for (const Documents& documents : batches) {
    steps.push_back(tiny_batch(static_cast<i64>(steps.size()), documents, plans, options.bounds));
    if (!options.labels.empty())
      steps.back().valid_tokens = labels_that_count(documents, options.labels[steps.size() - 1]);
    programs.push_back(compiler::assemble(
        steps.back(), plans, {.prefetch_units = options.prefetch ? compiler::kAllUnits : 0, .train = true}));
  }
  auto fabrics = comm::thread_fabrics(ranks, plans.cluster(), options.fabric);
  if (options.wrap)
    for (auto& fabric : fabrics) fabric = options.wrap(std::move(fabric));
  if (options.faulty_rank >= 0) {
    auto& fabric = fabrics[static_cast<size_t>(options.faulty_rank)];
    fabric = std::make_unique<comm::FaultyFabric>(
        std::move(fabric), options.faulty_transaction,
        options.silent ? comm::FaultyFabric::Fault::silence : comm::FaultyFabric::Fault::fail);
  }
  TinyRun run;
  const at::Device device = options.device;
  std::vector<std::unique_ptr<Store>> stores(static_cast<size_t>(ranks));
  run.ends = comm::run_ranks(fabrics, [&](comm::Fabric& fabric) {
    auto& store = stores[static_cast<size_t>(fabric.rank())];
    store = std::make_unique<Store>(plans, fabric.rank(), device);
    store->home.initialize(tiny_values(plans.graph()));
    if (device.is_cpu()) store->working.poison_what_is_dropped();
    if (options.poison && fabric.rank() == 0) store->home.units()[0].master.select(0, 0).fill_(*options.poison);
    ExecutorOptions settings;
    settings.device = device;
    settings.beside = options.beside;
    settings.rope_scaling = options.rope_scaling;
    Executor executor(plans, *store, fabric, settings);
    for (size_t s = 0; s < batches.size(); ++s) {
      const StepResult result =
          executor.run(programs[s], {.plan = &steps[s],
                                     .documents = &batches[s],
                                     .update =
                                         [&](double norm) {
                                           return UpdateSettings{{1e-2, 0.9, 0.95, 1e-8, 0.1, static_cast<long>(s) + 1},
                                                                 std::min(1.0, 1.0 / (norm + 1e-6))};
                                         },
                                     .labels = options.labels.empty() ? nullptr : &options.labels[s]});
      if (fabric.rank() == 0) run.steps.push_back(result);
    }
  });
  for (const ir::Param& param : plans.graph().params())
    run.master.push_back(zeros(param.shape.size, DType::f64, at::kCPU));
  const auto each_shard = [&](const auto& visit) {
    for (const auto& store : stores)
      if (store)
        for (const HomeUnit& unit : store->home.units())
          for (const HomeShard& shard : unit.shards)
            visit(shard, view_of(run.master[static_cast<size_t>(shard.param)],
                                 layout::whole(plans.graph().param(shard.param).shape.size), shard.box));
  };
  each_shard([](const HomeShard& shard, at::Tensor whole) { whole.copy_(shard.master); });
  each_shard([&](const HomeShard& shard, const at::Tensor& whole) {
    run.copies_agree &= whole.equal(shard.master.to(at::kCPU, at::kDouble));
  });
  return run;
}

/// What each rank measured in a step.
struct Measured {
  std::vector<i64> peaks;      // peaks of memory
  std::vector<double> losses;  // in a training step that of all ranks, in an evaluation the rank's part of it
};

struct MeasureOptions {
  std::optional<bool> beside{};  // ExecutorOptions::beside
  config::RopeScaling rope_scaling{};
  const compiler::Plans* stored = nullptr;  // plans of which stores are made; null: those of the program
  Labels labels{};
};

/// A step of the tiny model. Each rank's store is made before, and its values are not counted.
inline Measured measured(const compiler::Plans& plans, const ir::Program& program, const batch::StepPlan& plan,
                         const Documents& documents, const MeasureOptions& options = {}) {
  const compiler::Plans& stored = options.stored ? *options.stored : plans;
  auto fabrics = comm::thread_fabrics(plans.cluster().ranks(), plans.cluster(), {});
  Measured result{std::vector<i64>(fabrics.size()), std::vector<double>(fabrics.size())};
  const auto ends = comm::run_ranks(fabrics, [&](comm::Fabric& fabric) {
    kernels::RankMemory memory(i64{1} << 28);
    const kernels::MemoryScope scope(&memory);
    Store store(stored, fabric.rank(), at::kCPU);
    {
      const kernels::MemoryScope outside(nullptr);
      store.home.initialize(tiny_values(plans.graph()));
    }
    memory.reset_peak();
    ExecutorOptions settings;
    settings.memory = &memory;
    settings.beside = options.beside;
    settings.rope_scaling = options.rope_scaling;
    Executor executor(stored, store, fabric, settings);
    StepInput input{.plan = &plan, .documents = &documents, .labels = &options.labels, .plans = &plans};
    if (ir::is_differentiated(plans.graph()))
      input.update = [](double) { return UpdateSettings{{1e-2, 0.9, 0.95, 1e-8, 0.1, 1}, 1}; };
    const StepResult step = executor.run(program, input);
    const auto rank = static_cast<size_t>(fabric.rank());
    result.peaks[rank] = memory.peak();
    result.losses[rank] = step.loss;
  });
  EXPECT_EQ(ends, std::vector<std::string>(fabrics.size()));
  return result;
}

}  // namespace switchyard::runtime
