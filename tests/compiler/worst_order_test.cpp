#include "compiler/worst_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "compiler/memory.hpp"
#include "compiler/order.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

using ir::Task;
using ir::TaskKind;

constexpr int kLayers = 4, kMicroBatches = 7;

Plans scheduled_plans(const std::vector<std::string>& specs, int ranks, config::ScheduleKind kind, int cap = 0) {
  config::ModelConfig model = small_llama();
  model.layers = kLayers;
  config::StrategySettings settings;
  settings.schedule = kind;
  settings.activation_cap = cap;
  std::vector<config::Strategy> strategies;
  for (const std::string& spec : specs)
    strategies.push_back(config::strategy_from_spec(spec, ranks, kLayers, settings));
  return Plans(training_graph(model, "fp64"), std::move(strategies), 0, cluster::uniform(1, ranks),
               switching::Planner::relay);
}

// A step in which one rank computes as late as it can: a task only when nothing else in the whole program can go on.
// What of its other tasks is done by then can be done that early, and nothing can be earlier.
class LateRank {
 public:
  LateRank(const ir::Program& program, int late) : program_(program), late_(late) {
    for (int rank = 0; rank < static_cast<int>(program.of_rank.size()); ++rank)
      for (const int id : program.of_rank[static_cast<size_t>(rank)]) queues_[queue_of(task(id), rank)].push_back(id);
  }

  // Before each of its compute tasks: visit(task, tasks done).
  template <class Visit>
  void run(Visit visit) {
    for (;;) {
      while (advance()) continue;
      std::vector<int>& own = queues_.at({late_, ir::Queue::compute, 0});
      const size_t next = done_in_[{late_, ir::Queue::compute, 0}]++;
      if (next == own.size()) break;
      ASSERT_TRUE(may_start(own[next], late_)) << ir::name_of(task(own[next]));
      visit(own[next], done_);
      done_.insert({own[next], late_});
    }
    for (const auto& [key, tasks] : queues_)
      if (!is_late(key)) {
        EXPECT_EQ(done_in_[key], tasks.size());
      }
  }

 private:
  const Task& task(int id) const { return program_.tasks[static_cast<size_t>(id)]; }
  bool is_late(const QueueKey& key) const {
    return std::get<0>(key) == late_ && std::get<1>(key) == ir::Queue::compute;
  }
  bool is_on(int id, int rank) const { return std::ranges::find(task(id).ranks, rank) != task(id).ranks.end(); }

  // What of its waits are on the rank.
  bool may_start(int id, int rank) const {
    return std::ranges::all_of(task(id).after, [&](const ir::Wait& wait) {
      return !is_on(wait.task, rank) || done_.contains({wait.task, rank});
    });
  }
  bool is_next(int id, int rank) {
    const QueueKey key = queue_of(task(id), rank);
    const size_t next = done_in_[key];
    return next < queues_.at(key).size() && queues_.at(key)[next] == id;
  }
  // A message passes when both sides are there.
  bool may_end(int id, int rank) {
    if (!may_start(id, rank)) return false;
    if (!ir::is_transfer(task(id).kind())) return true;
    return std::ranges::all_of(task(id).messages, [&](const layout::Msg& m) {
      const int peer = m.src == rank ? m.dst : m.src;
      return (m.src != rank && m.dst != rank) || peer == rank || done_.contains({id, peer}) ||
             (is_next(id, peer) && may_start(id, peer));
    });
  }
  bool advance() {
    bool any = false;
    for (const auto& [key, tasks] : queues_) {
      if (is_late(key)) continue;
      for (size_t& next = done_in_[key]; next < tasks.size() && may_end(tasks[next], std::get<0>(key)); ++next) {
        done_.insert({tasks[next], std::get<0>(key)});
        any = true;
      }
    }
    return any;
  }

  const ir::Program& program_;
  int late_;
  std::map<QueueKey, std::vector<int>> queues_;
  std::map<QueueKey, size_t> done_in_;
  std::set<std::pair<int, int>> done_;  // task, rank
};

