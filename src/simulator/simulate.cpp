#include "simulator/simulate.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/errors.hpp"
#include "compiler/holdings.hpp"
#include "compiler/order.hpp"
#include "cost/compute_cost.hpp"
#include "cost/exchange.hpp"
#include "simulator/segment_times.hpp"

namespace switchyard::simulator {
namespace {

using ir::Task;
using ir::TaskKind;

class Simulator {
 public:
  Simulator(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans, const cluster::Hardware& hardware)
      : program_(program), plan_(plan), plans_(plans), hardware_(hardware) {
    check(hardware.ranks() == plans.cluster().ranks(), "hardware of {} ranks for a program of {}", hardware.ranks(), plans.cluster().ranks());
    result_.rows.resize(program.rows.size());
    sums_.resize(program.rows.size());
  }

  Simulation run() {
    for (size_t row = 0; row < program_.rows.size(); ++row) pass(static_cast<int>(row));
    for (const RowTime& row : result_.rows) result_.step_seconds = std::max(result_.step_seconds, row.end);
    for (int rank = 0; rank < plans_.cluster().ranks(); ++rank) result_.ranks.push_back(time_of(rank));
    return std::move(result_);
  }

 private:
  const Task& task(int row) const { return program_.rows[static_cast<size_t>(row)]; }
  RowTime& time(int row) { return result_.rows[static_cast<size_t>(row)]; }

  void pass(int row) {
    const Task& t = task(row);
    double start = 0;
    for (const int rank : t.ranks) start = std::max(start, free_[compiler::queue_of(t, rank)]);
    for (const ir::Wait& wait : t.after)
      if (t.kind != TaskKind::run || wait.unit < 0) start = std::max(start, done(wait));
    time(row) = {start, start, {}};
    if (t.kind == TaskKind::run)
      run_segment(row);
    else if (const double seconds = duration(t); seconds > 0)
      work(row, seconds, ir::is_transfer(t.kind));
    for (const int rank : t.ranks) free_[compiler::queue_of(t, rank)] = time(row).end;
  }

  // A whole row, or the unit's gradients that it has ready.
  double done(const ir::Wait& wait) {
    const auto released = released_.find({wait.row, wait.unit});
    return released != released_.end() ? released->second : time(wait.row).end;
  }

  void work(int row, double seconds, bool communication) {
    RowTime& t = time(row);
    t.spans.push_back({t.end, t.end + seconds, communication});
    t.end += seconds;
  }

  void run_segment(int row) {
    const Task& t = task(row);
    const SegmentTimes& times = times_of(t);
    const double pairs = batch::causal_pairs(micro_batch(t)), squares = static_cast<double>(batch::squares(micro_batch(t)));
    size_t await = 0, release = 0;
    for (size_t piece = 0; piece <= times.pieces.size(); ++piece) {
      for (; release < times.releases.size() && times.releases[release].before == piece; ++release)
        released_[{row, times.releases[release].unit}] = time(row).end;
      for (; await < times.awaits.size() && times.awaits[await].before == piece; ++await)
        for (const ir::Wait& wait : t.after)
          if (wait.unit == times.awaits[await].unit) time(row).end = std::max(time(row).end, time(wait.row).end);
      if (piece == times.pieces.size()) break;
      const Piece& part = times.pieces[piece];
      work(row, part.fixed + part.per_pair * pairs + part.per_square * squares, part.what == Activity::communication);
    }
  }

  const batch::MicroBatch& micro_batch(const Task& t) const {
    return plan_.phases[static_cast<size_t>(t.phase)].lane[static_cast<size_t>(t.lane)][static_cast<size_t>(t.micro_batch)];
  }

  const compiler::CompiledStrategy& strategy_of(const Task& t) const {
    return plans_.strategies()[static_cast<size_t>(plan_.phases[static_cast<size_t>(t.phase)].strategy)];
  }

  // Strategy, group, stage, pass, tokens; devices of the ranks, counted from the first one's host.
  using SegmentKey = std::tuple<const compiler::CompiledStrategy*, int, int, ir::Pass, i64, std::vector<int>>;

  SegmentKey key_of(const Task& t) const {
    const std::vector<int>& host = plans_.cluster().host;
    const int devices = hardware_.devices_per_host, first = host[static_cast<size_t>(t.ranks[0])];
    std::vector<int> places;
    for (const int rank : t.ranks) places.push_back((host[static_cast<size_t>(rank)] - first) * devices + rank % devices);
    return {&strategy_of(t), t.group, t.stage, t.pass, micro_batch(t).T, std::move(places)};
  }

  // Lanes of a group whose ranks lie alike on hosts take equally long.
  const SegmentTimes& times_of(const Task& t) {
    const auto [it, fresh] = times_.try_emplace(key_of(t));
    if (fresh) {
      const ir::StageCode& stage = strategy_of(t).groups[static_cast<size_t>(t.group)].stages[static_cast<size_t>(t.stage)];
      it->second = segment_times(stage, stage.segment(t.pass), micro_batch(t).T, t.ranks, hardware_, plans_.cluster());
    }
    return it->second;
  }

  double duration(const Task& t) {
    switch (t.kind) {
      case TaskKind::send:
        return sent(t);
      case TaskKind::move:
        return exchanged(t, plans_.graph().precision().compute);
      case TaskKind::flush:
        return exchanged(t, plans_.graph().precision().state) + added_at_home(t);
      case TaskKind::norm:
        return squared() + agreed(t);
      case TaskKind::update:
        return updated(t);
      case TaskKind::zero:
      case TaskKind::prepare:
      case TaskKind::run:
        return 0;
    }
    return 0;
  }

