#include "compiler/assemble.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "batch/planner.hpp"
#include "compiler/order.hpp"
#include "small_models.hpp"
#include "switching/bounds.hpp"

namespace switchyard::compiler {
namespace {

using ir::Task;
using ir::TaskKind;

constexpr int kLayers = 3;

config::ModelConfig model_of_three_layers(bool tied) {
  config::ModelConfig model = small_llama();
  model.layers = kLayers;
  model.tied_embeddings = tied;
  return model;
}

class RandomSteps {
 public:
  explicit RandomSteps(unsigned seed) : random_(seed) {}

  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  // Groups of any pipelines on shuffled ranks; some ranks may be idle.
  config::Strategy strategy(int ranks, const std::string& name) {
    config::Strategy made = stage_strategy(name);
    std::vector<int> free(static_cast<size_t>(ranks));
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), random_);
    made.schedule = static_cast<config::ScheduleKind>(below(5));
    const int chunks = made.chunk_count();
    made.recompute = static_cast<config::Recompute>(below(3));
    made.sequence_parallel = below(4) > 0;
    made.zero = below(2);
    while (!free.empty() && (made.groups.empty() || below(4) > 0)) {
      const int most = static_cast<int>(free.size());
      config::Group group;
      const int dp = 1 + below(std::min(2, most));
      const int stages = 1 + below(std::min(kLayers / chunks, most / dp)), positions = stages * chunks;
      int left = most;
      for (int s = 0; s < stages; ++s) {
        const int tp = dp * 2 + (stages - s - 1) * dp <= left ? 1 + below(2) : 1;
        config::Stage stage{{}, tensor_mesh(tp, dp), kLayers * s / positions, kLayers * (s + 1) / positions};
        for (int r = 0; r < dp * tp; ++r, --left) {
          stage.ranks.push_back(free.back());
          free.pop_back();
        }
        group.stages.push_back(std::move(stage));
      }
      for (int p = stages; p < positions; ++p) {
        config::Stage again = group.stages[static_cast<size_t>(schedule::stage_of(made.placement(), stages, p))];
        again.first_layer = kLayers * p / positions;
        again.end_layer = kLayers * (p + 1) / positions;
        group.stages.push_back(std::move(again));
      }
      made.groups.push_back(std::move(group));
    }
    return made;
  }

  // A batch over all strategies; buckets without documents have no phase.
  batch::StepPlan batch(const Plans& plans) {
    std::vector<batch::BucketSpec> buckets;
    for (size_t s = 0; s < plans.strategies().size(); ++s) {
      batch::BucketSpec bucket{.max_length = 64 >> (2 * s), .strategy = static_cast<int>(s)};
      bucket.replicas = static_cast<int>(plans.strategies()[s].replicas.size());
      bucket.multiple = plans.strategies()[s].multiple;
      bucket.micro_batch_tokens = 64;
      buckets.push_back(bucket);
    }
    std::vector<i64> lengths(static_cast<size_t>(1 + below(12)));
    for (i64& length : lengths) length = 1 + below(below(2) == 0 ? 64 : 16);
    return batch::plan_batch(0, lengths, buckets, {1, 0.01});
  }

  Plans plans() {
    const int ranks = 3 + below(5);
    std::vector<config::Strategy> strategies;
    for (int s = 0, count = 1 + below(3); s < count; ++s) strategies.push_back(strategy(ranks, std::to_string(s)));
    const int anchor = below(static_cast<int>(strategies.size()));
    const cluster::Cluster cluster =
        ranks % 2 == 0 && below(2) == 0 ? cluster::uniform(2, ranks / 2) : cluster::uniform(1, ranks);
    return Plans(training_graph(model_of_three_layers(below(2) == 0)), std::move(strategies), anchor, cluster,
                 below(2) == 0 ? switching::Planner::relay : switching::Planner::greedy);
  }

 private:
  std::mt19937 random_;
};

struct Step {
  const Plans& plans;
  const batch::StepPlan& batch;
  const ir::Program& program;
};

// Units whose parameters the stage of a run uses.
std::set<int> needed_units(const Step& step, const Task& run) {
  const CompiledStrategy& strategy =
      step.plans.strategies()[static_cast<size_t>(step.batch.phases[static_cast<size_t>(run.phase)].strategy)];
  std::set<int> units;
  for (const ir::ParamUse& use :
       strategy.groups[static_cast<size_t>(run.group())].stages[static_cast<size_t>(run.stage())].params)
    units.insert(step.plans.graph().param(use.param).unit);
  return units;
}