TEST(WorstOrder, AReceiveIsNeverDoneBeforeWhatItNeedsOfItsOwnRank) {
  int early = 0, exact = 0;
  for (const auto kind :
       {config::ScheduleKind::one_f_one_b, config::ScheduleKind::gpipe, config::ScheduleKind::interleaved,
        config::ScheduleKind::zero_bubble, config::ScheduleKind::zb_v})
    for (const std::vector<std::string>& specs :
         std::vector<std::vector<std::string>>{{"1,1,2"}, {"1,2,2"}, {"2,1,2", "1,2,2"}}) {
      const int ranks = specs[0] == "1,1,2" ? 2 : 4;
      const Plans plans = scheduled_plans(specs, ranks, kind);
      for (const bool train : {true, false}) {
        const ir::Program program = assemble(level_step(plans, kMicroBatches, 8), plans, {.train = train});
        const Arrivals arrivals(program);
        for (int rank = 0; rank < ranks; ++rank) {
          std::map<int, int> first_seen;  // receive -> the compute task before which it is done
          LateRank(program, rank).run([&](int id, const std::set<std::pair<int, int>>& done) {
            for (const int other : program.of_rank[static_cast<size_t>(rank)])
              if (is_received(program.tasks[static_cast<size_t>(other)], rank) && done.contains({other, rank}))
                first_seen.try_emplace(other, id);
          });
          for (const auto& [receive, before] : first_seen) {
            const int needed = arrivals.needs(receive, rank);
            EXPECT_LT(needed, before) << ir::name_of(program.tasks[static_cast<size_t>(receive)]) << " at rank "
                                      << rank;
            const std::vector<int>& tasks = program.of_rank[static_cast<size_t>(rank)];
            const auto next = std::ranges::find_if(tasks, [&](int id) {
              return id > needed && program.tasks[static_cast<size_t>(id)].queue == ir::Queue::compute;
            });
            ++(next != tasks.end() && *next == before ? exact : early);
          }
        }
      }
    }
  EXPECT_GT(exact, 9 * early) << "mostly it is the very task";
}

TEST(WorstOrder, BeginsAndEndsEveryTaskOnceAndBeginsItAfterTheBeginOfThoseThatItWaitsFor) {
  for (const auto& [specs, kind] :
       {std::pair(std::vector<std::string>{"2,1,2", "1,2,2"}, config::ScheduleKind::zero_bubble),
        {{"tp=2,pp=2,paired=true", "dp=2,tp=2,zero=3,paired=true"}, config::ScheduleKind::one_f_one_b}}) {
    const Plans plans = scheduled_plans(specs, 4, kind);
    const ir::Program program = assemble(level_step(plans, kMicroBatches, 8), plans, {});
    const Arrivals arrivals(program);
    std::map<ir::Queue, int> apart;  // tasks that begin at another moment than they end
    for (int rank = 0; rank < 4; ++rank) {
      const std::vector<int>& tasks = program.of_rank[static_cast<size_t>(rank)];
      const std::set<int> own(tasks.begin(), tasks.end());
      std::set<int> begun, ended;
      for (const auto& [id, begins, ends] : worst_order(program, arrivals, rank, 1)) {
        const Task& task = program.tasks[static_cast<size_t>(id)];
        EXPECT_TRUE(begins || ends);
        if (begins) {
          EXPECT_TRUE(begun.insert(id).second) << ir::name_of(task);
        }
        const bool compute = task.queue == ir::Queue::compute;
        if (begins && (compute || task.queue == ir::Queue::switching)) {
          for (const ir::Wait& wait : task.after)
            EXPECT_TRUE(!own.contains(wait.task) || (compute ? ended : begun).contains(wait.task)) << ir::name_of(task);
        }
        if (ends) {
          EXPECT_TRUE(begun.contains(id) && ended.insert(id).second) << ir::name_of(task);
        }
        apart[task.queue] += begins != ends;
      }
      EXPECT_EQ(ended, own);
    }
    EXPECT_EQ(apart[ir::Queue::compute] + apart[ir::Queue::forward] + apart[ir::Queue::bulk], 0);
    EXPECT_GT(apart[ir::Queue::switching], 0);
    const bool paired = specs.back().ends_with("paired=true");
    EXPECT_EQ(apart[ir::Queue::collective] > 0, paired);
    EXPECT_EQ(apart[ir::Queue::gather] > 0, paired) << "of ZeRO-3";
  }
}

