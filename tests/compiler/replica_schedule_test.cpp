#include "compiler/replica_schedule.hpp"

#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "schedule/interleaved.hpp"
#include "schedule/replay.hpp"
#include "schedule/zero_bubble.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

using config::ScheduleKind;

CompiledStrategy compiled(ScheduleKind kind, int cap = 0, schedule::Schedule order = {}) {
  config::ModelConfig model = small_llama();
  model.layers = 6;
  config::StrategySettings settings;
  settings.schedule = kind;
  settings.activation_cap = cap;
  config::Strategy strategy = config::strategy_from_spec("1,1,3", 3, model.layers, settings);
  strategy.order = std::move(order);
  return Plans(training_graph(model), {strategy}, 0, cluster::uniform(1, 3), switching::Planner::relay).strategies()[0];
}

std::vector<batch::MicroBatch> micro_batches(int count) {
  std::vector<batch::MicroBatch> made;
  for (int i = 0; i < count; ++i) made.push_back(micro_batch_of(i, 64, 64));
  return made;
}

schedule::Schedule schedule_for(const CompiledStrategy& s, int count, bool train = true) {
  return schedule_of(s, 0, count, micro_batches(count), train);
}

TEST(ReplicaSchedule, is_the_one_that_the_strategy_names) {
  EXPECT_EQ(schedule_for(compiled(ScheduleKind::gpipe), 5).order, schedule::gpipe(3, 5).order);
  EXPECT_EQ(schedule_for(compiled(ScheduleKind::one_f_one_b), 5).order, schedule::one_f_one_b(3, 5).order);
  EXPECT_EQ(schedule_for(compiled(ScheduleKind::interleaved), 6), schedule::interleaved(3, 6, 2));
  EXPECT_EQ(schedule_for(compiled(ScheduleKind::zb_v), 6).placement, schedule::Placement::v);
}

TEST(ReplicaSchedule, zero_bubble_holds_as_much_as_1f1b_by_default) {
  for (const auto& [cap, most] : {std::pair(0, 3), {5, 5}, {2, 2}}) {
    const schedule::Schedule made = schedule_for(compiled(ScheduleKind::zero_bubble, cap), 9);
    schedule::verify(made);
    for (const int held : schedule::peak_in_flight(made.order)) EXPECT_LE(held, most);
    EXPECT_EQ(schedule::peak_in_flight(made.order)[0], most);
  }
}

TEST(ReplicaSchedule, of_an_evaluation_runs_forwards_in_the_order_of_chunks) {
  for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zb_v}) {
    const schedule::Schedule made = schedule_for(compiled(kind), 2, false);
    schedule::verify(made);
    for (const auto& items : made.order)
      for (int i = 0; i < 2 * made.chunks; ++i) EXPECT_EQ(items[static_cast<size_t>(i)].pass, Pass::F);
  }
}

TEST(ReplicaSchedule, by_hand_leaves_out_what_a_replica_lacks_and_is_refused_where_it_has_too_few) {
  const CompiledStrategy s = compiled(ScheduleKind::one_f_one_b, 0, schedule::gpipe(3, 4));
  EXPECT_EQ(schedule_for(s, 2).order, schedule::gpipe(3, 2).order);
  EXPECT_EQ(message_of<UserError>([&] { schedule_for(s, 5); }),
            "strategy \"1,1,3\": its schedule has 4 micro-batches, but a step has 5 on one replica. Give it more, or "
            "make the batch smaller.");
}

}  // namespace
}  // namespace switchyard::compiler