// Whether the inputs of a task exist: its activations, its working parameters, its gradients. Queues and waits must
// make sure of it.
bool has_inputs(const Step& step, const Task& task, const std::vector<bool>& done) {
  const ir::Program& program = step.program;
  const auto all_done = [&](const auto& needed) {
    for (size_t id = 0; id < program.tasks.size(); ++id)
      if (!done[id] && needed(program.tasks[id])) return false;
    return true;
  };
  const auto meets = [&](const Task& other) {
    return std::any_of(task.ranks.begin(), task.ranks.end(),
                       [&](int rank) { return std::binary_search(other.ranks.begin(), other.ranks.end(), rank); });
  };
  const auto same_micro_batch = [&](const Task& t) {
    return t.phase == task.phase && t.replica() == task.replica() && t.micro_batch() == task.micro_batch();
  };
  const auto awaited = [&](const Task& t) { return needed_units(step, task).contains(t.unit()); };
  switch (task.kind()) {
    case TaskKind::run:
      return all_done([&](const Task& t) {
        if (t.kind() == TaskKind::run)
          return same_micro_batch(t) && t.stage() == task.stage() && t.pass() < task.pass();
        if (t.kind() == TaskKind::send)
          return task.pass() != Pass::W && same_micro_batch(t) && t.forward() == task.forward() &&
                 t.stage() == task.stage() + (task.forward() ? -1 : 1);
        return t.phase == task.phase && (t.kind() == TaskKind::allocate || t.kind() == TaskKind::move) && meets(t) &&
               awaited(t);
      });
    case TaskKind::send:
      return all_done([&](const Task& t) {
        return t.kind() == TaskKind::run && same_micro_batch(t) && t.stage() == task.stage() &&
               t.forward() == task.forward() && t.pass() != Pass::W;
      });
    case TaskKind::move:
      return all_done([&](const Task& t) {
        const bool working = t.kind() == TaskKind::allocate && (t.phase == task.phase || t.phase == task.phase - 1);
        const bool earlier = t.kind() == TaskKind::move &&
                             (t.phase == task.phase - 1 || (t.phase == task.phase && t.round() < task.round()));
        return (working || earlier) && t.unit() == task.unit() && meets(t);
      });
    case TaskKind::reduce:
      return all_done([&](const Task& t) {
        const bool gradients = ((t.kind() == TaskKind::run && !t.forward()) || t.kind() == TaskKind::zero_fill) &&
                               t.phase == task.phase && needed_units(step, t).contains(task.unit());
        const bool earlier = t.kind() == TaskKind::reduce && t.unit() == task.unit() && t.round() < task.round();
        return (gradients || earlier) && t.phase == task.phase && meets(t);
      });
    case TaskKind::broadcast:
      return all_done([&](const Task& t) {
        return (t.kind() == TaskKind::reduce || (t.kind() == TaskKind::broadcast && t.round() < task.round())) &&
               t.unit() == task.unit() && meets(t);
      });
    case TaskKind::norm:
      return all_done([&](const Task& t) { return t.kind() == TaskKind::reduce || t.kind() == TaskKind::broadcast; });
    case TaskKind::update:
      return all_done([&](const Task& t) { return t.kind() == TaskKind::norm; });
    default:
      return true;
  }
}

// The executor's rules: each queue of a rank runs its tasks in order; a task starts when it is first in the queues of
// all its members and everything it waits for is done there. Among several tasks that could start, the last one does.
// Returns the tasks that ran.
size_t execute(const Step& step) {
  const ir::Program& program = step.program;
  std::map<QueueKey, std::vector<int>> queues;
  for (size_t rank = 0; rank < program.of_rank.size(); ++rank)
    for (const int id : program.of_rank[rank])
      queues[queue_of(program.tasks[static_cast<size_t>(id)], static_cast<int>(rank))].push_back(id);
  for (auto& [key, tasks] : queues) std::reverse(tasks.begin(), tasks.end());
  std::vector<bool> done(program.tasks.size());
  size_t finished = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t id = program.tasks.size(); id-- > 0;) {
      const Task& task = program.tasks[id];
      const auto first = [&](int rank) { return queues.at(queue_of(task, rank)).back() == static_cast<int>(id); };
      const auto waited = [&](const ir::Wait& wait) { return done[static_cast<size_t>(wait.task)]; };
      if (done[id] || !std::all_of(task.ranks.begin(), task.ranks.end(), first) ||
          !std::all_of(task.after.begin(), task.after.end(), waited))
        continue;
      EXPECT_TRUE(has_inputs(step, task, done)) << "task " << id << " " << ir::name_of(task);
      for (const int rank : task.ranks) {
        auto& queue = queues.at(queue_of(task, rank));
        queue.pop_back();
        if (queue.empty()) queue.push_back(-1);
      }
      done[id] = moved = true;
      ++finished;
      break;
    }
  }
  return finished;
}

std::vector<const Task*> tasks(const ir::Program& program, TaskKind kind, int phase) {
  std::vector<const Task*> list;
  for (const Task& task : program.tasks)
    if (task.kind() == kind && task.phase == phase) list.push_back(&task);
  return list;
}

i64 total_bytes(const std::vector<const Task*>& list) {
  return std::accumulate(list.begin(), list.end(), i64{0}, [](i64 sum, const Task* task) { return sum + task->bytes; });
}

i64 link_bytes(const switching::MovePlan& plan, const Plans& plans, DType dtype) {
  const switching::LinkBytes links = switching::traffic(plan, plans.cluster(), size_of(dtype)).links;
  return links.inter_host + links.intra_host;
}

