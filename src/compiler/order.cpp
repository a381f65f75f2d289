#include "compiler/order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <span>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::compiler {
namespace {

using ir::Task;

constexpr double kFlops = 5e10, kMemory = 1e10, kIntraHost = 5e9, kInterHost = 1e9, kLatency = 2e4;

// Estimates how long transfers take, in nanoseconds.
class TransferTimes {
 public:
  explicit TransferTimes(const cluster::Cluster& cluster) : cluster_(cluster) {}

  i64 of(const Task& task) {
    if (task.messages.empty() || task.bytes == 0) return 0;
    return static_cast<i64>(kLatency + 1e9 * static_cast<double>(task.bytes) / static_cast<double>(task.ranks.size()) /
                                           (crosses(task.messages) ? kInterHost : kIntraHost));
  }

 private:
  // Tasks share lists that may be long.
  bool crosses(const layout::MessageList& list) {
    const auto [known, fresh] = crosses_.try_emplace({list.pattern().get(), list.ranks().get()});
    if (fresh)
      known->second =
          std::ranges::any_of(list, [&](const layout::Msg& m) { return !cluster_.same_host(m.src, m.dst); });
    return known->second;
  }

  const cluster::Cluster& cluster_;
  std::map<std::pair<const layout::MessagePattern*, const std::vector<int>*>, bool> crosses_;
};

class Ordering {
 public:
  Ordering(std::vector<Task> tasks, const cluster::Cluster& cluster)
      : tasks_(std::move(tasks)), open_(tasks_.size(), 0), first_(tasks_.size() + 1, 0) {
    TransferTimes times(cluster);
    for (Task& task : tasks_)
      if (task.kind() != ir::TaskKind::run) task.end = times.of(task);
    const std::vector<std::pair<int, int>> edges = edges_of(cluster.ranks());
    for (const auto& [from, to] : edges) {
      ++first_[static_cast<size_t>(from) + 1];
      ++open_[static_cast<size_t>(to)];
    }
    for (size_t i = 0; i < tasks_.size(); ++i) first_[i + 1] += first_[i];
    next_.resize(edges.size());
    std::vector<size_t> at(first_.begin(), first_.end() - 1);
    for (const auto& [from, to] : edges) next_[at[static_cast<size_t>(from)]++] = to;
  }

  ir::Program run(int ranks) {
    using Ready = std::pair<i64, int>;  // earliest start, creation order
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    for (size_t i = 0; i < tasks_.size(); ++i)
      if (open_[i] == 0) ready.emplace(0, static_cast<int>(i));
    std::vector<int> place(tasks_.size(), -1);
    ir::Program program;
    program.tasks.reserve(tasks_.size());
    program.of_rank.resize(static_cast<size_t>(ranks));
    while (!ready.empty()) {
      const auto [start, i] = ready.top();
      ready.pop();
      Task& task = tasks_[static_cast<size_t>(i)];
      task.start = start;
      task.end += start;
      place[static_cast<size_t>(i)] = static_cast<int>(program.tasks.size());
      for (const int rank : task.ranks)
        program.of_rank[static_cast<size_t>(rank)].push_back(static_cast<int>(program.tasks.size()));
      for (const int follower : followers(i)) {
        i64& at = tasks_[static_cast<size_t>(follower)].start;
        at = std::max(at, task.end);
        if (--open_[static_cast<size_t>(follower)] == 0) ready.emplace(at, follower);
      }
      program.tasks.push_back(std::move(task));
    }
    if (program.tasks.size() < tasks_.size()) throw InternalError("the program could deadlock: " + cycle());
    for (Task& task : program.tasks) {
      for (ir::Wait& wait : task.after) wait.task = place[static_cast<size_t>(wait.task)];
      std::sort(task.after.begin(), task.after.end(), [](const ir::Wait& a, const ir::Wait& b) {
        return std::tie(a.task, a.unit) < std::tie(b.task, b.unit);
      });
    }
    return program;
  }

