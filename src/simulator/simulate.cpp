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
      work(row, seconds, is_transfer(t));
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
    const double pairs = batch::causal_pairs(micro_batch(t));
    size_t await = 0, release = 0;
    for (size_t piece = 0; piece <= times.pieces.size(); ++piece) {
      for (; release < times.releases.size() && times.releases[release].before == piece; ++release)
        released_[{row, times.releases[release].unit}] = time(row).end;
      for (; await < times.awaits.size() && times.awaits[await].before == piece; ++await)
        for (const ir::Wait& wait : t.after)
          if (wait.unit == times.awaits[await].unit) time(row).end = std::max(time(row).end, time(wait.row).end);
      if (piece == times.pieces.size()) break;
      const Piece& part = times.pieces[piece];
      work(row, part.fixed + part.per_pair * pairs, part.what == Activity::communication);
    }
  }

  const batch::MicroBatch& micro_batch(const Task& t) const {
    return plan_.phases[static_cast<size_t>(t.phase)].lane[static_cast<size_t>(t.lane)][static_cast<size_t>(t.micro_batch)];
  }

  const compiler::CompiledStrategy& strategy_of(const Task& t) const {
    return plans_.strategies()[static_cast<size_t>(plan_.phases[static_cast<size_t>(t.phase)].strategy)];
  }

  // Lanes of a group whose ranks lie alike on hosts take equally long.
  const SegmentTimes& times_of(const Task& t) {
    std::vector<int> hosts;
    for (const int rank : t.ranks) hosts.push_back(plans_.cluster().host[static_cast<size_t>(rank)] - plans_.cluster().host[static_cast<size_t>(t.ranks[0])]);
    const i64 T = micro_batch(t).T;
    const auto [it, fresh] = times_.try_emplace({&strategy_of(t), t.group, t.stage, t.pass, T, t.ranks[0] % hardware_.devices_per_host, hosts});
    if (fresh) {
      const ir::StageCode& stage = strategy_of(t).groups[static_cast<size_t>(t.group)].stages[static_cast<size_t>(t.stage)];
      it->second = segment_times(stage, stage.segment(t.pass), T, t.ranks, hardware_, plans_.cluster());
    }
    return it->second;
  }

  static bool is_transfer(const Task& t) { return t.kind != TaskKind::update && t.kind != TaskKind::zero; }

  double duration(const Task& t) const {
    switch (t.kind) {
      case TaskKind::send:
        return exchanged(t, plans_.graph().precision().compute);
      case TaskKind::move:
        return exchanged(t, plans_.graph().precision().compute);
      case TaskKind::flush:
        return exchanged(t, plans_.graph().precision().state) + added_at_home(t);
      case TaskKind::norm:
        return agreed(t);
      case TaskKind::update:
        return updated(t);
      case TaskKind::zero:
      case TaskKind::prepare:
      case TaskKind::run:
        return 0;
    }
    return 0;
  }

  double exchanged(const Task& t, DType type) const {
    std::vector<cost::Parcel> parcels;
    for (const layout::Msg& m : t.messages) parcels.push_back({m.src, m.dst, m.box.elements() * size_of(type)});
    return cost::exchange(hardware_, plans_.cluster(), parcels).count;
  }

  // A rank's own addends: read, added to home's sum, written.
  double added_at_home(const Task& t) const {
    const DType type = plans_.graph().precision().state;
    std::map<int, i64> elements;
    for (const layout::Msg& m : t.messages)
      if (m.src == m.dst) elements[m.src] += m.box.elements();
    double longest = 0;
    for (const auto& [rank, count] : elements) longest = std::max(longest, memory_time(type, count * 3 * size_of(type)));
    return longest;
  }

  double memory_time(DType type, i64 bytes) const { return cost::call_time(hardware_.device, type, {.bytes = static_cast<double>(bytes)}).count; }

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
    for (const int tensor : plans_.units()[static_cast<size_t>(t.unit)].tensors)
      for (const layout::Shard& shard : plans_.home()[static_cast<size_t>(tensor)].shards) elements[shard.rank] += shard.box.elements();
    double longest = 0;
    for (const auto& [rank, count] : elements) longest = std::max(longest, memory_time(precision.state, count * bytes));
    return longest;
  }

  // Sweeps over the rank's spans: how many compute, how many transfer.
  RankTime time_of(int rank) const {
    std::vector<std::tuple<double, bool, int>> edges;  // when, what, +1 or -1
    for (const int row : program_.of_rank[static_cast<size_t>(rank)])
      for (const Span& span : result_.rows[static_cast<size_t>(row)].spans) {
        edges.emplace_back(span.begin, span.communication, 1);
        edges.emplace_back(span.end, span.communication, -1);
      }
    std::sort(edges.begin(), edges.end());
    RankTime time;
    int active[2] = {0, 0};
    double last = 0, busy = 0;
    for (const auto& [at, communication, change] : edges) {
      const double length = at - last;
      if (active[0] > 0) time.compute += length;
      if (active[1] > 0) time.communication += length;
      if (active[0] > 0 && active[1] > 0) time.overlap += length;
      if (active[0] > 0 || active[1] > 0) busy += length;
      active[communication ? 1 : 0] += change;
      last = at;
    }
    time.idle = result_.step_seconds - busy;
    return time;
  }

  // Strategy, group, stage, direction, tokens; device of the first rank, hosts of the ranks counted from the first one's.
  using SegmentKey = std::tuple<const compiler::CompiledStrategy*, int, int, ir::Pass, i64, int, std::vector<int>>;

  const ir::Program& program_;
  const batch::StepPlan& plan_;
  const compiler::Plans& plans_;
  const cluster::Hardware& hardware_;
  Simulation result_;
  std::map<compiler::QueueKey, double> free_;
  std::map<std::pair<int, int>, double> released_;  // row, unit
  std::map<SegmentKey, SegmentTimes> times_;
};

}  // namespace

Simulation simulate(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans, const cluster::Hardware& hardware) {
  return Simulator(program, plan, plans, hardware).run();
}

}  // namespace switchyard::simulator