// Returns how many runs have both kinds of gradients though the strategy splits them.
int expect_phase(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans, int p) {
  const batch::PhasePlan& phase = plan.phases[static_cast<size_t>(p)];
  const CompiledStrategy& strategy = plans.strategies()[static_cast<size_t>(phase.strategy)];
  size_t runs = 0, joined = 0, sends = 0, zeros = 0;
  for (size_t replica = 0; replica < phase.replica.size(); ++replica) {
    const size_t stages = strategy.groups[static_cast<size_t>(strategy.replicas[replica].group)].stages.size(),
                 mbs = phase.replica[replica].size();
    runs += (strategy.strategy.splits_gradients() ? 3 : 2) * stages * mbs;
    sends += 2 * (stages - 1) * mbs;
    zeros += mbs == 0 ? stages : 0;
  }
  if (strategy.strategy.splits_gradients())
    for (const Task* run : tasks(program, TaskKind::run, p)) joined += run->pass() == Pass::BW ? 1 : 0;
  EXPECT_EQ(tasks(program, TaskKind::run, p).size() + joined, runs);
  EXPECT_EQ(tasks(program, TaskKind::send, p).size(), sends);
  EXPECT_EQ(tasks(program, TaskKind::zero_fill, p).size(), zeros);
  const int previous = p == 0 ? -1 : plan.phases[static_cast<size_t>(p - 1)].strategy;
  EXPECT_EQ(total_bytes(tasks(program, TaskKind::move, p)),
            link_bytes(plans.moves(previous, phase.strategy), plans, DType::bf16));
  EXPECT_EQ(total_bytes(tasks(program, TaskKind::reduce, p)),
            link_bytes(plans.reduction(phase.strategy), plans, DType::f32));
  return static_cast<int>(joined);
}

// Every reduce of a unit comes after the last run of each of its ranks that adds to the unit's gradients, in task
// order.
void expect_reductions_after_runs(const ir::Program& program, const Plans& plans, int p, int strategy) {
  const CompiledStrategy& s = plans.strategies()[static_cast<size_t>(strategy)];
  std::map<std::pair<int, int>, size_t> last;  // rank, unit
  for (size_t id = 0; id < program.tasks.size(); ++id) {
    const Task& task = program.tasks[id];
    if (task.phase != p || (task.kind() != TaskKind::run && task.kind() != TaskKind::zero_fill)) continue;
    const ir::StageCode& code = s.groups[static_cast<size_t>(task.group())].stages[static_cast<size_t>(task.stage())];
    for (const int rank : task.ranks)
      for (const int unit :
           task.kind() == TaskKind::zero_fill ? code.units : ir::units_written(code.segment(task.pass()), task.piece()))
        last[{rank, unit}] = id;
  }
  size_t awaited = 0;
  for (size_t id = 0; id < program.tasks.size(); ++id) {
    const Task& task = program.tasks[id];
    if (task.phase != p || task.kind() != TaskKind::reduce) continue;
    for (const int rank : task.ranks)
      if (const auto run = last.find({rank, task.unit()}); run != last.end()) {
        EXPECT_GT(id, run->second) << ir::name_of(task);
        ++awaited;
      }
  }
  EXPECT_EQ(awaited > 0, !last.empty());
}

TEST(Assemble, random_steps_of_random_strategies_run_to_their_end) {
  int several_phases = 0, idle = 0, uneven = 0, broadcast = 0, joined = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    RandomSteps random(seed);
    const Plans plans = random.plans();
    const batch::StepPlan plan = random.batch(plans);
    for (const int prefetch : {kAllUnits, 2, 0}) {
      const ir::Program program = assemble(plan, plans, {.prefetch_units = prefetch, .train = true});
      verify(program);
      EXPECT_EQ(execute({plans, plan, program}), program.tasks.size());
      for (size_t p = 0; p < plan.phases.size(); ++p) {
        joined += expect_phase(program, plan, plans, static_cast<int>(p));
        expect_reductions_after_runs(program, plans, static_cast<int>(p), plan.phases[p].strategy);
        idle += !tasks(program, TaskKind::zero_fill, static_cast<int>(p)).empty();
        uneven += plans.strategies()[static_cast<size_t>(plan.phases[p].strategy)].groups.size() > 1;
      }
      EXPECT_EQ(tasks(program, TaskKind::norm, -1).size(), 1u);
      EXPECT_EQ(total_bytes(tasks(program, TaskKind::broadcast, -1)), link_bytes(plans.broadcast(), plans, DType::f32));
      broadcast += !tasks(program, TaskKind::broadcast, -1).empty();
      EXPECT_EQ(tasks(program, TaskKind::update, -1).size(), plans.units().size());
    }
    several_phases += plan.phases.size() > 1;
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  EXPECT_GT(several_phases, 10);
  EXPECT_GT(idle, 10);
  EXPECT_GT(uneven, 10);
  EXPECT_GT(broadcast, 10);
  EXPECT_GT(joined, 10);
}

TEST(Assemble, gives_the_same_tasks_for_the_same_step) {
  RandomSteps random(7);
  const Plans plans = random.plans();
  const batch::StepPlan plan = random.batch(plans);
  const ir::Program first = assemble(plan, plans, {}), second = assemble(plan, plans, {});
  EXPECT_EQ(first.fingerprint(), second.fingerprint());
  int transfers = 0;
  for (size_t id = 0; id < first.tasks.size(); ++id)
    if (first.tasks[id].kind() == ir::TaskKind::reduce) {
      EXPECT_EQ(first.tasks[id].messages.pattern(), second.tasks[id].messages.pattern()) << "steps share their lists";
      ++transfers;
    }
  EXPECT_GT(transfers, 0);
}

TEST(Assemble, an_evaluation_runs_forward_only) {
  const config::ModelConfig model = small_llama();
  const Plans plans(models::build(model, precision_from("bf16"), models::Output::logits),
                    {config::strategy_from_spec("1,2,2", 4, 2), config::strategy_from_spec("4,1,1", 4, 2)}, 0,
                    cluster::uniform(2, 2), switching::Planner::relay);
  const batch::StepPlan plan = worked_batch();
  const ir::Program program = assemble(plan, plans, {.prefetch_units = kAllUnits, .train = false});
  verify(program);
  EXPECT_EQ(execute({plans, plan, program}), program.tasks.size());
  for (const Task& task : program.tasks) {
    EXPECT_TRUE(task.kind() == TaskKind::allocate || task.kind() == TaskKind::move || task.kind() == TaskKind::run ||
                task.kind() == TaskKind::send)
        << ir::name_of(task);
    if (task.is<ir::Run>() || task.is<ir::Send>()) {
      EXPECT_TRUE(task.forward());
    }
  }
}