 private:
  // Pairs of a task and one that must come after it: because of a wait, or because they share a queue.
  std::vector<std::pair<int, int>> edges_of(int ranks) const {
    const QueueNumbers queues(tasks_, ranks);
    std::vector<int> last(queues.count(), -1);
    std::vector<std::pair<int, int>> edges;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const Task& task = tasks_[i];
      for (const ir::Wait& wait : task.after) edges.emplace_back(wait.task, static_cast<int>(i));
      int known = -1;  // usually the same task comes before on all ranks
      for (const int rank : task.ranks) {
        const int before = std::exchange(last[queues.of(task, rank)], static_cast<int>(i));
        if (before >= 0 && before != known) edges.emplace_back(known = before, static_cast<int>(i));
      }
    }
    return edges;
  }

  std::span<const int> followers(int id) const {
    const auto i = static_cast<size_t>(id);
    return {next_.data() + first_[i], first_[i + 1] - first_[i]};
  }

  // Each remaining task has an open predecessor, so walking back must reach a task twice.
  std::string cycle() const {
    std::vector<int> before(tasks_.size(), -1);
    for (size_t i = 0; i < tasks_.size(); ++i)
      if (open_[i] > 0)
        for (const int follower : followers(static_cast<int>(i)))
          before[static_cast<size_t>(follower)] = static_cast<int>(i);
    size_t at = 0;
    while (open_[at] == 0) ++at;
    for (size_t steps = 0; steps < tasks_.size(); ++steps) at = static_cast<size_t>(before[at]);
    std::string text = ir::name_of(tasks_[at]);
    for (int i = before[at]; i != static_cast<int>(at); i = before[static_cast<size_t>(i)])
      text += " <- " + ir::name_of(tasks_[static_cast<size_t>(i)]);
    return text + " <- " + ir::name_of(tasks_[at]);
  }

  std::vector<Task> tasks_;
  std::vector<int> open_;      // number of its predecessors that aren't placed yet
  std::vector<size_t> first_;  // index of a task's first successor in next_
  std::vector<int> next_;
};

layout::ShardMap boundary_map(const ir::Buffer& buffer, const std::vector<int>& ranks, i64 T) {
  layout::ShardMap map{layout::plain({T, buffer.type.shape.size[1]}), 1, {}};
  const i64 unit = ir::token_unit(static_cast<int>(ranks.size()), T);
  for (size_t position = 0; position < ranks.size(); ++position)
    map.shards.push_back({ranks[position], 0, ir::scaled(buffer, buffer.box[position], unit)});
  return map;
}

}  // namespace

QueueNumbers::QueueNumbers(const std::vector<ir::Task>& tasks, int ranks) : ranks_(ranks) {
  int stages = 0;
  for (const ir::Task& task : tasks) stages = std::max(stages, ir::stage_of_queue(task) + 1);
  of_rank_ = kQueueKinds * stages;
}

QueueKey queue_of(const ir::Task& task, int rank) { return {rank, task.queue, ir::stage_of_queue(task)}; }

i64 estimate_compute(const SegmentCost& cost, double T, double pairs) {
  return static_cast<i64>(1e9 * (cost.flops(T, pairs) / kFlops + cost.bytes(T, pairs) / kMemory));
}

ir::Program in_order(std::vector<ir::Task> tasks, const cluster::Cluster& cluster) {
  ir::Program program = Ordering(std::move(tasks), cluster).run(cluster.ranks());
  ir::verify(program);
  return program;
}

std::vector<layout::Msg> boundary_messages(const ir::Buffer& out, const ir::Buffer& in, const std::vector<int>& from,
                                           const std::vector<int>& to, i64 T) {
  const layout::Exchange exchange = layout::exchange(boundary_map(out, from, T), boundary_map(in, to, T));
  std::vector<layout::Msg> messages;
  for (const layout::Part& part : exchange.steps[0].parts)
    for (const layout::Piece& piece : part.sends)
      messages.push_back({.src = part.rank, .dst = piece.peer, .box = piece.box});
  return messages;
}

}  // namespace switchyard::compiler
