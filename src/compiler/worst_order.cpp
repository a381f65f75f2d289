#include "compiler/worst_order.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "compiler/order.hpp"

namespace switchyard::compiler {
namespace {

using ir::Task;
using ir::TaskKind;

// The last compute row of each rank of a lane that is known to have ended, at some moment; -1: none.
using Clock = std::vector<int>;

void advance(Clock& clock, const Clock& to) {
  for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], to[i]);
}

// One lane of a phase: its runs and sends in the program's order, each after all that it needs.
class LaneClocks {
 public:
  explicit LaneClocks(const std::set<int>& ranks) : ranks_(ranks.begin(), ranks.end()), computed_(ranks_.size(), Clock(ranks_.size(), -1)) {}

  /// sent: what it makes is sent.
  void run(const Task& task, int row, bool sent) {
    for (const int rank : task.ranks) {
      Clock& clock = computed_[at(rank)];
      for (const ir::Wait& wait : task.after)
        if (const auto received = received_.extract({wait.row, rank})) advance(clock, received.mapped());
      clock[at(rank)] = row;
      if (sent) ran_[{row, rank}] = clock;
    }
  }

  /// What it needs of each receiving rank.
  std::vector<std::pair<int, int>> send(const Task& task, int row) {
    std::map<int, Clock> arrived;
    for (const layout::Msg& m : task.messages) {
      if (m.src == m.dst) continue;
      Clock& clock = arrived.try_emplace(m.dst, Clock(ranks_.size(), -1)).first->second;
      for (const ir::Wait& wait : task.after)
        if (const auto ran = ran_.find({wait.row, m.src}); ran != ran_.end()) advance(clock, ran->second);
    }
    for (const int rank : task.ranks)
      for (const ir::Wait& wait : task.after) ran_.erase({wait.row, rank});
    std::vector<std::pair<int, int>> needs;
    for (auto& [rank, clock] : arrived) {
      needs.emplace_back(rank, clock[at(rank)]);
      received_[{row, rank}] = std::move(clock);
    }
    return needs;
  }

 private:
  size_t at(int rank) const { return static_cast<size_t>(std::ranges::lower_bound(ranks_, rank) - ranks_.begin()); }

  std::vector<int> ranks_;
  std::vector<Clock> computed_;                          // of each rank, after its last run so far
  std::map<std::pair<int, int>, Clock> ran_, received_;  // row, rank: of what waits for its send, its run
};

class WorstOrder {
 public:
  WorstOrder(const ir::Program& program, const Arrivals& arrivals, int rank)
      : program_(program), rank_(rank), to_come_(program.rows.size(), false) {
    for (const int row : program.of_rank[static_cast<size_t>(rank)]) {
      to_come_[static_cast<size_t>(row)] = true;
      if (task(row).queue == ir::Queue::switching)
        switching_.push_back(row);
      else if (task(row).queue == ir::Queue::compute)
        compute_.push_back(row);
      else if (is_received(task(row), rank))
        receives_.emplace_back(arrivals.needs(row, rank), row);
      else
        late_[queue_of(task(row), rank)].rows.push_back(row);
    }
    std::ranges::sort(receives_);
  }

  std::vector<int> rows() {
    for (const int row : compute_) {
      switch_what_can();
      for (; next_receive_ < receives_.size() && receives_[next_receive_].first < row; ++next_receive_) pass(receives_[next_receive_].second);
      for (const ir::Wait& wait : task(row).after) end_late(wait.row);
      pass(row);
    }
    switch_what_can();
    for (; next_receive_ < receives_.size(); ++next_receive_) pass(receives_[next_receive_].second);
    for (auto& [key, late] : late_)
      for (; late.next < late.rows.size(); ++late.next) pass(late.rows[late.next]);
    return order_;
  }

 private:
  struct Late {
    std::vector<int> rows;
    size_t next = 0;
  };

  const Task& task(int row) const { return program_.rows[static_cast<size_t>(row)]; }
  void pass(int row) {
    order_.push_back(row);
    to_come_[static_cast<size_t>(row)] = false;
  }
  // Waits that are met stay met.
  void switch_what_can() {
    for (; next_switch_ < switching_.size(); next_wait_ = 0) {
      const std::vector<ir::Wait>& after = task(switching_[next_switch_]).after;
      while (next_wait_ < after.size() && !to_come_[static_cast<size_t>(after[next_wait_].row)]) ++next_wait_;
      if (next_wait_ < after.size()) return;
      pass(switching_[next_switch_++]);
    }
  }
  // With all before it in its queue.
  void end_late(int row) {
    if (!to_come_[static_cast<size_t>(row)]) return;
    const auto late = late_.find(queue_of(task(row), rank_));
    while (late != late_.end() && to_come_[static_cast<size_t>(row)]) pass(late->second.rows[late->second.next++]);
  }

  const ir::Program& program_;
  int rank_;
  std::vector<bool> to_come_;  // the rank's rows
  std::vector<int> compute_, switching_, order_;
  std::vector<std::pair<int, int>> receives_;  // the row that each needs, itself
  std::map<QueueKey, Late> late_;
  size_t next_switch_ = 0, next_wait_ = 0, next_receive_ = 0;
};

}  // namespace

bool is_received(const Task& task, int rank) {
  bool to = false;
  for (const layout::Msg& m : task.messages) {
    if (m.src == rank) return false;
    to |= m.dst == rank;
  }
  return to && task.kind == TaskKind::send;
}

Arrivals::Arrivals(const ir::Program& program) : needs_(program.rows.size()) {
  using Lane = std::pair<int, int>;  // phase, lane
  std::map<Lane, std::set<int>> ranks;
  std::vector<bool> sent(program.rows.size(), false);  // what the run makes
  for (const Task& task : program.rows) {
    if (task.kind != TaskKind::send) continue;
    ranks[{task.phase, task.lane}].insert(task.ranks.begin(), task.ranks.end());
    for (const ir::Wait& wait : task.after) sent[static_cast<size_t>(wait.row)] = true;
  }
  for (const Task& task : program.rows)
    if (task.kind == TaskKind::run)
      if (const auto lane = ranks.find({task.phase, task.lane}); lane != ranks.end()) lane->second.insert(task.ranks.begin(), task.ranks.end());
  std::map<Lane, LaneClocks> clocks;
  for (const auto& [lane, members] : ranks) clocks.emplace(lane, members);
  for (size_t row = 0; row < program.rows.size(); ++row) {
    const Task& task = program.rows[row];
    if (task.kind != TaskKind::run && task.kind != TaskKind::send) continue;
    const auto lane = clocks.find({task.phase, task.lane});
    if (lane == clocks.end()) continue;
    if (task.kind == TaskKind::run)
      lane->second.run(task, static_cast<int>(row), sent[row]);
    else
      needs_[row] = lane->second.send(task, static_cast<int>(row));
  }
}

int Arrivals::needs(int row, int rank) const {
  for (const auto& [receiver, needed] : needs_[static_cast<size_t>(row)])
    if (receiver == rank) return needed;
  return -1;
}

std::vector<int> worst_order(const ir::Program& program, const Arrivals& arrivals, int rank) { return WorstOrder(program, arrivals, rank).rows(); }

}  // namespace switchyard::compiler
