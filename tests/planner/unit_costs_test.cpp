#include "planner/unit_costs.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "compiler/compile.hpp"
#include "config/hardware.hpp"
#include "ir/autodiff.hpp"
#include "models/build.hpp"
#include "planner/segment_memory.hpp"
#include "simulator/segment_times.hpp"
#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

using config::Recompute;

config::ModelConfig six_layers() {
  config::ModelConfig model = config::family_defaults(config::Family::llama);
  model.layers = 6;
  model.hidden_size = 256;
  model.heads = model.kv_heads = 8;
  model.head_dim = 32;
  model.ffn_size = 704;
  model.vocab_size = 1000;
  model.max_positions = 4096;
  return model;
}

TEST(UnitCosts, of_rotary_tables_are_those_of_a_rank_or_of_a_micro_batchs_tokens) {
  const cluster::Hardware hardware = config::load_hardware("a100-80g", 16);
  config::ModelConfig model = six_layers();
  const UnitCosts plain(model, precision_from("bf16"), hardware);
  EXPECT_EQ(plain.table_bytes(100), 100 * 32 * 4);
  EXPECT_EQ(plain.table_bytes_of_a_token(), 0);
  model.rope_scaling = {.factor = 2, .type = config::RopeScalingType::dynamic};
  const UnitCosts dynamic(model, precision_from("bf16"), hardware);
  EXPECT_EQ(dynamic.table_bytes(100), 0);
  EXPECT_EQ(dynamic.table_bytes_of_a_token(), 32 * 4);
}

