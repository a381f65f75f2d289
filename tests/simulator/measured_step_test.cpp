#include "simulator/measured_step.hpp"

#include <gtest/gtest.h>

#include "simple_steps.hpp"
#include "simulator/simulate.hpp"
#include "simulator/task_work.hpp"

namespace switchyard::simulator {
namespace {

using ir::ComputedTime;

// Every rank computes each instruction of its runs for `instr(rank)` seconds, and each other task for `other` seconds.
template <class Seconds>
std::vector<std::vector<ComputedTime>> computed(const Step& step, const compiler::Plans& plans, const Seconds& instr,
                                                double other) {
  std::vector<std::vector<ComputedTime>> all(step.program.of_rank.size());
  for (size_t rank = 0; rank < all.size(); ++rank)
    for (const int id : step.program.of_rank[rank]) {
      const ir::Task& task = step.program.tasks[static_cast<size_t>(id)];
      if (task.kind() != ir::TaskKind::run) {
        if (!ir::is_transfer(task.kind())) all[rank].push_back({.task = id, .seconds = other});
        continue;
      }
      const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[static_cast<size_t>(task.stage())];
      const auto& code = stage.segment(task.pass()).code;
      for (size_t i = 0; i < code.size(); ++i)
        if (code[i].op)
          all[rank].push_back({.task = id, .instr = static_cast<int>(i), .seconds = instr(static_cast<int>(rank))});
    }
  return all;
}

double longer_on_rank_1(int rank) { return rank == 0 ? 0.25 : 1; }

double sum_of(const std::vector<ComputedTime>& times) {
  double seconds = 0;
  for (const ComputedTime& time : times) seconds += time.seconds;
  return seconds;
}

double simulated(const Step& step, const compiler::Plans& plans, const cluster::Hardware& hardware,
                 const std::vector<std::vector<ComputedTime>>& times) {
  KnownSegments known;
  const MeasuredStep measured(step.program, times);
  return simulate(step.program, step.plan, plans, hardware, known, &measured).step_seconds;
}

TEST(MeasuredStep, finds_the_slowest_rank_of_a_task_and_the_slowest_group_of_a_part_of_it) {
  ir::Program program;
  program.tasks.resize(3);
  program.tasks[1].ranks = {0, 1};
  program.tasks[2].ranks = {1};
  const MeasuredStep measured(
      program,
      {{{.task = 1, .instr = 4, .seconds = 2}, {.task = 1, .instr = 0, .seconds = 1}},
       {{.task = 2, .seconds = 7}, {.task = 1, .instr = 0, .seconds = 1.5}, {.task = 1, .instr = 4, .seconds = 1}}});
  EXPECT_EQ(measured.slowest(program.tasks[1]), 3);
  const std::vector<std::vector<int>> apart = {{0}, {1}}, alike = {{0, 1}};
  EXPECT_EQ(measured.slowest(program.tasks[1], apart, 0, 4), 1.5);
  EXPECT_EQ(measured.slowest(program.tasks[1], apart, 4, 5), 2);
  EXPECT_EQ(measured.slowest(program.tasks[1], apart, 1, 4), 0);
  EXPECT_EQ(measured.slowest(program.tasks[1], alike, 0, 4), 1.25);
  EXPECT_EQ(measured.slowest(program.tasks[1], alike, 0, 5), 2.75);
  EXPECT_EQ(measured.slowest(program.tasks[2]), 7);
  EXPECT_EQ(measured.slowest(program.tasks[0]), 0);
}

TEST(MeasuredStep, of_one_rank_lasts_as_long_as_it_computed) {
  const compiler::Plans plans = plans_under({"1,1,1"}, 1, 1);
  const Step step(plans, 3);
  const auto times = computed(
      step, plans, [](int) { return 0.25; }, 2);
  EXPECT_NEAR(simulated(step, plans, arithmetic_only(1, 1), times), sum_of(times[0]), 1e-9 * sum_of(times[0]));
}

TEST(MeasuredStep, lasts_as_long_as_the_slowest_replica_computed) {
  const compiler::Plans plans = plans_under({"2,1,1"}, 1, 2);
  const Step step(plans, 2);
  const auto times = computed(step, plans, longer_on_rank_1, 0);
  EXPECT_NEAR(simulated(step, plans, arithmetic_only(1, 2), times), sum_of(times[1]), 1e-9 * sum_of(times[1]));
}

TEST(MeasuredStep, takes_the_mean_of_ranks_with_equal_shards_and_the_slowest_of_others) {
  for (const i64 vocabulary : {64, 65}) {
    config::ModelConfig model = compiler::small_llama();
    model.vocab_size = vocabulary;
    const compiler::Plans plans(compiler::training_graph(model), {config::strategy_from_spec("1,2,1", 2, model.layers)},
                                0, cluster::uniform(1, 2), switching::Planner::relay);
    const Step step(plans, 2);
    const auto times = computed(step, plans, longer_on_rank_1, 0);
    const double mean = (sum_of(times[0]) + sum_of(times[1])) / 2;
    const int uneven = vocabulary == 64 ? 0 : 2 * 3;  // the embedding, its gradient and the head, of two documents
    EXPECT_NEAR(simulated(step, plans, arithmetic_only(1, 2), times), mean + uneven * (1 - 0.625), 1e-9 * mean);
  }
}

TEST(MeasuredStep, takes_the_slowest_of_ring_ranks) {
  const compiler::Plans plans = plans_under({"ring=2"}, 1, 2);
  Step step(plans, 0);
  step.plan.phases[0].replica[0] = {{{16, 16}, {{{0, 0, 16, 1}}, {{1, 0, 16, 1}}}}};
  step.program = compiler::assemble(step.plan, plans, {});
  const auto times = computed(step, plans, longer_on_rank_1, 0);
  EXPECT_NEAR(simulated(step, plans, arithmetic_only(1, 2), times), sum_of(times[1]), 1e-9 * sum_of(times[1]));
}

TEST(MeasuredStep, with_the_times_of_a_prediction_is_the_predicted_one) {
  for (const char* strategy : {"1,2,1", "1,1,2", "2,1,1"}) {
    const compiler::Plans plans = plans_under({strategy}, 1, 2);
    const Step step(plans, 4);
    cluster::Hardware hardware = arithmetic_only(1, 2);
    hardware.intra_host.bandwidth = {1e5};
    KnownSegments known;
    TaskWork work(step.plan, plans, hardware, known);
    std::vector<std::vector<ComputedTime>> times(2);
    for (size_t id = 0; id < step.program.tasks.size(); ++id) {
      const ir::Task& task = step.program.tasks[id];
      if (task.kind() != ir::TaskKind::run) continue;
      for (const Piece& piece : work.segment(task).times->pieces)
        if (piece.what == Activity::compute)
          for (const int rank : task.ranks)
            times[static_cast<size_t>(rank)].push_back(
                {.task = static_cast<int>(id),
                 .instr = piece.first,
                 .seconds = piece.fixed + piece.per_pair * batch::attention_pairs(work.shard(task))});
    }
    const double predicted = simulate(step.program, step.plan, plans, hardware).step_seconds;
    EXPECT_NEAR(simulated(step, plans, hardware, times), predicted, 1e-9 * predicted) << strategy;
  }
}

}  // namespace
}  // namespace switchyard::simulator