// A stage receives an input when it has run the one two items before.
TEST(Assemble, sends_of_an_evaluation_wait_for_their_receiver) {
  config::ModelConfig model = small_llama();
  model.layers = 8;
  for (const char* spec : {"pp=4", "dp=2,pp=2,zero=3,every=3", "tp=2,pp=2,paired=true", "pp=4,schedule=interleaved",
                           "pp=4,schedule=zb-v", "pp=2,ring=2", "pp=4 + pp=2"}) {
    SCOPED_TRACE(spec);
    const Plans plans(models::build(model, precision_from("bf16"), models::Output::loss),
                      {config::strategy_from_spec(spec, 6, model.layers)}, 0, cluster::uniform(2, 3),
                      switching::Planner::relay);
    const config::Strategy& strategy = plans.strategies()[0].strategy;
    batch::StepPlan plan = level_step(plans, 25);
    for (auto& replica : plan.phases[0].replica)
      for (batch::MicroBatch& mb : replica) {
        const auto parts = static_cast<size_t>(strategy.groups[0].stages[0].mesh[layout::StageAxis::ring]);
        mb.T.resize(parts, mb.T[0]);
        mb.shard.resize(parts, mb.shard[0]);
      }
    const ir::Program program = assemble(plan, plans, {.train = false});
    verify(program);
    const auto is_piece = [](const Task& task) { return task.is<ir::Run>() && task.piece() != ir::kWhole; };
    if (std::ranges::none_of(program.tasks, is_piece)) {
      EXPECT_EQ(execute({plans, plan, program}), program.tasks.size());
    }
    const int ahead = strategy.paired ? 4 : 2;
    int held_back = 0;
    for (const Task& task : program.tasks) {
      if (!task.is<ir::Send>()) continue;
      const int stages =
          static_cast<int>(strategy.groups[static_cast<size_t>(task.group())].stages.size()) / strategy.chunk_count();
      const bool to_next_chunk = (task.stage() + 1) % stages == 0;
      int reads = 0;
      for (const ir::Wait& wait : task.after) {
        const Task& run = program.tasks[static_cast<size_t>(wait.task)];
        if (run.stage() == task.stage()) continue;
        EXPECT_TRUE(run.stage() == task.stage() + 1 && run.micro_batch() == task.micro_batch() - ahead);
        ++reads;
      }
      EXPECT_EQ(reads, !to_next_chunk && task.micro_batch() >= ahead);
      held_back += reads;
    }
    EXPECT_GT(held_back, 20);
  }
}

// Whether a task of the kind in phase 1 waits for a run of phase 0.
bool waits_for_the_phase_before(const ir::Program& program) {
  for (const Task* task : tasks(program, TaskKind::allocate, 1))
    for (const ir::Wait& wait : task->after)
      if (program.tasks[static_cast<size_t>(wait.task)].kind() == TaskKind::run) return true;
  return false;
}

TEST(Assemble, starts_the_next_switch_under_the_running_strategy_only_with_prefetch) {
  const Plans plans = worked_plans();
  const ir::Program with = assemble(worked_batch(), plans, {.prefetch_units = kAllUnits}),
                    without = assemble(worked_batch(), plans, {.prefetch_units = 0});
  EXPECT_FALSE(waits_for_the_phase_before(with));
  EXPECT_TRUE(waits_for_the_phase_before(without));
  const auto first_move = [](const ir::Program& program) { return tasks(program, TaskKind::move, 1).front()->start; };
  EXPECT_LT(first_move(with), first_move(without));
}

TEST(Assemble, never_has_the_parameters_of_three_strategies) {
  const config::ModelConfig model = small_llama();
  std::vector<config::Strategy> strategies;
  for (const char* spec : {"1,2,2", "4,1,1", "2,2,1"}) strategies.push_back(config::strategy_from_spec(spec, 4, 2));
  const Plans plans(training_graph(model), strategies, 0, cluster::uniform(1, 4), switching::Planner::relay);
  const batch::StepPlan plan{0,
                             50,
                             {{0, {{micro_batch_of(0, 20, 20)}}},
                              {1, {{micro_batch_of(1, 9, 9)}, {micro_batch_of(2, 9, 9)}, {}, {}}},
                              {2, {{micro_batch_of(3, 12, 12)}, {}}}}};
  const ir::Program program = assemble(plan, plans, {.prefetch_units = kAllUnits});
  // Working parameters of phase 2 are made on a rank after its last run of phase 0.
  for (const Task* task : tasks(program, TaskKind::allocate, 2))
    for (const int rank : task->ranks) {
      bool waits = false;
      for (const ir::Wait& wait : task->after) {
        const Task& awaited = program.tasks[static_cast<size_t>(wait.task)];
        waits = waits || (awaited.kind() == TaskKind::run && awaited.phase == 0 &&
                          std::binary_search(awaited.ranks.begin(), awaited.ranks.end(), rank));
      }
      EXPECT_TRUE(waits) << "rank " << rank;
    }
}

