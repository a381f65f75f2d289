#include "compiler/order.hpp"

#include <gtest/gtest.h>

#include "compiler/compile.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

using ir::Queue;
using ir::Task;

Task task(const ir::AnyTask& what, Queue queue, std::vector<int> ranks, std::vector<ir::Wait> after = {}) {
  Task made{.what = what, .queue = queue, .phase = 0};
  made.ranks = std::move(ranks);
  made.after = std::move(after);
  return made;
}

// A transfer of `bytes` from the first rank to the last.
Task transfer(int unit, std::vector<int> ranks, i64 bytes, std::vector<ir::Wait> after = {}) {
  Task made = task(ir::Move{.unit = unit, .round = 0}, Queue::switching, std::move(ranks), std::move(after));
  made.bytes = bytes;
  made.messages = {{made.ranks.front(), made.ranks.back(), 0, layout::whole(std::vector<i64>{bytes})}};
  return made;
}

std::vector<std::string> names(const ir::Program& program) {
  std::vector<std::string> list;
  for (const Task& id : program.tasks) list.push_back(ir::name_of(id));
  return list;
}

TEST(InOrder, puts_tasks_in_the_order_of_their_estimated_starts) {
  const ir::Program program =
      in_order({transfer(0, {0, 1}, 1 << 20), transfer(1, {0, 1}, 1 << 20), transfer(2, {2, 3}, 1 << 20)},
               cluster::uniform(1, 4));
  EXPECT_EQ(names(program),
            (std::vector<std::string>{"move phase 0 u0 r0", "move phase 0 u2 r0", "move phase 0 u1 r0"}));
  EXPECT_EQ(program.of_rank[0], (std::vector<int>{0, 2}));
  EXPECT_EQ(program.of_rank[3], (std::vector<int>{1}));
  verify(program);
}

TEST(InOrder, renumbers_waits_with_the_tasks) {
  const ir::Program program = in_order({transfer(0, {0, 1}, 1 << 20), transfer(1, {0, 1}, 8), transfer(2, {2, 3}, 8),
                                        task(ir::ZeroFill{}, Queue::compute, {1}, {{1, 4}, {0, -1}})},
                                       cluster::uniform(1, 4));
  EXPECT_EQ(program.tasks.back().after, (std::vector<ir::Wait>{{0, -1}, {2, 4}}));
  verify(program);
}

TEST(InOrder, keeps_the_order_of_creation_in_each_queue_of_a_rank) {
  const ir::Program program =
      in_order({transfer(5, {0, 1}, 1 << 24), transfer(4, {1, 2}, 8), transfer(3, {2, 3}, 8)}, cluster::uniform(1, 4));
  EXPECT_EQ(names(program),
            (std::vector<std::string>{"move phase 0 u5 r0", "move phase 0 u4 r0", "move phase 0 u3 r0"}));
}

TEST(InOrder, assumes_that_links_between_hosts_are_slower) {
  const auto end = [](const cluster::Cluster& cluster) {
    return in_order({transfer(0, {0, 1}, 1 << 24)}, cluster).tasks[0].end;
  };
  EXPECT_GT(end(cluster::uniform(2, 1)), 4 * end(cluster::uniform(1, 2)));
}

TEST(InOrder, prints_the_cycle_of_a_program_that_could_deadlock) {
  // On rank 0's compute queue update u0 stands before norm, but waits for it.
  const std::string message = message_of<InternalError>([] {
    in_order({task(ir::Update{.unit = 0}, Queue::compute, {0}, {{1, -1}}), task(ir::Norm{}, Queue::compute, {0, 1})},
             cluster::uniform(1, 2));
  });
  EXPECT_EQ(message, "the program could deadlock: update u0 <- norm <- update u0");
}

TEST(InOrder, finds_a_cycle_over_several_ranks_and_queues) {
  // Ranks 0 and 1 issue two transfers in turn, each behind a task that waits for the other.
  const std::string message = message_of<InternalError>([] {
    in_order({task(ir::Reduce{.unit = 0, .round = 0}, Queue::bulk, {0, 1}, {{2, -1}}),
              task(ir::Reduce{.unit = 1, .round = 0}, Queue::bulk, {0, 1}),
              task(ir::ZeroFill{}, Queue::compute, {1}, {{1, -1}}),
              task(ir::Update{.unit = 7}, Queue::compute, {1}, {{0, -1}})},
             cluster::uniform(1, 2));
  });
  EXPECT_NE(message.find("reduce phase 0 u0 r0"), std::string::npos) << message;
  EXPECT_NE(message.find("reduce phase 0 u1 r0"), std::string::npos) << message;
  EXPECT_NE(message.find("zero-fill phase 0"), std::string::npos) << message;
  EXPECT_EQ(message.find("update"), std::string::npos) << message;  // after the cycle, not in it
}

TEST(InOrder, refuses_a_program_that_its_ranks_could_not_run) {
  const auto message = [](std::vector<Task> tasks) {
    return message_of<InternalError>([&] { in_order(std::move(tasks), cluster::uniform(1, 3)); });
  };
  EXPECT_EQ(message({transfer(0, {0, 1}, 8), task(ir::Update{.unit = 0}, Queue::compute, {2}, {{0, -1}})}),
            "task 1 update u0 waits for task 0 of other ranks");
  Task stray = transfer(0, {0, 1}, 8);
  stray.messages = {{0, 2, 0, layout::whole(std::vector<i64>{8})}};
  EXPECT_EQ(message({stray}), "task 0 move phase 0 u0 r0: message 0 > 2 between ranks that are not members");
}

TEST(InOrder, keeps_sends_of_each_stage_and_direction_in_queues_of_their_own) {
  Task forward = task(ir::Send{.stage = 0}, Queue::forward, {0, 1}),
       next = task(ir::Send{.stage = 1}, Queue::forward, {0, 1}),
       back = task(ir::Send{.stage = 1}, Queue::backward, {0, 1});
  forward.after = {{1, -1}};  // waits for one that was created later, on another stage's queue
  const ir::Program program = in_order({forward, next, back}, cluster::uniform(1, 2));
  EXPECT_EQ(program.tasks[0].stage(), 1);
  next.what = ir::Send{.stage = 0};
  EXPECT_NE(message_of<InternalError>([&] { in_order({forward, next, back}, cluster::uniform(1, 2)); }), "no error");
}

TEST(EstimateCompute, adds_arithmetic_and_memory) {
  EXPECT_EQ(estimate_compute({.flops_per_token = 5e10}, 1, 0), 1000000000);
  EXPECT_EQ(estimate_compute({.flops_per_pair = 5e10, .bytes_fixed = 1e10}, 0, 1), 2000000000);
}

TEST(BoundaryMessages, go_to_the_places_of_the_next_stages_cut) {
  const ir::Graph graph = training_graph(small_llama());
  const config::Strategy strategy = stage_strategy("test");
  const ir::StageCode two = compile_stage(graph, strategy, tensor_mesh(2), 0, 2),
                      one = compile_stage(graph, strategy, {}, 2, 4);
  const ir::Buffer &out = two.buffers[static_cast<size_t>(two.act_out)],
                   &in = one.buffers[static_cast<size_t>(one.act_in)];
  const std::vector<layout::Msg> expected = {{3, 7, 0, {2, {0, 0}, {20, 64}}}, {4, 7, 0, {2, {20, 0}, {40, 64}}}};
  EXPECT_EQ(boundary_messages(out, in, {3, 4}, {7}, 40), expected);
}

}  // namespace
}  // namespace switchyard::compiler
