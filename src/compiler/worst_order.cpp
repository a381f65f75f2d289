#include "compiler/worst_order.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "base/errors.hpp"
#include "compiler/holdings.hpp"
#include "compiler/order.hpp"

namespace switchyard::compiler {
namespace {

using ir::Task;
using ir::TaskKind;

// Sent by a rank to a later position of its own.
bool is_handed_over(const Task& task, int rank) {
  return task.kind() == TaskKind::send && task.messages.sends(rank) && task.messages.receives(rank);
}

// The last compute task of each rank of a replica that is known to have ended, at some moment; -1: none.
using Clock = std::vector<int>;

void advance(Clock& clock, const Clock& to) {
  for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], to[i]);
}

// One replica of a phase: its runs and sends in the program's order, each after all that it needs.
class ReplicaClocks {
 public:
  explicit ReplicaClocks(const std::set<int>& ranks)
      : ranks_(ranks.begin(), ranks.end()), computed_(ranks_.size(), Clock(ranks_.size(), -1)) {}

  /// sent: what it makes is sent.
  void run(const Task& task, int id, bool sent) {
    for (const int rank : task.ranks) {
      Clock& clock = computed_[at(rank)];
      for (const ir::Wait& wait : task.after)
        if (const auto received = received_.extract({wait.task, rank})) advance(clock, received.mapped());
      clock[at(rank)] = id;
      if (sent) ran_[{id, rank}] = clock;
    }
  }

  /// The last compute task of each receiving rank that must have ended before the send can be received there, as (rank,
  /// task); task -1: none.
  std::vector<std::pair<int, int>> send(const Task& task, int id, int maker) {
    std::map<int, Clock> arrived;
    for (const layout::Msg& m : task.messages) {
      if (m.src == m.dst) continue;
      Clock& clock = arrived.try_emplace(m.dst, Clock(ranks_.size(), -1)).first->second;
      if (const auto ran = ran_.find({maker, m.src}); ran != ran_.end()) advance(clock, ran->second);
    }
    for (const int rank : task.ranks) ran_.erase({maker, rank});
    std::vector<std::pair<int, int>> needs;
    for (auto& [rank, clock] : arrived) {
      for (const ir::Wait& wait : task.after)
        if (wait.task != maker) clock[at(rank)] = std::max(clock[at(rank)], wait.task);
      needs.emplace_back(rank, clock[at(rank)]);
      received_[{id, rank}] = std::move(clock);
    }
    return needs;
  }

 private:
  size_t at(int rank) const { return static_cast<size_t>(std::ranges::lower_bound(ranks_, rank) - ranks_.begin()); }

  std::vector<int> ranks_;
  std::vector<Clock> computed_;                          // one for each rank, after its last run so far
  std::map<std::pair<int, int>, Clock> ran_, received_;  // task, rank: of what waits for its send, its run
};

class WorstOrder {
 public:
  /// Parameters move early to phases before `late_from`, and late to this and later ones. early: whether gathers,
  /// collectives and what the rank hands over to itself pass early, or late as well.
  WorstOrder(const ir::Program& program, const Arrivals& arrivals, int rank, int late_from, bool early)
      : program_(program), rank_(rank), to_come_(program.tasks.size(), false) {
    for (const int id : program.of_rank[static_cast<size_t>(rank)]) {
      to_come_[static_cast<size_t>(id)] = true;
      if (task(id).queue == ir::Queue::gather && early)
        early_[kGathers].tasks.push_back(id);
      else if (task(id).queue == ir::Queue::switching && task(id).phase < late_from)
        early_[kMoves].tasks.push_back(id);
      else if (task(id).queue == ir::Queue::collective && early)
        early_[kCollectives].tasks.push_back(id);
      else if (is_handed_over(task(id), rank) && early)
        early_[task(id).queue == ir::Queue::forward ? kForward : kBackward].tasks.push_back(id);
      else if (task(id).queue == ir::Queue::compute)
        compute_.push_back(id);
      else if (is_received(task(id), rank))
        receives_.emplace_back(arrivals.needs(id, rank), id);
      else
        late_[queue_of(task(id), rank)].tasks.push_back(id);
    }
    std::ranges::sort(receives_);
  }

  std::vector<int> tasks() {
    for (const int id : compute_) {
      pass_what_can();
      for (; next_receive_ < receives_.size() && receives_[next_receive_].first < id; ++next_receive_)
        pass(receives_[next_receive_].second);
      end_what_precedes(id);
      pass(id);
    }
    pass_what_can();
    for (; next_receive_ < receives_.size(); ++next_receive_) pass(receives_[next_receive_].second);
    for (auto& [key, late] : late_)
      if (late.next < late.tasks.size()) end(late.tasks.back());
    return order_;
  }

 private:
  struct Late {
    std::vector<int> tasks;
    size_t next = 0;
  };
  // Queues of what passes early; forward, backward: what is handed over.
  enum : size_t { kMoves, kGathers, kCollectives, kForward, kBackward, kLists };
  struct Early {
    std::vector<int> tasks{};
    size_t next = 0, next_wait = 0;
  };

