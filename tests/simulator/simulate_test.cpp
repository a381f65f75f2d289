#include "simulator/simulate.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "compiler/holdings.hpp"
#include "compiler/order.hpp"
#include "simple_steps.hpp"
#include "simulator/segment_times.hpp"
#include "simulator/task_work.hpp"

namespace switchyard::simulator {
namespace {

Simulation simulated(const compiler::Plans& plans, int documents, const cluster::Hardware& hardware) {
  const Step step(plans, documents);
  return simulate(step.program, step.plan, plans, hardware);
}

// Flops of all segments of the first strategy's stages for a document of 32 tokens.
double flops_of(const compiler::Plans& plans) {
  double flops = 0;
  for (const auto& stages : plans.strategies()[0].cost)
    for (const compiler::StageCost& stage : stages)
      for (const compiler::SegmentCost& cost : {stage.forward, stage.backward, stage.weight})
        flops += cost.flops_per_token * 32 + cost.flops_per_pair * 32 * 33 / 2;
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
  EXPECT_NEAR(simulated(plans_under({"2,1,1"}, 1, 2), 3, arithmetic_only(1, 2)).step_seconds, one / 2, 1e-9)
      << "two on one of them";
}

TEST(Simulate, devices_that_slow_each_other_down_are_quicker_while_the_others_of_their_host_rest) {
  const auto seconds = [](int hosts, int devices, int documents, double speedup) {
    cluster::Hardware hardware = arithmetic_only(hosts, devices);
    hardware.device.alone_speedup = speedup;
    return simulated(plans_under({fmt::format("{},1,1", hosts * devices)}, hosts, devices), documents, hardware)
        .step_seconds;
  };
  const double one = seconds(1, 2, 1, 1);
  EXPECT_NEAR(seconds(1, 2, 2, 1.6), one, 1e-9);
  EXPECT_NEAR(seconds(1, 2, 1, 1.6), one / 1.6, 1e-9);
  EXPECT_NEAR(seconds(1, 2, 3, 1.6), one + one / 1.6, 1e-9) << "one has a second document";
  EXPECT_NEAR(seconds(2, 1, 1, 1.6), one, 1e-9) << "measured alone";
  EXPECT_NEAR(seconds(1, 4, 4, 2), one, 1e-9);
  EXPECT_NEAR(seconds(1, 4, 3, 2), one * 3 / 4, 1e-9) << "four on two cores";
  EXPECT_NEAR(seconds(1, 4, 1, 2), one / 2, 1e-9);
}

TEST(Simulate, a_pipeline_has_the_bubble_of_its_schedule) {
  const compiler::Plans plans = plans_under({"1,1,2"}, 1, 2);
  const auto& stages = plans.strategies()[0].cost[0];
  const auto seconds = [](const compiler::SegmentCost& c) {
    return (c.flops_per_token * 32 + c.flops_per_pair * 32 * 33 / 2) / 1e9;
  };
  const double f0 = seconds(stages[0].forward), b0 = seconds(stages[0].backward), f1 = seconds(stages[1].forward),
               b1 = seconds(stages[1].backward);
  ASSERT_GT(f1 + b1, f0 + b0) << "the head makes the last stage the slow one";
  const Simulation simulation = simulated(plans, 6, arithmetic_only(1, 2));
  EXPECT_NEAR(simulation.step_seconds, f0 + 6 * (f1 + b1) + b0, 1e-9)
      << "the slow stage never waits between its first and its last";
  EXPECT_NEAR(simulation.ranks[1].idle, f0 + b0, 1e-9);
}

TEST(Simulate, slow_links_delay_what_waits_for_them_and_nothing_else) {
  const compiler::Plans plans = plans_under({"1,2,1", "2,1,1"}, 1, 2);
  const Step step(plans, 2);
  cluster::Hardware hardware = arithmetic_only(1, 2);
  const Simulation fast = simulate(step.program, step.plan, plans, hardware);
  hardware.intra_host.bandwidth = {1e6};
  const Simulation slow = simulate(step.program, step.plan, plans, hardware);
  EXPECT_GT(slow.step_seconds, fast.step_seconds);
  for (size_t id = 0; id < step.program.tasks.size(); ++id) {
    const ir::Task& task = step.program.tasks[id];
    EXPECT_GE(slow.tasks[id].begin, fast.tasks[id].begin) << ir::name_of(task);
    if (task.kind() != ir::TaskKind::move || task.bytes == 0) continue;
    double moved = 0;
    for (const Span& span : slow.tasks[id].spans) moved += span.end - span.begin;
    EXPECT_GT(moved, 0.4 * static_cast<double>(task.bytes) / 1e6) << "both ranks may send at once";
    EXPECT_LE(moved, 2.0001 * static_cast<double>(task.bytes) / 1e6) << "a collective may have the other half";
  }
}

// A unit's copy comes while the one before is read: where computing takes longer, only the first one is waited for.
TEST(Simulate, gathers_and_reductions_of_runs_go_on_beside_the_pieces_that_do_not_wait_for_them) {
  cluster::Hardware hardware = arithmetic_only(1, 2);
  hardware.intra_host.bandwidth = {1e9};
  const auto seconds = [&](int zero) {
    const compiler::Plans plans = plans_under({"2,1,1"}, 1, 2, zero);
    const Step step(plans, 4);
    const Simulation simulation = simulate(step.program, step.plan, plans, hardware);
    for (size_t id = 0; id < step.program.tasks.size(); ++id)
      for (const ir::Wait& wait : step.program.tasks[id].after)
        if (wait.unit < 0) {
          EXPECT_GE(simulation.tasks[id].begin, simulation.tasks[static_cast<size_t>(wait.task)].end)
              << ir::name_of(step.program.tasks[id]);
        }
    return simulation;
  };
  const Simulation plain = seconds(1), two = seconds(2), three = seconds(3);
  EXPECT_GT(three.ranks[0].communication, 2 * plain.ranks[0].communication);
  EXPECT_GT(three.ranks[0].overlap, 0.5 * three.ranks[0].communication);
  EXPECT_GT(two.ranks[0].communication, plain.ranks[0].communication);
  EXPECT_GT(three.ranks[0].communication, two.ranks[0].communication);
}

TEST(Simulate, tasks_of_a_stream_follow_one_another_and_what_they_wait_for) {
  cluster::Hardware hardware = arithmetic_only(2, 2);
  hardware.inter_host->bandwidth = {1e7};
  const compiler::Plans plans = plans_under({"1,2,2", "4,1,1"}, 2, 2);
  const Step step(plans, 5);
  const Simulation simulation = simulate(step.program, step.plan, plans, hardware);
  std::map<compiler::QueueKey, double> free;
  for (size_t id = 0; id < step.program.tasks.size(); ++id) {
    const ir::Task& task = step.program.tasks[id];
    for (const int rank : task.ranks) {
      EXPECT_GE(simulation.tasks[id].begin, free[compiler::queue_of(task, rank)]);
      free[compiler::queue_of(task, rank)] = simulation.tasks[id].end;
    }
    for (const ir::Wait& wait : task.after) {
      if (wait.unit >= 0) continue;
      EXPECT_GE(simulation.tasks[id].begin, simulation.tasks[static_cast<size_t>(wait.task)].end);
    }
  }
}

TEST(Simulate, transfers_beside_computing_slow_both) {
  const compiler::Plans plans = plans_under({"1,2,1", "2,1,1"}, 1, 2);
  const Step step(plans, 2);
  cluster::Hardware hardware = arithmetic_only(1, 2);
  hardware.intra_host.bandwidth = {1e7};
  const Simulation free = simulate(step.program, step.plan, plans, hardware);
  hardware.overlap_slowdown = 2;
  const Simulation taking_turns = simulate(step.program, step.plan, plans, hardware);
  ASSERT_GT(free.ranks[0].overlap, 0);
  EXPECT_GT(taking_turns.step_seconds, free.step_seconds);
  EXPECT_GE(taking_turns.ranks[0].compute, free.ranks[0].compute + 0.99 * taking_turns.ranks[0].overlap / 2)
      << "half of the time that both run";
  hardware.intra_host.overlap_slowdown = 1;
  EXPECT_DOUBLE_EQ(simulate(step.program, step.plan, plans, hardware).step_seconds, free.step_seconds)
      << "the link's own says otherwise";
}

TEST(Simulate, a_transfer_in_one_direction_takes_half_of_what_both_take_of_a_device) {
  const compiler::Plans plans = plans_under({"1,1,2"}, 1, 2);
  const Step step(plans, 2);
  cluster::Hardware hardware = arithmetic_only(1, 2);
  hardware.intra_host.bandwidth = {1e5};
  hardware.overlap_slowdown = 2;
  const Simulation simulation = simulate(step.program, step.plan, plans, hardware);
  std::map<int, double> forward;  // the first stage's: the second micro-batch runs beside the first one's transfer
  for (size_t id = 0; id < step.program.tasks.size(); ++id) {
    const ir::Task& task = step.program.tasks[id];
    if (task.kind() == ir::TaskKind::run && task.forward() && task.stage() == 0)
      forward[task.micro_batch()] = simulation.tasks[id].end - simulation.tasks[id].begin;
  }
  EXPECT_NEAR(forward.at(1), 1.5 * forward.at(0), 1e-9);
}

TEST(Simulate, transfers_of_replicas_divide_a_port_that_they_share) {
  const compiler::Plans plans = plans_under({"2,1,2"}, 2, 2);
  const Step step(plans, 2);  // one for each replica; stages lie on hosts
  cluster::Hardware hardware = arithmetic_only(2, 2);
  hardware.inter_host->bandwidth = {1e7};
  const Simulation own = simulate(step.program, step.plan, plans, hardware);
  hardware.inter_host->shared_by = 2;
  const Simulation shared = simulate(step.program, step.plan, plans, hardware);
  for (size_t id = 0; id < step.program.tasks.size(); ++id) {
    if (step.program.tasks[id].kind() != ir::TaskKind::send) continue;
    const auto seconds = [&](const Simulation& s) { return s.tasks[id].end - s.tasks[id].begin; };
    EXPECT_NEAR(seconds(shared), 2 * seconds(own), 1e-9) << "both replicas send at once";
  }
}

// Seconds that the forward runs transfer.
double within_runs(const Step& step, const Simulation& simulation) {
  double seconds = 0;
  for (size_t id = 0; id < step.program.tasks.size(); ++id)
    if (step.program.tasks[id].kind() == ir::TaskKind::run && step.program.tasks[id].forward())
      for (const Span& span : simulation.tasks[id].spans) seconds += span.communication ? span.end - span.begin : 0;
  return seconds;
}

TEST(Simulate, collectives_of_replicas_divide_a_port_that_they_share) {
  const compiler::Plans plans = plans_under({"2,2,1"}, 1, 4, 0);  // nothing moves while they go forward
  const Step both(plans, 2), one(plans, 1);
  cluster::Hardware hardware = arithmetic_only(1, 4);
  const auto seconds = [&](const Step& step, int shared_by) {
    hardware.intra_host = {{0}, {1e7}, shared_by, {}};
    return within_runs(step, simulate(step.program, step.plan, plans, hardware));
  };
  ASSERT_GT(seconds(one, 2), 0);
  EXPECT_NEAR(seconds(both, 2), 2 * seconds(one, 2), 1e-9) << "a port for each replica";
  EXPECT_NEAR(seconds(one, 4), seconds(one, 2), 1e-9) << "the other replica rests";
  EXPECT_NEAR(seconds(both, 4), 2 * seconds(both, 2), 1e-9);
}

// Replicas with the same placement, one document each: what was computed for one of them counts for the other, on its
// own ports.
TEST(Simulate, replicas_on_hosts_of_their_own_have_the_times_of_their_documents) {
  const compiler::Plans plans = plans_under({"2,2,1"}, 2, 2, 0);
  cluster::Hardware hardware = arithmetic_only(2, 2);
  hardware.intra_host.bandwidth = {1e7};
  const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
  for (const auto& lengths : {std::vector<int>{32, 64}, {64, 32}, {64, 64}}) {
    batch::StepPlan plan{.step = 0, .valid_tokens = 1, .phases = {{.strategy = 0, .replica = {}}}};
    plan.phases[0].replica.resize(2);
    for (size_t replica = 0; replica < 2; ++replica)
      plan.phases[0].replica[replica].push_back(
          {{lengths[replica]}, {{{static_cast<i64>(replica), 0, lengths[replica], 1}}}});
    const ir::Program program = compiler::assemble(plan, plans, {});
    const Simulation simulation = simulate(program, plan, plans, hardware);
    for (size_t id = 0; id < program.tasks.size(); ++id) {
      const ir::Task& task = program.tasks[id];
      if (task.kind() != ir::TaskKind::run || !task.forward()) continue;
      const i64 T = lengths[static_cast<size_t>(task.replica())];
      double seconds = 0;
      for (const Piece& piece : segment_times(stage, stage.forward, T, task.ranks, hardware, plans.cluster()).pieces)
        seconds += piece.fixed + piece.per_pair * static_cast<double>(T * (T + 1) / 2) +
                   piece.per_square * static_cast<double>(T * T);
      EXPECT_NEAR(simulation.tasks[id].end - simulation.tasks[id].begin, seconds, 1e-9)
          << T << " tokens on replica " << task.replica();
    }
  }
}

// Collectives and moves both fill the ports of two ranks: as long as both last they get half of them.
TEST(Simulate, collectives_divide_a_port_with_what_moves_beside_them) {
  const compiler::Plans plans = plans_under({"1,2,1", "2,1,1"}, 1, 2, 1, {.overlap = false});
  const Step step(plans, 4);
  cluster::Hardware hardware = arithmetic_only(1, 2);
  hardware.intra_host.bandwidth = {1e7};
  const Simulation simulation = simulate(step.program, step.plan, plans, hardware);
  const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
  std::vector<Span> others;
  for (size_t id = 0; id < step.program.tasks.size(); ++id)
    if (step.program.tasks[id].queue != ir::Queue::compute)
      for (const Span& span : simulation.tasks[id].spans) others.push_back(span);
  double shared = 0;
  for (size_t id = 0; id < step.program.tasks.size(); ++id) {
    const ir::Task& task = step.program.tasks[id];
    if (task.kind() != ir::TaskKind::run || task.phase != 0) continue;
    const SegmentTimes alone = segment_times(stage, stage.segment(task.pass()), 32, {0, 1}, hardware, plans.cluster());
    auto span = simulation.tasks[id].spans.begin();
    for (const Piece& piece : alone.pieces) {
      if (piece.fixed + piece.per_pair + piece.per_square == 0) continue;
      ASSERT_NE(span, simulation.tasks[id].spans.end());
      ASSERT_EQ(span->communication, piece.what == Activity::communication);
      double together = 0;
      for (const Span& other : others)
        together += std::max(0.0, std::min(span->end, other.end) - std::max(span->begin, other.begin));
      if (span->communication) {
        EXPECT_NEAR(span->end - span->begin, piece.fixed + together / 2, 1e-9);
        shared += together;
      }
      ++span;
    }
  }
  EXPECT_GT(shared, 0.05 * simulation.step_seconds);
}

TEST(Simulate, sums_travel_to_replicas_of_the_state_when_they_are_complete) {
  const compiler::Plans plans = plans_under({"2,1,1"}, 1, 2, 0);
  cluster::Hardware hardware = arithmetic_only(1, 2);
  hardware.intra_host.bandwidth = {1e6};
  const Step step(plans, 2);
  const Simulation simulation = simulate(step.program, step.plan, plans, hardware);
  std::map<int, double> summed;  // unit -> when
  double broadcast = 0;
  for (size_t id = 0; id < step.program.tasks.size(); ++id) {
    const ir::Task& task = step.program.tasks[id];
    if (task.kind() == ir::TaskKind::reduce)
      summed[task.unit()] = std::max(summed[task.unit()], simulation.tasks[id].end);
    if (task.kind() != ir::TaskKind::broadcast) continue;
    EXPECT_GE(simulation.tasks[id].begin, summed.at(task.unit()));
    broadcast += simulation.tasks[id].end - simulation.tasks[id].begin;
  }
  i64 elements = 0;
  for (const ir::Param& param : plans.graph().params()) elements += ir::elements({DType::f32, param.shape}, {});
  EXPECT_NEAR(broadcast, static_cast<double>(elements) / 2 * 4 / 1e6, 0.01 * broadcast)
      << "each rank sends its half of all sums";
}

TEST(Simulate, accumulators_are_filled_with_zeros_once_a_phase) {
  const compiler::Plans plans = plans_under({"1,1,1"}, 1, 1);
  cluster::Hardware hardware = arithmetic_only(1, 1);
  const double without = simulated(plans, 3, hardware).step_seconds;
  i64 elements = 0;
  for (size_t p = 0; p < plans.graph().params().size(); ++p)
    elements += ir::elements({DType::f32, plans.graph().params()[p].shape}, {});
  hardware.device.operators[plans.graph().precision().state]["zero"] = {{{1, 1, 1, 1e-6}},
                                                                        {}};  // a microsecond an element and byte
  const i64 bytes = elements * size_of(plans.graph().precision().state);
  EXPECT_NEAR(simulated(plans, 3, hardware).step_seconds, without + 1e-6 * static_cast<double>(bytes), 1e-9);
}

// 16 documents are 8 micro-batches of each replica.
TEST(Simulate, gathers_and_zeros_of_a_block_of_micro_batches_take_their_time_once) {
  const auto plans_of = [](int every) { return plans_under({fmt::format("dp=2,zero=3,every={}", every)}, 1, 2); };
  const compiler::Plans plans = plans_of(2), blocks = plans_of(4), together = plans_of(8);
  cluster::Hardware slow = arithmetic_only(1, 2), zeroing = slow;
  slow.intra_host.bandwidth = {1e9};
  const double each = simulated(plans, 16, slow).ranks[0].communication,
               half = simulated(blocks, 16, slow).ranks[0].communication,
               once = simulated(together, 16, slow).ranks[0].communication;
  EXPECT_NEAR((each - once) / (half - once), 3, 0.01) << "three blocks more, and one";
  zeroing.device.operators[plans.graph().precision().state]["zero"] = {{{1, 1, 1, 1e-6}}, {}};
  const auto zeros = [&](const compiler::Plans& of) {
    return simulated(of, 16, zeroing).step_seconds - simulated(of, 16, arithmetic_only(1, 2)).step_seconds;
  };
  EXPECT_GT(zeros(together), 0);
  EXPECT_NEAR(zeros(plans), 4 * zeros(together), 1e-9);
  EXPECT_NEAR(zeros(blocks), 2 * zeros(together), 1e-9);
}

TEST(Simulate, working_take_over_what_their_ranks_hold) {
  const compiler::Plans plans = plans_under({"2,1,1"}, 1, 2);
  cluster::Hardware hardware = arithmetic_only(1, 2);
  const DType type = plans.graph().precision().compute;
  for (auto& [of, rates] : hardware.device.rates) rates.matmul = {kEndless};  // nothing beside the copies takes time
  hardware.device.operators[type]["copy"] = {{{1, 1, 1, 1e-6}}, {}};          // a microsecond an element and byte
  const Step step(plans, 2);
  const Simulation simulation = simulate(step.program, step.plan, plans, hardware);
  double all = 0;
  for (size_t id = 0; id < step.program.tasks.size(); ++id) {
    if (step.program.tasks[id].kind() != ir::TaskKind::allocate) continue;
    i64 most = 0;  // a rank's half of the unit
    for (const auto& [rank, elements] : compiler::copied_elements(plans, 0, -1, step.program.tasks[id].unit()))
      most = std::max(most, elements);
    const double seconds = simulation.tasks[id].end - simulation.tasks[id].begin;
    EXPECT_NEAR(seconds, 1e-6 * 2 * static_cast<double>(most * size_of(type)), 1e-9) << "read and written";
    all += seconds;
  }
  EXPECT_GT(all, 0);
}

// What is done at once takes k times the seconds that each part takes by itself.
TEST(Simulate, hides_communication_under_gradients_of_weights) {
  const compiler::Plans with = plans_under({"1,2,1"}, 1, 2, 1, {.overlap = true}),
                        without = plans_under({"1,2,1"}, 1, 2, 1, {.overlap = false});
  cluster::Hardware hardware = arithmetic_only(1, 2);
  hardware.intra_host.bandwidth = {1e7};
  for (const double k : {1.0, 1.5, 2.0}) {
    hardware.overlap_slowdown = k;
    const Simulation one_by_one = simulated(without, 2, hardware), beside = simulated(with, 2, hardware);
    const double hidden =
        beside.ranks[0].overlap - one_by_one.ranks[0].overlap;  // gradients go home beside runs in both
    EXPECT_GT(hidden, 0.1 * one_by_one.ranks[0].communication);
    EXPECT_NEAR(one_by_one.step_seconds - beside.step_seconds, (2 - k) / k * hidden, 1e-9) << k;
    const RankTime& rank = beside.ranks[0];
    EXPECT_NEAR(rank.compute + rank.communication - rank.overlap + rank.idle, beside.step_seconds, 1e-9);
  }
}

TEST(Simulate, plans_of_a_model_share_the_times_of_segments) {
  const config::ModelConfig model = compiler::small_llama();
  const auto compiled =
      std::make_shared<const compiler::CompiledModel>(compiler::training_graph(model), cluster::uniform(2, 2));
  cluster::Hardware hardware = arithmetic_only(2, 2);
  hardware.intra_host.bandwidth = {1e8};
  hardware.inter_host->bandwidth = {1e6};
  KnownSegments known;
  for (const std::vector<std::string>& texts :
       std::vector<std::vector<std::string>>{{"2,2,1", "1,2,2"}, {"1,2,2", "2,2,1"}, {"1,4,1", "1,2,2"}}) {
    std::vector<config::Strategy> strategies;
    for (const std::string& text : texts) strategies.push_back(config::strategy_from_spec(text, 4, model.layers));
    const compiler::Plans shared(compiled, strategies, 0, switching::Planner::relay);
    const compiler::Plans own = plans_under(texts, 2, 2);
    const Step step(shared, 3), other(own, 3);
    EXPECT_EQ(simulate(step.program, step.plan, shared, hardware, known).step_seconds,
              simulate(other.program, other.plan, own, hardware).step_seconds)
        << texts[0] << " and " << texts[1];
  }
}

TEST(Simulate, refuses_hardware_of_another_size) {
  const compiler::Plans plans = plans_under({"2,1,1"}, 1, 2);
  EXPECT_EQ(message_of<InternalError>([&] { simulated(plans, 1, arithmetic_only(1, 3)); }),
            "hardware of 3 ranks for a program of 2");
}

}  // namespace
}  // namespace switchyard::simulator
