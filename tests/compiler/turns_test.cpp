// Micro-batches that take turns: what pieces of a micro-batch on several queues do with a buffer has an order.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include "compiler/order.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

using ir::Task;
using ir::TaskKind;

// Which tasks of a program have ended before a task starts, by queues and waits.
class Before {
 public:
  explicit Before(const ir::Program& program) {
    std::map<QueueKey, int> last;
    for (size_t id = 0; id < program.tasks.size(); ++id) {
      const Task& task = program.tasks[id];
      std::vector<std::uint64_t>& before = before_.emplace_back(program.tasks.size() / 64 + 1);  // a bit of each task
      const auto add = [&](int other) {
        before[static_cast<size_t>(other) / 64] |= std::uint64_t{1} << other % 64;
        for (size_t i = 0; i <= static_cast<size_t>(other) / 64; ++i)
          before[i] |= before_[static_cast<size_t>(other)][i];
      };
      for (const ir::Wait& wait : task.after)
        if (wait.unit < 0) add(wait.task);  // else for a part of it, or ahead of a part of this one
      for (const int rank : task.ranks) {
        const auto [known, first] = last.try_emplace(queue_of(task, rank), static_cast<int>(id));
        if (!first) add(std::exchange(known->second, static_cast<int>(id)));
      }
    }
  }
  bool ends_before(int task, int other) const {
    return (before_[static_cast<size_t>(other)][static_cast<size_t>(task) / 64] >> task % 64 & 1) != 0;
  }

 private:
  std::vector<std::vector<std::uint64_t>> before_;
};

enum class Use { write, read, drop };
struct Access {
  int task;
  Use use;
};

// By buffer: who uses it, in the order of the segments of a micro-batch's stage. tasks: their pieces in this order.
std::map<int, std::vector<Access>> accesses_of(const ir::StageCode& stage, const ir::Program& program,
                                               const std::vector<int>& tasks) {
  std::map<int, std::vector<Access>> made;
  const auto activation = [&](int b) {
    return stage.buffers[static_cast<size_t>(b)].kind == ir::ValueKind::activation;
  };
  const auto use = [&](int task, const std::vector<int>& buffers, Use use) {
    for (const int b : buffers)
      if (activation(b)) made[b].push_back({task, use});
  };
  for (const int id : tasks) {
    const Task& task = program.tasks[static_cast<size_t>(id)];
    const ir::Segment& segment = stage.segment(task.pass());
    const auto start = [&](size_t i) {
      use(id, segment.code[i].in, Use::read);
      use(id, segment.code[i].out, Use::write);
    };
    ir::walk(segment, task.piece(), start, [&](size_t i) { use(id, segment.code[i].drop, Use::drop); });
  }
  return made;
}

int expect_an_order(const std::string& spec, const config::ModelConfig& model) {
  const config::StrategyText text = config::read_strategy_text(spec);
  const int ranks = static_cast<int>(config::ranks_of(text.groups));
  const Plans plans(training_graph(model), {config::strategy_from_spec(spec, ranks, model.layers)}, 0,
                    cluster::uniform(1, ranks), switching::Planner::relay);
  batch::StepPlan plan = level_step(plans, 3);  // a pair and a single one
  const auto& stages = plans.strategies()[0].groups[0].stages;
  for (auto& replica : plan.phases[0].replica)
    for (batch::MicroBatch& mb : replica) {
      const auto parts =
          static_cast<size_t>(plans.strategies()[0].strategy.groups[0].stages[0].mesh[layout::StageAxis::ring]);
      mb.T.resize(parts, mb.T[0]);
      mb.shard.resize(parts, mb.shard[0]);
    }
  const ir::Program program = assemble(plan, plans, {});
  const Before before(program);
  std::map<std::tuple<int, int, int>, std::map<std::pair<Pass, int>, int>> runs;  // replica, stage, micro-batch
  for (size_t id = 0; id < program.tasks.size(); ++id)
    if (const Task& task = program.tasks[id]; task.kind() == TaskKind::run)
      runs[{task.replica(), task.stage(), task.micro_batch()}][{task.pass(), task.piece()}] = static_cast<int>(id);
  int compared = 0;
  for (const auto& [who, pieces] : runs) {
    const ir::StageCode& stage = stages[static_cast<size_t>(std::get<1>(who))];
    std::vector<int> tasks;
    for (const auto& [piece, id] : pieces) tasks.push_back(id);
    for (const auto& [buffer, accesses] : accesses_of(stage, program, tasks))
      for (size_t i = 0; i < accesses.size(); ++i)
        for (size_t j = i + 1; j < accesses.size(); ++j) {
          const auto [first, how] = accesses[i];
          const auto [second, then] = accesses[j];
          if (first == second || (how == Use::read && then == Use::read)) continue;
          EXPECT_TRUE(before.ends_before(first, second))
              << spec << ": " << stage.buffers[static_cast<size_t>(buffer)].name << " in "
              << ir::name_of(program.tasks[static_cast<size_t>(first)]) << " and in "
              << ir::name_of(program.tasks[static_cast<size_t>(second)]);
          ++compared;
        }
  }
  return compared;
}

// With norms of each head, biases wherever there can be some, and one matrix for embedding and head.
config::ModelConfig tied_llama_with_biases() {
  config::ModelConfig model = small_llama();
  model.qkv_bias = model.o_bias = model.mlp_bias = model.qk_norm = model.tied_embeddings = true;
  return model;
}

// With norms of all queries and all keys, over what inner cuts.
config::ModelConfig small_olmo2() {
  config::ModelConfig model = small_llama();
  model.family = config::Family::olmo2;
  return model;
}

// What is computed for weights drops what the backward pass left, which collectives of that pass may still have to
// read.
TEST(Turns, what_pieces_on_two_queues_do_with_a_buffer_has_an_order) {
  for (const config::ModelConfig& model : {small_llama(), tied_llama_with_biases(), small_olmo2(), small_gpt2()})
    for (const char* degrees :
         {"tp=2", "tp=2,inner=2", "tp=2,inner=2,depth=2", "tp=2,ring=2,inner=2", "tp=2,ulysses=2,inner=2,zero=3"})
      for (const char* schedule : {"1f1b,pp=2", "zero-bubble,pp=2", "zb-v"})
        for (const char* recompute : {"none", "full"}) {
          if (model.heads % 4 != 0 && std::string(degrees).find("ulysses") != std::string::npos) continue;
          EXPECT_GT(expect_an_order(
                        fmt::format("{},schedule={},recompute={},paired=true", degrees, schedule, recompute), model),
                    100);
        }
}

}  // namespace
}  // namespace switchyard::compiler
