#include "simulator/rank_times.hpp"

#include <algorithm>
#include <utility>

namespace switchyard::simulator {
namespace {

class RankAccount {
 public:
  RankAccount(const ir::Program& program, const std::vector<TaskTime>& tasks, double step_seconds,
              const SymmetryFolding& fold)
      : program_(program), tasks_(tasks), step_seconds_(step_seconds), fold_(fold), sums_(tasks.size()) {}

  // Ranks of different classes may still have equal times; mostly neighbours.
  std::vector<RankTime> run() {
    std::vector<RankTime> ranks;
    Busy known;
    int known_rank = -1;
    std::vector<int> first(static_cast<size_t>(fold_.resources()), -1);
    for (int rank = 0; rank < static_cast<int>(program_.of_rank.size()); ++rank) {
      int& first_of = first[static_cast<size_t>(fold_.resource(rank))];
      if (first_of < 0) {
        Busy busy = busy_of(rank);
        first_of = known_rank >= 0 && busy == known ? known_rank : rank;
        if (first_of == rank) {
          ranks.push_back(time_of(busy));
          known = std::move(busy);
          known_rank = rank;
          continue;
        }
      }
      ranks.push_back(RankTime(ranks[static_cast<size_t>(first_of)]));
    }
    return ranks;
  }

 private:
  const TaskTime& time(int id) const { return tasks_[static_cast<size_t>(id)]; }

  // Seconds of a task. both: of them, in which it computes and transfers at once.
  struct Spent {
    double compute = 0, communication = 0, both = 0;
    double busy() const { return compute + communication - both; }
    void add(const TaskTime& t, size_t span, double seconds) {
      (t.spans[span].communication ? communication : compute) += seconds;
      if (span > 0 && t.spans[span].begin == t.spans[span - 1].begin) both += seconds;
    }
    Spent operator-(const Spent& other) const {
      return {compute - other.compute, communication - other.communication, both - other.both};
    }
  };

  // The part of a task's work that is done before a time.
  Spent spent(int id, double until) {
    const TaskTime& t = time(id);
    std::vector<Spent>& sums = sums_[static_cast<size_t>(fold_.of(id))];  // before each span, and at the end
    if (sums.empty()) {
      sums.emplace_back();
      for (size_t i = 0; i < t.spans.size(); ++i) {
        sums.push_back(sums.back());
        sums.back().add(t, i, t.spans[i].end - t.spans[i].begin);
      }
    }
    const auto next = std::ranges::upper_bound(t.spans, until, {}, &Span::begin);
    const auto begun = static_cast<size_t>(next - t.spans.begin());
    Spent sum = sums[begun];
    for (size_t i = begun; i > 0 && t.spans[i - 1].begin == t.spans[begun - 1].begin; --i)
      sum.add(t, i - 1, -std::max(0.0, t.spans[i - 1].end - until));
    return sum;
  }

  // When a rank transfers beside its compute queue, and the tasks of that one.
  struct Busy {
    std::vector<int> computing;
    std::vector<std::pair<double, double>> transfers;
    bool operator==(const Busy&) const = default;
  };

  Busy busy_of(int rank) const {
    Busy busy;
    for (const int id : program_.of_rank[static_cast<size_t>(rank)]) {
      if (program_.tasks[static_cast<size_t>(id)].queue == ir::Queue::compute)
        busy.computing.push_back(id);
      else
        for (const Span& span : tasks_[static_cast<size_t>(id)].spans)
          busy.transfers.emplace_back(span.begin, span.end);
    }
    busy.transfers = united(std::move(busy.transfers));
    return busy;
  }

  // The compute queue's tasks follow one another; what they and the other queues transfer meanwhile overlaps them.
  RankTime time_of(const Busy& busy) {
    const std::vector<int>& computing = busy.computing;
    RankTime sum;
    for (const int id : computing) {
      const Spent all = spent(id, time(id).end);
      sum.compute += all.compute;
      sum.communication += all.communication;
      sum.overlap += all.both;
    }
    double idle = step_seconds_ - sum.compute - sum.communication + sum.overlap;
    for (const auto& [begin, end] : busy.transfers) {
      auto id = std::ranges::upper_bound(computing, begin, {}, [&](int r) { return time(r).end; });
      double overlap = 0, doubled = 0, busy = 0;
      for (; id != computing.end() && time(*id).begin < end; ++id) {
        const Spent meanwhile = spent(*id, end) - spent(*id, begin);
        overlap += meanwhile.compute - meanwhile.both;
        doubled += meanwhile.communication;
        busy += meanwhile.busy();
      }
      sum.overlap += overlap;
      sum.communication += end - begin - doubled;
      idle -= end - begin - busy;
    }
    sum.idle = idle;
    return sum;
  }

  static std::vector<std::pair<double, double>> united(std::vector<std::pair<double, double>> spans) {
    std::sort(spans.begin(), spans.end());
    std::vector<std::pair<double, double>> whole;
    for (const auto& span : spans) {
      if (whole.empty() || span.first > whole.back().second)
        whole.push_back(span);
      else
        whole.back().second = std::max(whole.back().second, span.second);
    }
    return whole;
  }

  const ir::Program& program_;
  const std::vector<TaskTime>& tasks_;
  const double step_seconds_;
  const SymmetryFolding& fold_;
  std::vector<std::vector<Spent>> sums_;  // sums of a task: see spent
};

}  // namespace

std::vector<RankTime> rank_times(const ir::Program& program, const std::vector<TaskTime>& tasks, double step_seconds,
                                 const SymmetryFolding& fold) {
  return RankAccount(program, tasks, step_seconds, fold).run();
}

}  // namespace switchyard::simulator