// Units of the second strategy whose move has begun before the first run of the first strategy, and has ended before
// the first run of the second one.
TEST(WorstOrder, MovesParametersFromAsEarlyUntilAsLateAsItCan) {
  const Plans plans = scheduled_plans({"1,4,1", "1,1,4"}, 4, config::ScheduleKind::one_f_one_b);
  const ir::Program program = assemble(level_step(plans, kMicroBatches, 8), plans, {});
  const Arrivals arrivals(program);
  for (int rank = 0; rank < 4; ++rank) {
    int begun = 0, ended_before_first = 0, ended = 0, phase = -1;
    for (const auto& [id, begins, ends] : worst_order(program, arrivals, rank, 1)) {
      const Task& task = program.tasks[static_cast<size_t>(id)];
      if (task.kind() == TaskKind::run) phase = std::max(phase, task.phase);
      if (phase == 1) break;
      if (task.kind() != TaskKind::move || task.phase != 1) continue;
      begun += begins && phase < 0;
      (phase < 0 ? ended_before_first : ended) += ends;
    }
    EXPECT_EQ(begun, static_cast<int>(plans.units().size())) << rank;
    EXPECT_EQ(ended_before_first, 0) << rank;
    const std::vector<int>& units = plans.strategies()[1].groups[0].stages[static_cast<size_t>(rank)].units;
    EXPECT_EQ(ended, units.back() + 1) << "in their order, up to those of its stage " << rank;
  }
}

TEST(WorstOrder, AStageMakesNoThirdValueBeforeItsFirstIsSent) {
  for (const auto kind : {config::ScheduleKind::gpipe, config::ScheduleKind::zero_bubble}) {
    const Plans plans = scheduled_plans({"1,1,4"}, 4, kind, kind == config::ScheduleKind::zero_bubble ? 7 : 0);
    const ir::Program program = assemble(level_step(plans, kMicroBatches, 8), plans, {});
    const Arrivals arrivals(program);
    for (int rank = 0; rank < 4; ++rank) {
      std::map<Pass, int> unsent;
      int most = 0;
      for (const Moment& moment : worst_order(program, arrivals, rank, 0)) {
        const Task& task = program.tasks[static_cast<size_t>(moment.task)];
        if ((!task.is<ir::Run>() && !task.is<ir::Send>()) || task.stage() != rank) continue;
        const bool sends = task.forward() ? rank < 3 : rank > 0;
        if (task.is<ir::Run>() && task.pass() != Pass::W && sends)
          most = std::max(most, ++unsent[task.forward() ? Pass::F : Pass::B]);
        if (task.is<ir::Send>()) --unsent[task.forward() ? Pass::F : Pass::B];
      }
      EXPECT_EQ(most, 2) << "rank " << rank;
    }
  }
}

TEST(WorstOrder, BoundsTheMemoryOfEveryRankAndIsExactWithoutPipelines) {
  for (const auto& [specs, fixed] :
       std::vector<std::pair<std::vector<std::string>, bool>>{{{"2,2,1"}, true}, {{"1,2,2"}, false}}) {
    const Plans plans = scheduled_plans(specs, 4, config::ScheduleKind::one_f_one_b);
    const batch::StepPlan plan = level_step(plans, kMicroBatches, 8);
    const ir::Program program = assemble(plan, plans, {});
    const std::vector<MemoryPeak> expected = predict_all(program, plan, plans),
                                  bound = predict_all(program, plan, plans, ExecutionOrder::worst);
    bool more = false;
    for (size_t rank = 0; rank < 4; ++rank) {
      EXPECT_GE(bound[rank].total, expected[rank].total);
      more |= bound[rank].total > expected[rank].total;
    }
    EXPECT_EQ(more, !fixed);
  }
}

}  // namespace
}  // namespace switchyard::compiler