double seconds(const ir::StageCode& stage, const ir::Segment& segment, i64 T, const cluster::Hardware& hardware,
               double attention_pairs) {
  std::vector<int> ranks(static_cast<size_t>(stage.replica.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const simulator::SegmentTimes times =
      simulator::segment_times(stage, segment, T, ranks, hardware, hardware.placement());
  double sum = 0;
  simulator::Queues queues;
  std::vector<simulator::Part> parts;
  for (const simulator::Piece& piece : times.pieces) {
    queues.add(piece, piece.fixed, parts);
    sum += piece.per_pair * attention_pairs;
  }
  queues.finish(parts);
  for (const simulator::Part& part : parts) {
    const bool both = part.computes && part.exchange >= 0;
    sum +=
        part.seconds * (both ? 1 + times.exchanges[static_cast<size_t>(part.exchange)].most_of_a_device(hardware) : 1);
  }
  return sum;
}

TEST(UnitCosts, keeping_what_is_gathered_takes_less_exactly_where_something_is) {
  const UnitCosts costs(six_layers(), precision_from("bf16"), config::load_hardware("a100-80g", 16));
  for (const layout::StageAxis axis : stage_axes()) {
    if (axis == layout::StageAxis::ring || axis == layout::StageAxis::depth) continue;  // outside a layer's code
    StageMesh on;
    on[axis] = 2;
    const auto seconds = [&](Recompute recompute) {
      return costs.time(StageKind::middle, on, recompute, Pass::BW, 512).total(0);
    };
    EXPECT_EQ(seconds(Recompute::none) < seconds(Recompute::gathers), least_recompute(on) == Recompute::none)
        << to_string(on);
    EXPECT_EQ(seconds(least_recompute(on)), seconds(Recompute::none)) << to_string(on);
  }
}

TEST(UnitCosts, of_a_stage_of_several_layers_add_up_to_what_its_code_takes) {
  const cluster::Hardware hardware = config::load_hardware("a100-80g", 16);
  cluster::Hardware lockstep = hardware;
  lockstep.device.lockstep_curve = {{{1e-5, 0.5}, {1e-2, 0.9}}};
  const config::ModelConfig model = six_layers();
  const UnitCosts costs(model, precision_from("bf16"), hardware), together(model, precision_from("bf16"), lockstep);
  ir::Graph graph = models::build(model, precision_from("bf16"), models::Output::loss);
  ir::differentiate(graph);
  const i64 T = 512;
  const double attention_pairs = 4000;
  for (const StageMesh& on : {StageMesh{}, outer(4), mesh(4, 1, 1), mesh(2, 2, 1), mesh(1, 2, 2)})
    for (const Recompute recompute : {Recompute::none, Recompute::gathers, Recompute::selective, Recompute::full})
      for (const bool split : {false, true}) {
        config::Strategy strategy;
        strategy.recompute = recompute;
        if (split) strategy.schedule = config::ScheduleKind::zero_bubble;
        for (const auto& [kind, first, end, layers] : {std::tuple(StageKind::first, 0, 4, 3),
                                                       {StageKind::middle, 2, 6, 4},
                                                       {StageKind::last, 5, 8, 2},
                                                       {StageKind::whole, 0, 8, 6}}) {
          const ir::StageCode stage = compiler::compile_stage(graph, strategy, on, first, end);
          const std::string what = fmt::format("mesh {}, recompute {}, kind {}, split {}", to_string(on),
                                               config::name_of(recompute), static_cast<int>(kind), split);
          const Parts parts = parts_of(kind, layers);
          for (const Pass pass : split ? std::vector{Pass::F, Pass::B, Pass::W} : std::vector{Pass::F, Pass::BW}) {
            for (const UnitCosts* of : {&costs, &together}) {
              const bool alike = of == &costs;
              // An embedding may have the only collectives of W; what attention needs of the feeds is gathered for the
              // first layer, or where all is recomputed for the last one, too.
              if (!alike && pass == Pass::W && on.positions() > 1) continue;
              const double exact = seconds(stage, stage.segment(pass), T, of->hardware(), attention_pairs);
              const double sum = of->time(parts, on, recompute, pass, T).total(attention_pairs);
              EXPECT_NEAR(sum, exact,
                          (alike                          ? 1e-9
                           : recompute == Recompute::full ? 5e-3
                                                          : 1e-6) *
                              exact)
                  << what << ", " << name_of(pass);
            }
          }
          const Kept exact = StageMemory(stage).activations({T, T}),
                     kept = costs.kept(kind, layers, on, recompute, split, {T, T});
          // What attention gathers of the feeds is kept once for all layers, and counted for each.
          EXPECT_GE(kept.stash, exact.stash) << what;
          EXPECT_LE(kept.stash, (on.copies() > 1 ? 1.03 : 1) * static_cast<double>(exact.stash)) << what;
          EXPECT_GE(kept.forward_peak, exact.forward_peak) << what;
          EXPECT_LE(kept.forward_peak, 1.01 * static_cast<double>(exact.forward_peak)) << what;
          if (split) {
            EXPECT_GE(kept.later, exact.later) << what;
            EXPECT_GE(kept.backward_peak, exact.backward_peak) << what;
            const compiler::StageCost sum = parts.sum(
                                          [&](StageKind one) { return costs.stage_cost(one, on, recompute); }),
                                      whole = compiler::cost_of(stage);
            EXPECT_DOUBLE_EQ(sum.weight.flops_per_token, whole.weight.flops_per_token) << what;
            EXPECT_DOUBLE_EQ(sum.backward.bytes_per_token, whole.backward.bytes_per_token) << what;
          } else {
            EXPECT_GE(kept.backward_peak, exact.backward_peak) << what;
            EXPECT_LE(kept.backward_peak, (on.copies() > 1 ? 1.03 : 1) * static_cast<double>(exact.backward_peak))
                << what;
          }
        }
      }
}

TEST(UnitCosts, least_rates_are_below_those_of_any_micro_batches) {
  const cluster::Hardware hardware = config::load_hardware("a100-80g", 16);
  const UnitCosts costs(six_layers(), precision_from("bf16"), hardware);
  for (const StageMesh& on : {StageMesh{}, outer(8), mesh(2, 2, 2)})
    for (const i64 capacity : {100, 1000, 8192}) {
      const Parts parts = parts_of(StageKind::last, 3);
      const Spent least =
          parts.sum([&](StageKind kind) { return costs.least(kind, on, Recompute::full, capacity, false); });
      const Spent passed =
          parts.sum([&](StageKind kind) { return costs.least(kind, on, Recompute::full, capacity, true, true); });
      for (i64 T = 8; T <= capacity; T += 1 + T / 7) {
        const double attention_pairs = static_cast<double>(T) * static_cast<double>(T) / 2;
        double exact = 0;
        for (const Pass pass : {Pass::F, Pass::BW})
          exact += parts.sum([&](StageKind kind) { return costs.time(kind, on, Recompute::full, pass, T); })
                       .total(attention_pairs);
        double through = 0;
        for (const Pass pass : {Pass::F, Pass::B})
          through += parts.sum([&](StageKind kind) { return costs.time(kind, on, Recompute::full, pass, T); })
                         .total(attention_pairs);
        EXPECT_GE(through * (1 + 1e-12), passed.compute * static_cast<double>(T) + passed.per_pair * attention_pairs)
            << to_string(on) << " " << T;
        EXPECT_GE(exact * (1 + 1e-12), least.compute * static_cast<double>(T) + least.per_pair * attention_pairs)
            << to_string(on) << " " << T;
      }
    }
}

}  // namespace
}  // namespace switchyard::planner