// The queues' last runs stand for all before them, however many micro-batches there are.
TEST(Assemble, a_switch_waits_for_the_last_run_of_each_rank_and_queue) {
  const config::ModelConfig model = small_llama();
  std::vector<config::Strategy> strategies;
  for (const char* spec : {"tp=2,dp=2,paired=true", "dp=2,pp=2,zero=3"})
    strategies.push_back(config::strategy_from_spec(spec, 4, 2));
  const Plans plans(training_graph(model), strategies, 0, cluster::uniform(1, 4), switching::Planner::relay);
  std::vector<batch::MicroBatch> many;
  for (int i = 0; i < 6; ++i) many.push_back(micro_batch_of(i, 8, 8));
  const batch::StepPlan plan{0, 500, {{0, {many, many}}, {1, {many, many}}}};
  const ir::Program program = assemble(plan, plans, {.prefetch_units = 0});
  std::map<std::pair<int, ir::Queue>, int> last;  // run of phase 0
  for (size_t id = 0; id < program.tasks.size(); ++id)
    if (const Task& task = program.tasks[id]; task.kind() == TaskKind::run && task.phase == 0)
      for (const int rank : task.ranks) last[{rank, task.queue}] = static_cast<int>(id);
  EXPECT_EQ(last.size(), 8u) << "computing and collectives of 4 ranks";
  for (const Task* task : tasks(program, TaskKind::allocate, 1)) {
    std::set<int> awaited, expected;
    for (const ir::Wait& wait : task->after)
      if (program.tasks[static_cast<size_t>(wait.task)].kind() == TaskKind::run) awaited.insert(wait.task);
    for (const auto& [queue, id] : last)
      if (std::ranges::binary_search(task->ranks, queue.first)) expected.insert(id);
    EXPECT_EQ(awaited, expected) << ir::name_of(*task);
  }
}

Plans small_plans(const std::string& spec, int ranks) {
  return Plans(training_graph(small_llama()), {config::strategy_from_spec(spec, ranks, 2)}, 0,
               cluster::uniform(1, ranks), switching::Planner::relay);
}

// Both store and accumulate rows over as many replicas.
TEST(Assemble, makes_of_depth_the_program_that_zero_3_has_over_data) {
  for (const auto& [depth, data] :
       {std::pair("depth=4", "dp=4,zero=3"), std::pair("depth=2,tp=2", "dp=2,tp=2,zero=3"),
        std::pair("depth=2,pp=2,schedule=zb-v,chunks=2", "dp=2,pp=2,schedule=zb-v,zero=3")}) {
    config::ModelConfig model = small_llama();
    model.layers = 4;
    std::vector<std::uint64_t> fingerprints;
    for (const char* spec : {depth, data}) {
      const Plans plans(training_graph(model), {config::strategy_from_spec(spec, 4, model.layers)}, 0,
                        cluster::uniform(2, 2), switching::Planner::relay);
      const ir::Program program = assemble(level_step(plans, 3), plans, {});
      EXPECT_FALSE(tasks(program, TaskKind::gather, 0).empty());
      fingerprints.push_back(program.fingerprint());
    }
    EXPECT_EQ(fingerprints[0], fingerprints[1]) << depth;
  }
}

// Ranks 0 and 1 are the first place on data, 2 and 3 the second one, which has no documents.
TEST(Assemble, leaves_places_on_data_to_themselves_where_only_depth_cuts) {
  const batch::StepPlan plan{
      0, 60, {{0, {{micro_batch_of(0, 20, 20), micro_batch_of(1, 20, 20)}, {micro_batch_of(2, 20, 20)}, {}, {}}}}};
  const Plans alone = small_plans("dp=2,depth=2", 4);
  const ir::Program program = assemble(plan, alone, {});
  ir::verify(program);
  for (const TaskKind kind : {TaskKind::gather, TaskKind::reduce_scatter}) {
    EXPECT_FALSE(tasks(program, kind, 0).empty());
    for (const Task* task : tasks(program, kind, 0)) EXPECT_EQ(task->ranks, (std::vector<int>{0, 1}));
  }
  std::map<std::pair<int, int>, int> zeros;  // replica, micro-batch
  for (const Task* task : tasks(program, TaskKind::zero_fill, 0)) ++zeros[{task->replica(), task->micro_batch()}];
  EXPECT_EQ(zeros.size(), 3u);
  EXPECT_GT((zeros[{1, 1}]), 1) << "pieces of the micro-batch that it lacks";
  EXPECT_EQ((zeros[{2, -1}]), 1);
  EXPECT_EQ((zeros[{3, -1}]), 1);

  const ir::Program together = assemble(plan, small_plans("dp=2,depth=2,zero=2", 4), {});
  for (const Task* task : tasks(together, TaskKind::gather, 0)) EXPECT_EQ(task->ranks[0] / 2, task->ranks[1] / 2);
  for (const Task* task : tasks(together, TaskKind::reduce_scatter, 0)) EXPECT_EQ(task->ranks.size(), 4u);
}

// Counts the rounds that come first.
std::map<std::tuple<int, int, Pass>, int> transfers_of_units(const ir::Program& program, TaskKind kind) {
  std::map<std::tuple<int, int, Pass>, int> count;  // stage, unit, pass
  for (const Task* task : tasks(program, kind, 0))
    if (task->round() == 0) ++count[{task->stage(), task->unit(), task->pass()}];
  return count;
}