  const Task& task(int id) const { return program_.tasks[static_cast<size_t>(id)]; }
  void pass(int id) {
    order_.push_back(id);
    to_come_[static_cast<size_t>(id)] = false;
  }
  void pass_what_can() {
    for (bool passed = true; passed;) {
      const size_t before = order_.size();
      for (Early& early : early_) pass_what_can(early);
      passed = order_.size() > before;
    }
  }
  // Waits that are met stay met.
  void pass_what_can(Early& early) {
    for (; early.next < early.tasks.size(); early.next_wait = 0) {
      const std::vector<ir::Wait>& after = task(early.tasks[early.next]).after;
      while (early.next_wait < after.size() && !to_come_[static_cast<size_t>(after[early.next_wait].task)])
        ++early.next_wait;
      if (early.next_wait < after.size()) return;
      pass(early.tasks[early.next++]);
    }
  }
  void end_what_precedes(int id) {
    for (const ir::Wait& wait : task(id).after) end(wait.task);
  }
  // Ends a task, after all that are before it in its queue.
  void end(int id) {
    if (!to_come_[static_cast<size_t>(id)]) return;
    const auto late = late_.find(queue_of(task(id), rank_));
    if (late == late_.end() || !std::ranges::binary_search(late->second.tasks, id)) {
      end_what_precedes(id);
      return pass_what_can();
    }
    while (to_come_[static_cast<size_t>(id)]) {
      const int next = late->second.tasks[late->second.next];
      end_what_precedes(next);
      ++late->second.next;
      pass(next);
    }
  }

  const ir::Program& program_;
  int rank_;
  std::vector<bool> to_come_;  // the rank's tasks
  std::vector<int> compute_, order_;
  std::array<Early, kLists> early_;
  std::vector<std::pair<int, int>> receives_;  // the task that each needs, itself
  std::map<QueueKey, Late> late_;
  size_t next_receive_ = 0;
};

}  // namespace

bool is_received(const Task& task, int rank) {
  return task.kind() == TaskKind::send && task.messages.receives(rank) && !task.messages.sends(rank);
}

Handovers handovers_of(const ir::Program& program, int rank) {
  Handovers handovers;
  for (const int id : program.of_rank[static_cast<size_t>(rank)])
    if (const Task& task = program.tasks[static_cast<size_t>(id)]; is_handed_over(task, rank))
      handovers.emplace(maker_of(task, program), id);
  return handovers;
}

int maker_of(const Task& send, const ir::Program& program) {
  for (const ir::Wait& wait : send.after)
    if (program.tasks[static_cast<size_t>(wait.task)].stage() == send.stage()) return wait.task;
  throw InternalError(fmt::format("{} waits for no run of its stage", send));
}

Arrivals::Arrivals(const ir::Program& program) : needs_(program.tasks.size()) {
  using Replica = std::pair<int, int>;  // phase, replica
  std::map<Replica, std::set<int>> ranks;
  std::vector<bool> sent(program.tasks.size(), false);  // what the run makes
  for (const Task& task : program.tasks) {
    if (task.kind() != TaskKind::send) continue;
    ranks[{task.phase, task.replica()}].insert(task.ranks.begin(), task.ranks.end());
    sent[static_cast<size_t>(maker_of(task, program))] = true;
  }
  for (const Task& task : program.tasks)
    if (task.kind() == TaskKind::run)
      if (const auto replica = ranks.find({task.phase, task.replica()}); replica != ranks.end())
        replica->second.insert(task.ranks.begin(), task.ranks.end());
  std::map<Replica, ReplicaClocks> clocks;
  for (const auto& [replica, members] : ranks) clocks.emplace(replica, members);
  for (size_t id = 0; id < program.tasks.size(); ++id) {
    const Task& task = program.tasks[id];
    if (task.kind() != TaskKind::run && task.kind() != TaskKind::send) continue;
    const auto replica = clocks.find({task.phase, task.replica()});
    if (replica == clocks.end()) continue;
    if (task.kind() == TaskKind::run)
      replica->second.run(task, static_cast<int>(id), sent[id]);
    else
      needs_[id] = replica->second.send(task, static_cast<int>(id), maker_of(task, program));
  }
}

int Arrivals::needs(int id, int rank) const {
  for (const auto& [receiver, needed] : needs_[static_cast<size_t>(id)])
    if (receiver == rank) return needed;
  return -1;
}

std::vector<Moment> worst_order(const ir::Program& program, const Arrivals& arrivals, int rank, int phase) {
  const std::vector<int> early = WorstOrder(program, arrivals, rank, phase + 1, true).tasks();
  const std::vector<int> late = WorstOrder(program, arrivals, rank, phase > 1 ? phase : 0, false).tasks();
  const auto computes = [&](int id) { return program.tasks[static_cast<size_t>(id)].queue == ir::Queue::compute; };
  // Compute tasks have one order in both, and number the gaps between them.
  std::vector<size_t> late_gap(program.tasks.size(), 0);
  size_t gap = 0;
  for (const int id : late) late_gap[static_cast<size_t>(id)] = computes(id) ? gap++ : gap;
  std::vector<std::vector<int>> ending(gap + 1);
  std::vector<Moment> moments;
  const auto end_gap = [&](size_t which) {
    for (const int id : ending[which]) moments.push_back({.task = id, .begins = false});
  };
  gap = 0;
  for (const int id : early) {
    const size_t end = late_gap[static_cast<size_t>(id)];
    if (computes(id)) end_gap(gap++);
    moments.push_back({.task = id, .ends = end <= gap});
    if (!moments.back().ends) ending[end].push_back(id);
  }
  end_gap(gap);
  return moments;
}

}  // namespace switchyard::compiler
