#include "simulator/simulate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "../compiler/small_models.hpp"
#include "compiler/order.hpp"
#include "cost/exchange.hpp"
#include "simulator/segment_times.hpp"
#include "simulator/trace.hpp"

namespace switchyard::simulator {
namespace {

constexpr double kEndless = 1e30;

// 1 GFLOP/s; memory, links and launches take no time.
cluster::Hardware arithmetic_only(int hosts, int devices) {
  cluster::Hardware hardware;
  hardware.name = "test";
  hardware.hosts = hosts;
  hardware.devices_per_host = devices;
  for (const DType type : {DType::f32, DType::bf16}) hardware.device.rates[type] = {{1e9}, {kEndless}, {}};
  hardware.intra_host = {{0}, {kEndless}, 1, {}};
  hardware.inter_host = hardware.intra_host;
  return hardware;
}

compiler::Plans plans_under(const std::vector<std::string>& strategies, int hosts, int devices) {
  const config::ModelConfig model = compiler::small_llama();
  std::vector<config::Strategy> made;
  for (const std::string& strategy : strategies) made.push_back(config::strategy_from_spec(strategy, hosts * devices, model.layers));
  return compiler::Plans(compiler::training_graph(model), std::move(made), 0, cluster::uniform(hosts, devices), switching::Planner::relay);
}

// Documents of 32 tokens, one a micro-batch, under each strategy in turn.
struct Step {
  Step(const compiler::Plans& plans, int documents_of_each) {
    plan.valid_tokens = 1;
    i64 document = 0;
    for (size_t s = 0; s < plans.strategies().size(); ++s) {
      batch::PhasePlan& phase = plan.phases.emplace_back();
      phase.strategy = static_cast<int>(s);
      phase.lane.resize(plans.strategies()[s].lanes.size());
      for (int d = 0; d < documents_of_each; ++d) phase.lane[static_cast<size_t>(d) % phase.lane.size()].push_back({32, {{{document++, 0, 32, 1}}}});
    }
    program = compiler::assemble(plan, plans, {});
  }
  batch::StepPlan plan;
  ir::Program program;
};

Simulation simulated(const compiler::Plans& plans, int documents, const cluster::Hardware& hardware) {
  const Step step(plans, documents);
  return simulate(step.program, step.plan, plans, hardware);
}

// Flops of all segments of the first strategy's stages for a document of 32 tokens.
double flops_of(const compiler::Plans& plans) {
  double flops = 0;
  for (const auto& stages : plans.strategies()[0].cost)
    for (const auto& [forward, backward] : stages)
      for (const compiler::SegmentCost& cost : {forward, backward}) flops += cost.flops_per_token * 32 + cost.flops_per_pair * 32 * 33 / 2;
  return flops;
}

TEST(Simulate, one_rank_computes_for_all_of_the_step_what_its_operators_say) {
  const compiler::Plans plans = plans_under({"1,1,1"}, 1, 1);
  const Simulation simulation = simulated(plans, 3, arithmetic_only(1, 1));
  EXPECT_NEAR(simulation.step_seconds, 3 * flops_of(plans) / 1e9, 1e-9 * simulation.step_seconds);
  EXPECT_NEAR(simulation.ranks[0].compute, simulation.step_seconds, 1e-12);
  EXPECT_NEAR(simulation.ranks[0].idle, 0, 1e-12);
}

TEST(Simulate, replicas_share_the_documents_where_links_take_no_time) {
  const double one = simulated(plans_under({"1,1,1"}, 1, 1), 4, arithmetic_only(1, 1)).step_seconds;
  EXPECT_NEAR(simulated(plans_under({"4,1,1"}, 1, 4), 4, arithmetic_only(1, 4)).step_seconds, one / 4, 1e-9);
  EXPECT_NEAR(simulated(plans_under({"2,1,1"}, 1, 2), 3, arithmetic_only(1, 2)).step_seconds, one / 2, 1e-9) << "two on one of them";
}

TEST(Simulate, a_pipeline_has_the_bubble_of_its_schedule) {
  const compiler::Plans plans = plans_under({"1,1,2"}, 1, 2);
  const auto& stages = plans.strategies()[0].cost[0];
  const auto seconds = [](const compiler::SegmentCost& c) { return (c.flops_per_token * 32 + c.flops_per_pair * 32 * 33 / 2) / 1e9; };
  const double f0 = seconds(stages[0].first), b0 = seconds(stages[0].second), f1 = seconds(stages[1].first), b1 = seconds(stages[1].second);
  ASSERT_GT(f1 + b1, f0 + b0) << "the head makes the last stage the slow one";
  const Simulation simulation = simulated(plans, 6, arithmetic_only(1, 2));
  EXPECT_NEAR(simulation.step_seconds, f0 + 6 * (f1 + b1) + b0, 1e-9) << "the slow stage never waits between its first and its last";
  EXPECT_NEAR(simulation.ranks[1].idle, f0 + b0, 1e-9);
}

TEST(Simulate, every_rank_accounts_for_the_whole_step) {
  cluster::Hardware hardware = arithmetic_only(2, 2);
  hardware.intra_host = {{2e-6}, {1e9}, 1, {}};
  hardware.inter_host = cluster::LinkClass{{1e-5}, {1e8}, 2, {}};
  for (auto& [type, rates] : hardware.device.rates) rates.memory = {1e10};
  hardware.device.launch = {1e-6};
  for (const auto& strategies : std::vector<std::vector<std::string>>{{"1,2,2", "4,1,1"}, {"2,2,1", "2,1,2", "1,4,1"}}) {
    const Simulation simulation = simulated(plans_under(strategies, 2, 2), 5, hardware);
    double overlap = 0;
    for (const RankTime& rank : simulation.ranks) {
      EXPECT_NEAR(rank.compute + rank.communication - rank.overlap + rank.idle, simulation.step_seconds, 1e-12);
      EXPECT_GT(rank.communication, 0);
      EXPECT_GE(rank.idle, -1e-12);
      overlap += rank.overlap;
    }
    EXPECT_GT(overlap, 0) << "switches and flushes run beside";
  }
}

TEST(Simulate, slow_links_delay_what_waits_for_them_and_nothing_else) {
  const compiler::Plans plans = plans_under({"1,2,1", "2,1,1"}, 1, 2);
  const Step step(plans, 2);
  cluster::Hardware hardware = arithmetic_only(1, 2);
  const Simulation fast = simulate(step.program, step.plan, plans, hardware);
  hardware.intra_host.bandwidth = {1e6};
  const Simulation slow = simulate(step.program, step.plan, plans, hardware);
  EXPECT_GT(slow.step_seconds, fast.step_seconds);
  for (size_t row = 0; row < step.program.rows.size(); ++row) {
    const ir::Task& task = step.program.rows[row];
    EXPECT_GE(slow.rows[row].begin, fast.rows[row].begin) << ir::name_of(task);
    if (task.kind != ir::TaskKind::move || task.bytes == 0) continue;
    double moved = 0;
    for (const Span& span : slow.rows[row].spans) moved += span.end - span.begin;
    EXPECT_GT(moved, 0.4 * static_cast<double>(task.bytes) / 1e6) << "both ranks may send at once";
    EXPECT_LE(moved, 1.0001 * static_cast<double>(task.bytes) / 1e6);
  }
}

TEST(Simulate, rows_of_a_stream_follow_one_another_and_what_they_wait_for) {
  cluster::Hardware hardware = arithmetic_only(2, 2);
  hardware.inter_host->bandwidth = {1e7};
  const compiler::Plans plans = plans_under({"1,2,2", "4,1,1"}, 2, 2);
  const Step step(plans, 5);
  const Simulation simulation = simulate(step.program, step.plan, plans, hardware);
  std::map<compiler::QueueKey, double> free;
  for (size_t row = 0; row < step.program.rows.size(); ++row) {
    const ir::Task& task = step.program.rows[row];
    for (const int rank : task.ranks) {
      EXPECT_GE(simulation.rows[row].begin, free[compiler::queue_of(task, rank)]);
      free[compiler::queue_of(task, rank)] = simulation.rows[row].end;
    }
    for (const ir::Wait& wait : task.after) {
      if (wait.unit >= 0) continue;
      EXPECT_GE(simulation.rows[row].begin, simulation.rows[static_cast<size_t>(wait.row)].end);
    }
  }
}

TEST(Simulate, refuses_hardware_of_another_size) {
  const compiler::Plans plans = plans_under({"2,1,1"}, 1, 2);
  EXPECT_EQ(compiler::internal_message([&] { simulated(plans, 1, arithmetic_only(1, 3)); }), "hardware of 3 ranks for a program of 2");
}

TEST(SegmentTimes, of_collectives_are_those_of_the_ring) {
  const compiler::Plans plans = plans_under({"1,4,1"}, 1, 4);
  const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
  cluster::Hardware hardware = arithmetic_only(1, 4);
  hardware.intra_host = {{1e-3}, {1e6}, 1, {}};
  int gathers = 0;
  const std::vector<int> ranks = {0, 1, 2, 3};
  for (const ir::Instr& instr : stage.forward.code) {
    if (instr.op) continue;
    const ir::Buffer &from = stage.buffers[static_cast<size_t>(instr.in[0])], &to = stage.buffers[static_cast<size_t>(instr.out[0])];
    if (from.kind == ir::ValueKind::feed || layout::classify(stage.lane, from.layout, to.layout) != layout::Pattern::all_gather) continue;
    ir::Segment alone{ir::Phase::F, {instr}, {}, {}};
    const SegmentTimes times = segment_times(stage, alone, 32, ranks, hardware, plans.cluster());
    const double bytes = 32.0 * static_cast<double>(from.type.shape.size[1]) * static_cast<double>(size_of(from.type.dtype));
    ASSERT_EQ(times.pieces.size(), 1u);
    EXPECT_EQ(times.pieces[0].what, Activity::communication);
    EXPECT_NEAR(times.pieces[0].fixed, 3 * 1e-3 + 0.75 * bytes / 1e6, 1e-12);
    ++gathers;
  }
  EXPECT_GT(gathers, 2);
}

TEST(SegmentTimes, of_an_operator_are_the_longer_of_arithmetic_and_memory) {
  const compiler::Plans plans = plans_under({"1,1,1"}, 1, 1);
  const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
  cluster::Hardware hardware = arithmetic_only(1, 1);
  for (auto& [type, rates] : hardware.device.rates) rates.memory = {1e9};
  hardware.device.launch = {1e-6};
  for (const ir::Instr& instr : stage.forward.code) {
    if (!instr.op || instr.op->name() == "attention") continue;
    const ir::Cost cost = ir::local_cost(stage, instr, 0);
    const double flops = cost.flops_per_token * 32, bytes = cost.bytes_per_token * 32 + cost.bytes_fixed;
    ir::Segment alone{ir::Phase::F, {instr}, {}, {}};
    EXPECT_NEAR(segment_times(stage, alone, 32, {0}, hardware, plans.cluster()).pieces[0].fixed, 1e-6 + std::max(flops, bytes) / 1e9, 1e-12)
        << instr.op->name();
  }
}

TEST(Trace, has_an_event_for_every_stretch_of_every_rank) {
  const compiler::Plans plans = plans_under({"1,1,2"}, 1, 2);
  const Step step(plans, 2);
  const Simulation simulation = simulate(step.program, step.plan, plans, arithmetic_only(1, 2));
  const nlohmann::json trace = nlohmann::json::parse(trace_of(step.program, simulation));
  double busy[2] = {0, 0};
  int names = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["cat"] == "compute") busy[event["pid"].get<int>()] += 1e-6 * event["dur"].get<double>();
    names += event["name"] == "process_name";
  }
  EXPECT_EQ(names, 2);
  for (const size_t rank : {0, 1}) EXPECT_NEAR(busy[rank], simulation.ranks[rank].compute, 1e-9);
}

}  // namespace
}  // namespace switchyard::simulator