// 7 micro-batches are 3 blocks of 3. Whatever the schedule, W gathers nothing.
TEST(Assemble, gathers_twice_and_reduces_once_for_each_block_of_micro_batches) {
  config::ModelConfig model = small_llama();
  model.layers = 4;
  for (const char* spec : {"dp=2,zero=3,every=3", "dp=2,pp=2,zero=3,every=3", "dp=2,pp=2,zero=3,every=3,schedule=gpipe",
                           "dp=2,pp=2,zero=3,every=3,schedule=interleaved", "pp=2,depth=2,every=3,schedule=zb-v",
                           "dp=2,pp=2,zero=3,every=3,schedule=zero-bubble"}) {
    SCOPED_TRACE(spec);
    const Plans plans(training_graph(model), {config::strategy_from_spec(spec, 4, model.layers)}, 0,
                      cluster::uniform(1, 4), switching::Planner::relay);
    const ir::Program program = assemble(level_step(plans, 7), plans, {});
    ir::verify(program);
    const bool split = plans.strategies()[0].strategy.splits_gradients();
    const Pass backward = split ? Pass::B : Pass::BW, weight = split ? Pass::W : Pass::BW;
    const auto gathers = transfers_of_units(program, TaskKind::gather),
               reductions = transfers_of_units(program, TaskKind::reduce_scatter);
    const auto& stages = plans.strategies()[0].groups[0].stages;
    size_t units = 0;
    for (int stage = 0; stage < static_cast<int>(stages.size()); ++stage)
      for (const int unit : stages[static_cast<size_t>(stage)].units) {
        ++units;
        EXPECT_EQ(reductions.at({stage, unit, weight}), 3) << "unit " << unit;
        if (unit > 0 && unit <= model.layers) {
          EXPECT_EQ(gathers.at({stage, unit, Pass::F}), 3) << "unit " << unit;
          EXPECT_EQ(gathers.at({stage, unit, backward}), 3) << "unit " << unit;
        }
      }
    EXPECT_EQ(reductions.size(), units);
    for (const auto& [key, count] : gathers) EXPECT_NE(std::get<2>(key), Pass::W);
  }
}

// OLMo 2's layers begin with products of what the position before sends, and Ulysses exchanges positions ahead of
// them.
TEST(Assemble, what_reads_a_run_s_input_follows_the_send_though_a_collective_comes_first) {
  config::ModelConfig model = config::family_defaults(config::Family::olmo2);
  model.layers = 2;
  std::tie(model.hidden_size, model.heads, model.kv_heads, model.head_dim, model.ffn_size, model.vocab_size) =
      std::tuple(64, 4, 2, 16, 176, 100);
  for (const char* spec : {"ulysses=2,schedule=interleaved,chunks=2,paired=true", "ulysses=2,pp=2,paired=true"}) {
    SCOPED_TRACE(spec);
    const Plans plans(training_graph(model), {config::strategy_from_spec(spec, 4, model.layers)}, 0,
                      cluster::uniform(1, 4), switching::Planner::relay);
    const ir::Program program = assemble(level_step(plans, 3), plans, {});
    std::vector<std::set<int>> done(program.tasks.size());  // tasks that end before each begins
    std::map<std::pair<int, ir::Queue>, int> last;
    int readers = 0;
    for (size_t id = 0; id < program.tasks.size(); ++id) {
      const Task& task = program.tasks[id];
      const auto follow = [&](int before) {
        done[id].insert(before);
        done[id].insert(done[static_cast<size_t>(before)].begin(), done[static_cast<size_t>(before)].end());
      };
      for (const ir::Wait& wait : task.after) follow(wait.task);
      for (const int rank : task.ranks) {
        if (const auto before = last.find({rank, task.queue}); before != last.end()) follow(before->second);
        last[{rank, task.queue}] = static_cast<int>(id);
      }
      if (task.kind() != TaskKind::run) continue;
      const ir::StageCode& code = plans.strategies()[0].groups[0].stages[static_cast<size_t>(task.stage())];
      const int input = task.forward() ? code.act_in : code.grad_in, before = task.stage() + (task.forward() ? -1 : 1);
      const ir::PieceRange range = ir::range_of(code.segment(task.pass()), task.piece());
      const auto reads = [&](const ir::Instr& instr) { return std::ranges::count(instr.in, input) > 0; };
      const auto& instrs = code.segment(task.pass()).code;
      if (input < 0 || task.pass() == Pass::W ||
          std::none_of(instrs.begin() + static_cast<std::ptrdiff_t>(range.first),
                       instrs.begin() + static_cast<std::ptrdiff_t>(range.end), reads))
        continue;
      ++readers;
      EXPECT_TRUE(std::ranges::any_of(done[id],
                                      [&](int other) {
                                        const Task& send = program.tasks[static_cast<size_t>(other)];
                                        return send.kind() == TaskKind::send && send.stage() == before &&
                                               send.forward() == task.forward() &&
                                               send.micro_batch() == task.micro_batch();
                                      }))
          << ir::name_of(task) << " piece " << task.piece();
    }
    EXPECT_GE(readers, 2 * 3);
  }
}