  // Micro-batches of as many tokens take equally long between two stages, and so do lanes that lie alike on hosts.
  double sent(const Task& t) {
    const auto [it, fresh] = sends_.try_emplace(key_of(t));
    if (fresh) it->second = exchanged(t, plans_.graph().precision().compute);
    return it->second;
  }

  double exchanged(const Task& t, DType type) const {
    std::vector<cost::Parcel> parcels;
    for (const layout::Msg& m : t.messages) parcels.push_back({m.src, m.dst, m.box.elements() * size_of(type)});
    return cost::exchange(hardware_, plans_.cluster(), parcels).count;
  }

  // Memory traffic of so many bytes an element, on the rank that has most elements.
  double memory_time(DType type, const std::map<int, i64>& elements, i64 bytes) const {
    double longest = 0;
    for (const auto& [rank, count] : elements)
      longest = std::max(longest, cost::call_time(hardware_.device, type, {.bytes = static_cast<double>(count * bytes)}).count);
    return longest;
  }

  // A rank's own addends: read, added to home's sum, written.
  double added_at_home(const Task& t) const {
    const DType type = plans_.graph().precision().state;
    std::map<int, i64> elements;
    for (const layout::Msg& m : t.messages)
      if (m.src == m.dst) elements[m.src] += m.box.elements();
    return memory_time(type, elements, 3 * size_of(type));
  }

  // Elements of a unit that each rank has at home.
  void add_home(int unit, std::map<int, i64>& elements) const {
    for (const int tensor : plans_.units()[static_cast<size_t>(unit)].tensors)
      for (const layout::Shard& shard : plans_.home()[static_cast<size_t>(tensor)].shards) elements[shard.rank] += shard.box.elements();
  }

  // Gradients are read.
  double squared() const {
    const DType type = plans_.graph().precision().state;
    std::map<int, i64> elements;
    for (size_t unit = 0; unit < plans_.units().size(); ++unit) add_home(static_cast<int>(unit), elements);
    return memory_time(type, elements, size_of(type));
  }

  // A few numbers from all to all, by halves of the ranks: one latency of the slowest link for each halving, there and back.
  double agreed(const Task& t) const {
    if (t.ranks.size() < 2) return 0;
    const cluster::Link link = plans_.cluster().hosts() > 1 ? cluster::Link::inter_host : cluster::Link::intra_host;
    int halvings = 0;
    while ((size_t{1} << halvings) < t.ranks.size()) ++halvings;
    return 2 * halvings * hardware_.link(link).latency.count;
  }

  // Master weights and two moments read and written, the gradient read and cleared, home's image written: memory traffic.
  double updated(const Task& t) const {
    const Precision precision = plans_.graph().precision();
    const i64 bytes = 8 * size_of(precision.state) + (precision.compute == precision.state ? 0 : size_of(precision.compute));
    std::map<int, i64> elements;
    add_home(t.unit, elements);
    return memory_time(precision.state, elements, bytes);
  }

  // How long a row computes and transfers before a time.
  std::pair<double, double> spent(int row, double until) {
    RowTime& t = time(row);
    std::vector<std::pair<double, double>>& sums = sums_[static_cast<size_t>(row)];  // before each span, and at the end
    if (sums.empty()) {
      sums.emplace_back(0, 0);
      for (const Span& span : t.spans) {
        sums.push_back(sums.back());
        (span.communication ? sums.back().second : sums.back().first) += span.end - span.begin;
      }
    }
    const auto next = std::ranges::upper_bound(t.spans, until, {}, &Span::begin);
    std::pair<double, double> sum = sums[static_cast<size_t>(next - t.spans.begin())];
    if (next == t.spans.begin()) return sum;
    const Span& last = *(next - 1);
    (last.communication ? sum.second : sum.first) -= std::max(0.0, last.end - until);
    return sum;
  }

  // The compute queue's rows follow one another; what the other queues transfer meanwhile overlaps them.
  RankTime time_of(int rank) {
    std::vector<int> computing;
    std::vector<std::pair<double, double>> transfers;
    RankTime sum;
    for (const int row : program_.of_rank[static_cast<size_t>(rank)]) {
      if (task(row).queue == ir::Queue::compute) {
        const auto [compute, communication] = spent(row, time(row).end);
        sum.compute += compute;
        sum.communication += communication;
        computing.push_back(row);
      } else {
        for (const Span& span : time(row).spans) transfers.emplace_back(span.begin, span.end);
      }
    }
    double idle = result_.step_seconds - sum.compute - sum.communication;
    for (const auto& [begin, end] : united(std::move(transfers))) {
      auto row = std::ranges::upper_bound(computing, begin, {}, [&](int r) { return time(r).end; });
      double overlap = 0, doubled = 0;
      for (; row != computing.end() && time(*row).begin < end; ++row) {
        const auto before = spent(*row, begin), after = spent(*row, end);
        overlap += after.first - before.first;
        doubled += after.second - before.second;
      }
      sum.overlap += overlap;
      sum.communication += end - begin - doubled;
      idle -= end - begin - doubled - overlap;
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
  const batch::StepPlan& plan_;
  const compiler::Plans& plans_;
  const cluster::Hardware& hardware_;
  Simulation result_;
  std::vector<std::vector<std::pair<double, double>>> sums_;  // of a row: see spent
  std::map<compiler::QueueKey, double> free_;
  std::map<std::pair<int, int>, double> released_;  // row, unit
  std::map<SegmentKey, SegmentTimes> times_;
  std::map<SegmentKey, double> sends_;
};

}  // namespace

Simulation simulate(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans, const cluster::Hardware& hardware) {
  return Simulator(program, plan, plans, hardware).run();
}

}  // namespace switchyard::simulator
