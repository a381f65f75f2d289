#include "ir/program.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "layout_query.hpp"

namespace switchyard::ir {
namespace {

// A run on rank 0, its send to rank 1, and a run there.
Program small_program() {
  Program program;
  Task first{.what = ir::Run{.replica = 0, .stage = 0, .micro_batch = 0}, .phase = 0, .ranks = {0}};
  Task send{.what = Send{.replica = 0, .stage = 0, .micro_batch = 0},
            .queue = Queue::forward,
            .phase = 0,
            .ranks = {0, 1},
            .after = {{0, -1}}};
  send.messages = {{0, 1, 0, layout::whole(std::vector<i64>{8, 4})}};
  Task last{.what = ir::Run{.replica = 0, .stage = 1, .micro_batch = 0}, .phase = 0, .ranks = {1}, .after = {{1, -1}}};
  program.tasks = {first, send, last};
  program.of_rank = {{0, 1}, {1, 2}};
  return program;
}

std::string error(const std::function<void(Program&)>& change) {
  Program program = small_program();
  change(program);
  return message_of<InternalError>([&] { verify(program); });
}

TEST(VerifyProgram, accepts_tasks_in_an_order_in_which_they_can_run) {
  EXPECT_EQ(error([](Program&) {}), "no error");
}

TEST(VerifyProgram, finds_a_wait_for_a_later_task) {
  EXPECT_EQ(error([](Program& p) {
              p.tasks[0].after = {{1, -1}};
            }),
            "task 0 run phase 0 replica 0 stage 0 F mb0 waits for task 1, which does not come before it");
  EXPECT_EQ(error([](Program& p) {
              p.tasks[2].after = {{2, -1}};
            }),
            "task 2 run phase 0 replica 0 stage 1 F mb0 waits for task 2, which does not come before it");
}

TEST(VerifyProgram, finds_a_wait_that_no_common_rank_could_keep) {
  EXPECT_EQ(error([](Program& p) {
              p.tasks[2].after = {{0, -1}};
            }),
            "task 2 run phase 0 replica 0 stage 1 F mb0 waits for task 0 of other ranks");
}

TEST(VerifyProgram, finds_tasks_that_a_rank_would_not_run) {
  EXPECT_EQ(error([](Program& p) { p.of_rank[1] = {2}; }), "task 1 is missing in the list of rank 1");
  EXPECT_EQ(error([](Program& p) { p.tasks[0].ranks.clear(); }),
            "task 0 run phase 0 replica 0 stage 0 F mb0 has no ranks");
}

TEST(VerifyProgram, finds_messages_between_ranks_that_are_not_members) {
  EXPECT_EQ(error([](Program& p) {
              p.tasks[1].messages = {{0, 3, 0, layout::whole(std::vector<i64>{8, 4})}};
            }),
            "task 1 send act phase 0 replica 0 stage 0 mb0: message 0 > 3 between ranks that are not members");
}

TEST(VerifyProgram, finds_a_list_out_of_order) {
  EXPECT_EQ(error([](Program& p) {
              p.tasks.push_back(p.tasks[0]);
              p.of_rank[0] = {3, 0, 1};
            }).substr(0, 17),
            "task 0 is missing");
  EXPECT_EQ(error([](Program& p) {
              p.tasks[0].ranks = {1};
              p.tasks[1].after.clear();
              p.of_rank = {{1, 1, 0}, {0, 1, 2}};
            }),
            "a rank's tasks are out of order");
}

TEST(Fingerprint, changes_with_anything_that_ranks_must_agree_on) {
  const auto print = [](const std::function<void(Program&)>& change) {
    Program program = small_program();
    change(program);
    return program.fingerprint();
  };
  const auto same = print([](Program&) {});
  EXPECT_EQ(print([](Program&) {}), same);
  EXPECT_NE(print([](Program& p) { p.tasks[1].messages = {{0, 1, 0, layout::whole(std::vector<i64>{7, 4})}}; }), same);
  EXPECT_NE(print([](Program& p) { p.tasks[1].ranks = {0, 2}; }), same);
  EXPECT_NE(print([](Program& p) { p.tasks[2].after.clear(); }), same);
  EXPECT_NE(print([](Program& p) { std::get<ir::Run>(p.tasks[2].what).micro_batch = 1; }), same);
  EXPECT_NE(print([](Program& p) { std::swap(p.tasks[0], p.tasks[2]); }), same);
  EXPECT_NE(print([](Program& p) { std::get<ir::Run>(p.tasks[2].what).pass = Pass::BW; }), same);
  EXPECT_NE(print([](Program& p) { p.tasks[2].after[0].unit = 3; }), same);
  EXPECT_NE(print([](Program& p) { p.tasks[1].encoding.codec = codecs::Codec::int8; }), same);
  EXPECT_NE(print([](Program& p) { p.tasks[1].encoding.feedback = true; }), same);
}

TEST(Task, has_what_its_kind_has) {
  const Task run{.what = ir::Run{.replica = 1, .group = 2, .stage = 3, .micro_batch = 4, .pass = Pass::W, .piece = 5},
                 .phase = 0};
  EXPECT_EQ(run.kind(), TaskKind::run);
  EXPECT_TRUE(run.is<ir::Run>());
  EXPECT_EQ(numbers_of(run), (std::array{1, 2, 3, 4, -1, -1, 5, static_cast<int>(Pass::W)}));
  EXPECT_EQ(message_of<InternalError>([&] { run.unit(); }), "run phase 0 replica 1 stage 3 W mb4 piece 5 has no unit");
  const Task fill{.what = ZeroFill{std::get<ir::Run>(run.what)}};
  EXPECT_EQ(fill.kind(), TaskKind::zero_fill);
  EXPECT_FALSE(fill.is<ir::Run>());
  EXPECT_EQ(numbers_of(fill), numbers_of(run));
  const Task gather{.what = Gather{.group = 1, .stage = 2, .micro_batch = 3, .pass = Pass::B, .unit = 4, .round = 5}};
  EXPECT_EQ(numbers_of(gather), (std::array{-1, 1, 2, 3, 4, 5, kWhole, static_cast<int>(Pass::B)}));
  EXPECT_EQ(gather.unit(), 4);
  EXPECT_THROW(gather.replica(), InternalError);
  EXPECT_THROW(gather.piece(), InternalError);
  const Task update{.what = Update{.unit = 6}};
  EXPECT_EQ(update.unit(), 6);
  for (const auto& number :
       {&Task::replica, &Task::group, &Task::stage, &Task::micro_batch, &Task::piece, &Task::round})
    EXPECT_THROW((update.*number)(), InternalError);
  EXPECT_THROW(update.forward(), InternalError);
}

TEST(Task, has_a_queue_of_its_stage_only_between_stages) {
  EXPECT_EQ(stage_of_queue({.what = Send{.stage = 3}, .queue = Queue::backward}), 3);
  EXPECT_EQ(stage_of_queue({.what = ir::Run{.stage = 3}, .queue = Queue::compute}), 0);
  EXPECT_EQ(stage_of_queue({.what = Gather{.stage = 3}, .queue = Queue::gather}), 0);
  EXPECT_EQ(stage_of_queue({.what = Norm{}, .queue = Queue::compute}), 0);
}

TEST(NameOf, differs_between_tasks) {
  EXPECT_EQ(name_of({.what = Allocate{.unit = 2}, .phase = 1}), "allocate phase 1 u2");
  EXPECT_EQ(name_of({.what = Move{.unit = 2, .round = 0}, .phase = 1}), "move phase 1 u2 r0");
  EXPECT_EQ(name_of({.what = Reduce{.unit = 2, .round = 1}, .phase = 1}), "reduce phase 1 u2 r1");
  EXPECT_EQ(name_of({.what = ZeroFill{{.replica = 3, .stage = 1}}, .phase = 0}), "zero-fill phase 0 replica 3 stage 1");
  EXPECT_EQ(name_of({.what = ir::Run{.replica = 3, .stage = 1, .micro_batch = 2, .pass = Pass::BW}, .phase = 0}),
            "run phase 0 replica 3 stage 1 BW mb2");
  EXPECT_EQ(name_of({.what = ir::Run{.replica = 3, .stage = 1, .micro_batch = 2, .piece = 4}, .phase = 0}),
            "run phase 0 replica 3 stage 1 F mb2 piece 4");
  EXPECT_EQ(name_of({.what = ZeroFill{{.replica = 3, .stage = 1, .micro_batch = 2, .pass = Pass::W, .piece = 0}},
                     .phase = 0}),
            "zero-fill phase 0 replica 3 stage 1 W mb2 piece 0");
  EXPECT_EQ(name_of({.what = Gather{.stage = 1, .micro_batch = 2, .unit = 3, .round = 0}, .phase = 0}),
            "gather phase 0 stage 1 F mb2 u3 r0");
  EXPECT_EQ(name_of({.what = ReduceScatter{.stage = 1, .micro_batch = 2, .pass = Pass::BW, .unit = 3, .round = 1},
                     .phase = 0}),
            "reduce-scatter phase 0 stage 1 BW mb2 u3 r1");
  EXPECT_EQ(name_of({.what = Broadcast{.unit = 2, .round = 1}}), "broadcast u2 r1");
  EXPECT_EQ(name_of({.what = Norm{}}), "norm");
  EXPECT_EQ(name_of({.what = Update{.unit = 4}}), "update u4");
}

}  // namespace
}  // namespace switchyard::ir