// 5 micro-batches are two pairs and a single one. Nothing but a collective runs on the queue of collectives.
TEST(Assemble, micro_batches_of_a_pair_take_turns_while_their_collectives_run) {
  for (const char* spec : {"tp=2,paired=true", "tp=2,pp=2,paired=true,schedule=zb-v", "dp=2,tp=2,zero=3,paired=true"}) {
    SCOPED_TRACE(spec);
    config::ModelConfig model = small_llama();
    model.layers = 4;
    const Plans plans(training_graph(model), {config::strategy_from_spec(spec, 4, model.layers)}, 0,
                      cluster::uniform(1, 4), switching::Planner::relay);
    const ir::Program program = assemble(level_step(plans, 5), plans, {});
    ir::verify(program);
    std::map<std::pair<int, Pass>, std::vector<int>> turns;  // stage and pass: micro-batches, as they compute
    std::map<std::pair<int, Pass>, int> collectives;
    for (const int id : program.of_rank[0]) {
      const Task& task = program.tasks[static_cast<size_t>(id)];
      if (task.kind() != TaskKind::run) continue;
      const ir::Segment& segment =
          plans.strategies()[0].groups[0].stages[static_cast<size_t>(task.stage())].segment(task.pass());
      const bool collective = task.queue == ir::Queue::collective;
      EXPECT_EQ(collective, ir::is_collective(segment, task.piece())) << ir::name_of(task);
      if (collective)
        ++collectives[{task.stage(), task.pass()}];
      else
        turns[{task.stage(), task.pass()}].push_back(task.micro_batch());
    }
    for (const auto& [key, mbs] : turns) {
      std::vector<int> expected;
      const size_t pieces = mbs.size() / 5;
      for (const int first : {0, 2})
        for (size_t piece = 0; piece < pieces; ++piece) expected.insert(expected.end(), {first, first + 1});
      expected.insert(expected.end(), pieces, 4);
      EXPECT_EQ(mbs, expected);
      if (key.second == Pass::W) continue;
      EXPECT_GE(pieces, 4u) << "ahead of, between and behind the exchanges of a layer";
      EXPECT_GE(collectives[key], 5 * 4);
    }
  }
}

// The last stage goes from forward to backward at once, and its last unit is the first one to be read again.
TEST(Assemble, gathers_the_unit_at_which_the_last_stage_turns_round_once_for_both_passes) {
  for (const auto& [spec, ranks] :
       {std::pair("dp=2,zero=3", 2), {"dp=2,pp=2,zero=3", 4}, {"dp=2,pp=2,zero=3,schedule=gpipe", 4}}) {
    SCOPED_TRACE(spec);
    const Plans plans = small_plans(spec, ranks);
    const ir::Program program = assemble(level_step(plans, 3), plans, {});
    ir::verify(program);
    const auto gathers = transfers_of_units(program, TaskKind::gather);
    const auto& stages = plans.strategies()[0].groups[0].stages;
    const int last = static_cast<int>(stages.size()) - 1, head = stages.back().units.back();
    EXPECT_EQ(gathers.at({last, head, Pass::F}), 3);
    EXPECT_EQ(gathers.contains({last, head, Pass::BW}),
              plans.strategies()[0].strategy.schedule != config::ScheduleKind::one_f_one_b);
    EXPECT_EQ(gathers.at({last, head - 1, Pass::BW}), 3);
  }
}

// The most gathered parameters of chunks that a rank of a stage has while it computes: chunks whose gathers have begun
// and that are still to be read.
int most_chunks_alive(const ir::Program& program, const ir::GroupCode& group, int rank) {
  using Copy = std::tuple<int, int, Pass>;  // position, first micro-batch, pass
  std::map<Copy, int> readers;              // to come
  std::map<int, Copy> gather;               // by task
  for (const int id : program.of_rank[static_cast<size_t>(rank)]) {
    const Task& task = program.tasks[static_cast<size_t>(id)];
    if (task.kind() == TaskKind::gather) gather[id] = {task.stage(), task.micro_batch(), task.pass()};
    if (task.kind() != TaskKind::run) continue;
    const ir::StageCode& code = group.stages[static_cast<size_t>(task.stage())];
    if (!ir::units_read(code.segment(task.pass()), task.piece()).empty())
      ++readers[{task.stage(), code.first_of_block(task.micro_batch()), code.copy_pass(task.pass(), -1)}];
  }
  // A copy begins as early as waits and order allow: after the last run that a gather waits for.
  std::multimap<int, Copy> begins;
  int last = -1;
  for (const auto& [id, copy] : gather) {
    for (const ir::Wait& wait : program.tasks[static_cast<size_t>(id)].after)
      if (const Task& awaited = program.tasks[static_cast<size_t>(wait.task)];
          awaited.kind() == TaskKind::run && std::ranges::count(awaited.ranks, rank) > 0)
        last = std::max(last, wait.task);
    begins.emplace(last, copy);
  }
  int most = 0;
  auto next = begins.begin();
  std::set<Copy> alive;
  for (const int id : program.of_rank[static_cast<size_t>(rank)]) {
    const Task& task = program.tasks[static_cast<size_t>(id)];
    if (task.kind() != TaskKind::run) continue;
    for (; next != begins.end() && next->first < id; ++next) alive.insert(next->second);
    most = std::max(most, static_cast<int>(alive.size()));
    const ir::StageCode& code = group.stages[static_cast<size_t>(task.stage())];
    const Copy copy{task.stage(), code.first_of_block(task.micro_batch()), code.copy_pass(task.pass(), -1)};
    if (!ir::units_read(code.segment(task.pass()), task.piece()).empty() && --readers.at(copy) == 0) alive.erase(copy);
  }
  return most;
}

