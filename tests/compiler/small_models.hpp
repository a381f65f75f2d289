// Small models, strategies and batches for the compiler's tests.
#pragma once

#include <string>
#include <vector>

#include "../message_of.hpp"
#include "base/errors.hpp"
#include "compiler/assemble.hpp"
#include "ir/autodiff.hpp"
#include "ir/operators/embedding.hpp"
#include "ir/operators/linear.hpp"
#include "models/build.hpp"

namespace switchyard::compiler {

/// LLaMA: 2 layers, hidden 64, 4 heads, 2 key/value heads, ffn 176, vocabulary 100, untied.
inline config::ModelConfig small_llama() {
  config::ModelConfig model = config::family_defaults(config::Family::llama);
  model.layers = 2;
  model.hidden_size = 64;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 16;
  model.ffn_size = 176;
  model.vocab_size = 100;
  model.max_positions = 128;
  model.tied_embeddings = false;
  return model;
}

/// Forward and backward graph.
inline ir::Graph training_graph(const config::ModelConfig& model, const std::string& precision = "bf16") {
  ir::Graph graph = models::build(model, precision_from(precision), models::Output::loss);
  ir::differentiate(graph);
  return graph;
}

/// Two products of 4096 features, between which nothing is brought into a role's layout, on an embedding and a head.
inline ir::Graph bare_products() {
  using layout::DimRole;
  ir::Graph graph(precision_from("bf16"));
  const auto weight = [&](const std::string& name, int unit, DimRole rows, DimRole columns) {
    return models::add_weight(
        graph, {.name = name, .unit = unit, .rows = 4096, .columns = 4096, .row_role = rows, .column_role = columns});
  };
  const auto product = [&](int in, int of, const std::string& name) {
    return graph.call(std::make_shared<ir::Linear>(1, false), {in, of}, name)[0];
  };
  const int table = weight("table.", 0, DimRole::vocabulary, DimRole::none);
  const int x = graph.call(std::make_shared<ir::Embedding>(), {graph.feed(ir::Feed::ids), table}, "x")[0];
  graph.set_role(x, layout::Role::residual);
  graph.set_unit(1);
  const int y = product(x, weight("normal.", 1, DimRole::ffn, DimRole::hidden), "y"),
            z = product(y, weight("transposed.", 1, DimRole::hidden, DimRole::ffn), "z");
  graph.set_role(z, layout::Role::residual);
  graph.set_unit(2);
  models::finish(graph, z, weight("head.", 2, DimRole::vocabulary, DimRole::none), models::Output::loss);
  ir::differentiate(graph);
  return graph;
}

/// One document of `tokens` tokens in a micro-batch of T.
inline batch::MicroBatch micro_batch_of(i64 doc, int tokens, i64 T) {
  batch::MicroBatch mb{{T}, {{{doc, 0, tokens, 1}}}};
  if (T > tokens) mb.shard[0].push_back({-1, 0, static_cast<int>(T) - tokens, 1});
  return mb;
}

/// A step with so many micro-batches, of one document of `tokens` tokens each, on every replica of every strategy.
inline batch::StepPlan level_step(const Plans& plans, int micro_batches, int tokens = 64) {
  batch::StepPlan plan{0, 1, {}};
  i64 doc = 0;
  for (size_t s = 0; s < plans.strategies().size(); ++s) {
    batch::PhasePlan phase{static_cast<int>(s), {}};
    for (size_t replica = 0; replica < plans.strategies()[s].replicas.size(); ++replica) {
      phase.replica.emplace_back();
      for (int mb = 0; mb < micro_batches; ++mb) phase.replica.back().push_back(micro_batch_of(doc++, tokens, tokens));
    }
    plan.phases.push_back(std::move(phase));
  }
  return plan;
}

/// GPT-2 of the same size, with 2 heads more.
inline config::ModelConfig small_gpt2() {
  config::ModelConfig model = config::family_defaults(config::Family::gpt2);
  model.layers = 2;
  model.hidden_size = 48;
  model.heads = model.kv_heads = 6;
  model.head_dim = 8;
  model.ffn_size = 4 * 48;
  model.vocab_size = 101;
  model.max_positions = 128;
  return model;
}

inline int param_index(const ir::Graph& graph, const std::string& name) {
  for (size_t p = 0; p < graph.params().size(); ++p)
    if (graph.params()[p].name == name) return static_cast<int>(p);
  return -1;
}

/// The mesh of `tp` tensor parallel ranks in each of `dp` replicas.
inline layout::StageMesh tensor_mesh(int tp, int dp = 1) {
  return {{layout::StageAxis::data, dp}, {layout::StageAxis::outer, tp}};
}

/// A strategy without groups: what a stage is compiled with.
inline config::Strategy stage_strategy(const std::string& name, std::vector<config::ParamSplit> splits = {}) {
  config::Strategy strategy;
  strategy.name = name;
  strategy.splits = std::move(splits);
  return strategy;
}

/// The worked step: long documents under A (1,2,2), short ones under B (4,1,1), on two hosts of two ranks.
inline Plans worked_plans(switching::Planner planner = switching::Planner::relay) {
  const config::ModelConfig model = small_llama();
  return Plans(
      training_graph(model),
      {config::strategy_from_spec("1,2,2", 4, model.layers), config::strategy_from_spec("4,1,1", 4, model.layers)}, 0,
      cluster::uniform(2, 2), planner);
}

inline batch::StepPlan worked_batch() {
  return {0,
          94,
          {{0, {{micro_batch_of(0, 40, 40), micro_batch_of(1, 33, 34)}}},
           {1, {{micro_batch_of(2, 12, 12)}, {micro_batch_of(4, 9, 9)}, {micro_batch_of(3, 5, 5)}, {}}}}};
}

}  // namespace switchyard::compiler