// methods.md, section 5.
TEST(Assemble, gathers_a_chunk_of_zeropp_twice_for_a_block_but_the_last_one_once) {
  config::ModelConfig model = small_llama();
  model.layers = 8;
  for (const int chunks : {1, 2, 4}) {
    SCOPED_TRACE(chunks);
    const std::string spec = fmt::format("dp=2,pp=2,zero=3,every=3,schedule=zeropp,chunks={}", chunks);
    const Plans plans(training_graph(model), {config::strategy_from_spec(spec, 4, model.layers)}, 0,
                      cluster::uniform(1, 4), switching::Planner::relay);
    const ir::Program program = assemble(level_step(plans, 9), plans, {});
    ir::verify(program);
    const auto gathers = transfers_of_units(program, TaskKind::gather),
               reductions = transfers_of_units(program, TaskKind::reduce_scatter);
    const ir::GroupCode& group = plans.strategies()[0].groups[0];
    std::map<int, i64> gathered, reduced;  // elements, by unit, on the wire
    for (const Task& task : program.tasks) {
      if (task.kind() == TaskKind::gather) gathered[task.unit()] += task.bytes / size_of(DType::bf16);
      if (task.kind() == TaskKind::reduce_scatter) reduced[task.unit()] += task.bytes / size_of(DType::f32);
    }
    for (int position = 0; position < 2 * chunks; ++position)
      for (const int unit : group.stages[static_cast<size_t>(position)].units) {
        EXPECT_EQ(reductions.at({position, unit, Pass::W}), 3);
        if (unit == 0 || unit > model.layers) continue;
        EXPECT_EQ(gathers.at({position, unit, Pass::F}), 3);
        const bool last = position >= 2 * (chunks - 1);
        EXPECT_EQ(gathers.contains({position, unit, Pass::B}), !last);
        // Each of two ranks gets the half of a layer's elements that it lacks, for each of 3 blocks. So a layer of GPT,
        // of 12 h^2 elements, moves 36 h^2 of them for a block, and 24 h^2 in the last chunk.
        i64 elements = 0;
        for (const int p : plans.units()[static_cast<size_t>(unit)].tensors)
          elements += plans.graph().param(p).shape.elements();
        EXPECT_EQ(gathered[unit], 3 * (last ? 1 : 2) * elements);
        EXPECT_EQ(reduced[unit], 3 * elements);
      }
    for (const auto& [key, count] : gathers) EXPECT_NE(std::get<2>(key), Pass::W);
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(most_chunks_alive(program, group, rank), 2) << "rank " << rank;
  }
}

// Replica 1 has 1 of 4 micro-batches: it leaves out runs, not transfers, and fills with zeros what a block of which it
// has nothing would make.
TEST(Assemble, leaves_out_the_runs_of_a_replica_that_has_fewer_micro_batches_of_a_block) {
  const batch::StepPlan plan{
      0,
      80,
      {{0,
        {{micro_batch_of(0, 20, 20), micro_batch_of(1, 20, 20), micro_batch_of(2, 20, 20), micro_batch_of(3, 20, 20)},
         {micro_batch_of(4, 20, 20)}}}}};
  const ir::Program program = assemble(plan, small_plans("dp=2,zero=3,every=2", 2), {});
  ir::verify(program);
  std::set<int> run, zeros;  // micro-batches of replica 1
  for (const Task* task : tasks(program, TaskKind::run, 0))
    if (task->replica() == 1) run.insert(task->micro_batch());
  for (const Task* task : tasks(program, TaskKind::zero_fill, 0)) {
    EXPECT_EQ(task->replica(), 1);
    zeros.insert(task->micro_batch());
  }
  EXPECT_EQ(run, (std::set<int>{0}));
  EXPECT_EQ(zeros, (std::set<int>{2})) << "the first micro-batch of the block that it lacks";
  for (const TaskKind kind : {TaskKind::gather, TaskKind::reduce_scatter})
    for (const Task* task : tasks(program, kind, 0)) {
      EXPECT_EQ(task->ranks, (std::vector<int>{0, 1}));
      EXPECT_EQ(task->micro_batch() % 2, 0);
    }
}

// All copies must be updated alike.
TEST(Assemble, sums_go_to_copies_as_they_are_or_lossless_by_the_strategy_that_home_is_on) {
  using codecs::Codec;
  const auto plans_with = [](Codec switches) {
    const config::ModelConfig model = small_llama();
    config::StrategySettings settings;
    settings.zero = 0;
    settings.compression = {.gradients = Codec::int8, .switches = switches};
    return Plans(training_graph(model),
                 {config::strategy_from_spec("2,2,1", 4, model.layers, settings),
                  config::strategy_from_spec("1,4,1", 4, model.layers)},
                 0, cluster::uniform(2, 2), switching::Planner::relay);
  };
  for (const Codec switches : {Codec::none, Codec::lossless}) {
    const Plans plans = plans_with(switches);
    const ir::Program program = assemble(level_step(plans, 1), plans, {});
    int broadcasts = 0;
    for (const Task& task : program.tasks) {
      if (task.kind() == TaskKind::broadcast) {
        EXPECT_EQ(task.encoding.codec, switches);
        ++broadcasts;
      }
      if (task.kind() == TaskKind::reduce) {
        EXPECT_EQ(task.encoding.codec, task.phase == 0 ? Codec::int8 : Codec::none);
      }
    }
    EXPECT_GT(broadcasts, 0);
  }
}

TEST(Assemble, refuses_a_batch_for_other_replicas) {
  const Plans plans = worked_plans();
  batch::StepPlan plan = worked_batch();
  plan.phases[1].replica.pop_back();
  EXPECT_EQ(message_of<InternalError>([&] { assemble(plan, plans, {}); }), "phase 1: 3 replicas planned for 4");
}

}  // namespace
}  // namespace switchyard::compiler
