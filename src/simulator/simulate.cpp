#include "simulator/simulate.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/errors.hpp"
#include "compiler/order.hpp"
#include "simulator/fold.hpp"
#include "simulator/rank_times.hpp"
#include "simulator/row_work.hpp"
#include "simulator/shared_resources.hpp"

namespace switchyard::simulator {
namespace {

using ir::Task;
using ir::TaskKind;

constexpr int kInOrder = -2;  // why a row waits: it is the next one of a queue; otherwise for a unit

class Simulator {
 public:
  Simulator(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans, const cluster::Hardware& hardware)
      : program_(program), alone_speedup_(hardware.device.alone_speedup), costs_(plan, plans, hardware), queues_(program.rows, hardware.ranks()) {
    result_.rows.resize(program.rows.size());
    spans_.resize(program.rows.size());
  }

  Simulation run() {
    fold();
    prepare();
    for (int row = 0; row < rows(); ++row)
      if (fold_->stands(row) && state(row).missing == 0) ready_.push_back(row);
    begin_ready();
    for (int ended = shared_.next(); ended >= 0; ended = shared_.next()) {
      work_ended(ended);
      begin_ready();
    }
    unfold();
    for (const RowTime& row : result_.rows) result_.step_seconds = std::max(result_.step_seconds, row.end);
    result_.ranks = rank_times(program_, result_.rows, result_.step_seconds, *fold_);
    result_.kept = std::make_shared<const std::vector<std::vector<Span>>>(std::move(spans_));
    return std::move(result_);
  }

 private:
  // What a class of rows takes of the classes of resources in a segment.
  struct FoldedSegment {
    std::vector<Claim> computing;
    std::vector<std::vector<Claim>> exchanging;
  };

  // A row on its way. missing: streams and rows that it waits for; zeroing: of accumulators that the run makes; the rest is of runs, too.
  struct RowState {
    int missing = 0;
    bool started = false, done = false, awaited = false;  // awaited: for units
    const LaneSegment* segment = nullptr;
    const FoldedSegment* folded = nullptr;
    const PlacedWork* other = nullptr;  // of rows that aren't runs
    size_t piece = 0, await = 0, release = 0;
    double pairs = 0, squares = 0, zeroing = 0;
  };

  const Task& task(int row) const { return program_.rows[static_cast<size_t>(row)]; }
  RowTime& time(int row) { return result_.rows[static_cast<size_t>(row)]; }
  RowState& state(int row) { return state_[static_cast<size_t>(row)]; }

  // Also by copies within a device, where they are part of a switch.
  static bool communicates(const Task& t) { return ir::is_transfer(t.kind) || t.kind == TaskKind::prepare; }

  int rows() const { return static_cast<int>(program_.rows.size()); }

  // Which rows are bound to take place together: one of them is looked at.
  void fold() {
    state_.resize(program_.rows.size());
    RowGraph graph(costs_.kinds_of_resources());
    std::vector<int> last_of_queue(queues_.count(), -1);
    for (int row = 0; row < rows(); ++row) {
      const Task& t = task(row);
      if (t.kind == TaskKind::run)
        add_run(row, graph);
      else
        add_other(row, graph);
      int known = -1;  // mostly all ranks of a row have the same row before it
      for (const int rank : t.ranks) {
        const int before = std::exchange(last_of_queue[queues_.of(t, rank)], row);
        if (before < 0 || before == known) continue;
        graph.wait(known = before, kInOrder);
        in_order_.emplace_back(row, before);
      }
      for (const ir::Wait& wait : t.after) graph.wait(wait.row, wait.unit);
    }
    fold_.emplace(graph);
    shared_ = SharedResources(fold_->resources());
  }

  static std::uint64_t bits(double number) { return std::bit_cast<std::uint64_t>(number); }

  void add_run(int row, RowGraph& graph) {
    const Task& t = task(row);
    RowState& s = state(row);
    const LaneSegment& segment = costs_.segment(t);
    std::vector<int>& lists = lists_[&segment];
    if (lists.empty()) {
      lists.push_back(graph.list(&segment.computing));
      for (const std::vector<Claim>& claims : segment.exchanging) lists.push_back(graph.list(&claims));
    }
    s.segment = &segment;
    s.pairs = batch::causal_pairs(costs_.micro_batch(t));
    s.squares = static_cast<double>(batch::squares(costs_.micro_batch(t)));
    const bool gradients = t.pass == ir::Pass::W || t.pass == ir::Pass::BW;
    if (gradients && accumulating_.insert({t.phase, t.lane, t.stage}).second) s.zeroing = costs_.zeroing(t);
    const std::array parts{reinterpret_cast<std::uint64_t>(segment.times), bits(s.pairs), bits(s.squares), bits(s.zeroing)};
    graph.add_row(RowGraph::work_of(parts), lists);
  }

  void add_other(int row, RowGraph& graph) {
    const Task& t = task(row);
    const PlacedWork& work = costs_.work(t);
    std::vector<int>& lists = lists_[&work];
    if (lists.empty()) lists.push_back(graph.list(&work.claims));
    state(row).other = &work;
    const std::array parts{bits(work.seconds), static_cast<std::uint64_t>(communicates(t))};
    graph.add_row(RowGraph::work_of(parts), lists);
  }

  // What each row waits for: its streams' rows before it, other rows, units of other rows.
  void prepare() {
    work_began_.resize(program_.rows.size());
    after_row_.resize(program_.rows.size());
    for (const auto& [row, before] : in_order_)
      if (fold_->stands(row)) follow(row, fold_->of(before));
    for (int row = 0; row < rows(); ++row) {
      if (!fold_->stands(row)) continue;
      const Task& t = task(row);
      for (const ir::Wait& wait : t.after) {
        if (t.kind == TaskKind::run && wait.unit >= 0) continue;
        const int awaited = fold_->of(wait.row);
        if (releases(wait)) {
          after_unit_[{awaited, wait.unit}].push_back(row);
          state(awaited).awaited = true;
          ++state(row).missing;
        } else {
          follow(row, awaited);
        }
      }
    }
  }

  // The rows that weren't looked at.
  void unfold() {
    for (int row = 0; row < rows(); ++row) {
      const int first = fold_->of(row);
      check(state(first).done, "row {} never ran", row);
      time(first).spans = spans_[static_cast<size_t>(first)];
      time(row) = time(first);
    }
  }

  void follow(int row, int before) {
    after_row_[static_cast<size_t>(before)].push_back(row);
    ++state(row).missing;
  }

  // Whether the row that is waited for has the unit's gradients ready before it ends.
  bool releases(const ir::Wait& wait) {
    const LaneSegment* segment = state(wait.row).segment;
    return wait.unit >= 0 && segment && std::ranges::find(segment->times->releases, wait.unit, &UnitMark::unit) != segment->times->releases.end();
  }

  // Or go on, if they stopped within.
  void begin_ready() {
    for (; !ready_.empty(); ready_.pop_front()) {
      const int row = ready_.front();
      if (!std::exchange(state(row).started, true)) time(row).begin = time(row).end = shared_.now();
      go_on(row);
    }
  }

  void go_on(int row) {
    const Task& t = task(row);
    RowState& s = state(row);
    if (t.kind == TaskKind::run) return next_piece(row);
    if (s.piece++ > 0) return finish(row);
    if (s.other->seconds <= 0) return finish(row);
    work_.assign(1, {s.other->seconds, folded(row, *s.other), communicates(t)});
    work(row);
  }

  // Runs stop within for parameters that are not there yet, and tell what gradients are complete.
  void next_piece(int row) {
    RowState& s = state(row);
    const SegmentTimes& times = *s.segment->times;
    for (;;) {
      for (; s.release < times.releases.size() && times.releases[s.release].before == s.piece; ++s.release)
        released(row, times.releases[s.release].unit);
      for (; s.await < times.awaits.size() && times.awaits[s.await].before == s.piece; ++s.await)
        for (const ir::Wait& wait : task(row).after)
          if (wait.unit == times.awaits[s.await].unit && !state(fold_->of(wait.row)).done) follow(row, fold_->of(wait.row));
      if (s.missing > 0) return;
      if (s.piece == times.pieces.size()) return finish(row);
      work_.clear();
      do add_piece(row, times.pieces[s.piece++]);
      while (s.piece < times.pieces.size() && goes_on(row, times));
      if (!work_.empty()) return work(row);
    }
  }

  void add_piece(int row, const Piece& part) {
    RowState& s = state(row);
    const bool computes = part.what == Activity::compute;
    if (!s.folded) s.folded = &folded(row, *s.segment);
    double seconds = part.fixed + part.per_pair * s.pairs + part.per_square * s.squares;
    if (computes) seconds = (seconds + std::exchange(s.zeroing, 0.0)) / alone_speedup_;
    if (seconds > 0) work_.push_back({seconds, computes ? s.folded->computing : s.folded->exchanging[static_cast<size_t>(part.exchange)], !computes});
  }

  const FoldedSegment& folded(int row, const LaneSegment& segment) {
    const auto [it, fresh] = folded_segments_.try_emplace({&segment, fold_->size(row)});
    if (fresh) {
      it->second.computing = fold_->claims(row, segment.computing);
      for (const std::vector<Claim>& claims : segment.exchanging) it->second.exchanging.push_back(fold_->claims(row, claims));
    }
    return it->second;
  }
  const std::vector<Claim>& folded(int row, const PlacedWork& work) {
    const auto [it, fresh] = folded_.try_emplace({&work, fold_->size(row)});
    if (fresh) it->second = fold_->claims(row, work.claims);
    return it->second;
  }

  // Whether nothing happens at the start of the present piece.
  bool goes_on(int row, const SegmentTimes& times) {
    RowState& s = state(row);
    size_t release = s.release, await = s.await;
    for (; release < times.releases.size() && times.releases[release].before == s.piece; ++release)
      if (s.awaited) return false;
    for (; await < times.awaits.size() && times.awaits[await].before == s.piece; ++await)
      for (const ir::Wait& wait : task(row).after)
        if (wait.unit == times.awaits[await].unit && !state(fold_->of(wait.row)).done) return false;
    s.release = release;
    s.await = await;
    return true;
  }

  void work(int row) {
    const auto number = static_cast<size_t>(shared_.start(work_));
    if (row_of_activity_.size() <= number) row_of_activity_.resize(number + 1);
    row_of_activity_[number] = row;
    work_began_[static_cast<size_t>(row)] = shared_.now();
  }

  void work_ended(int activity) {
    const int row = row_of_activity_[static_cast<size_t>(activity)];
    const std::span<const Stretch> stretches = shared_.stretches(activity);
    const std::span<const double> ends = shared_.ends(activity);
    double begin = work_began_[static_cast<size_t>(row)];
    for (size_t i = 0; i < ends.size(); ++i) spans_[static_cast<size_t>(row)].push_back({std::exchange(begin, ends[i]), ends[i], stretches[i].tag != 0});
    go_on(row);
  }

  void finish(int row) {
    state(row).done = true;
    time(row).end = shared_.now();
    for (const int follower : after_row_[static_cast<size_t>(row)]) arrived(follower);
  }

  void arrived(int row) {
    if (--state(row).missing == 0) ready_.push_back(row);
  }

  void released(int row, int unit) {
    const auto found = after_unit_.find({row, unit});
    if (found == after_unit_.end()) return;
    for (const int follower : found->second) arrived(follower);
  }

  const ir::Program& program_;
  const double alone_speedup_;
  RowWork costs_;
  Simulation result_;
  std::optional<Fold> fold_;
  std::vector<std::pair<int, int>> in_order_;  // rows of a queue, the later one first
  std::unordered_map<const void*, std::vector<int>> lists_;                      // of the graph, of a segment or other work
  std::map<std::pair<const LaneSegment*, i64>, FoldedSegment> folded_segments_;  // rows of a class
  std::map<std::pair<const PlacedWork*, i64>, std::vector<Claim>> folded_;
  std::vector<std::vector<Span>> spans_;       // of rows that stand for their class
  compiler::QueueNumbers queues_;
  SharedResources shared_{0};
  std::deque<int> ready_;  // rows that miss nothing
  std::vector<RowState> state_;
  std::vector<std::vector<int>> after_row_;                       // rows that wait for its end
  std::map<std::pair<int, int>, std::vector<int>> after_unit_;     // row, unit
  std::set<std::tuple<int, int, int>> accumulating_;               // phase, lane, stage
  std::vector<int> row_of_activity_;
  std::vector<double> work_began_;                                // of a row's present stretches
  std::vector<Stretch> work_;                                     // of the row that goes on
};

}  // namespace

Simulation simulate(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans, const cluster::Hardware& hardware) {
  return Simulator(program, plan, plans, hardware).run();
}

}  // namespace switchyard::simulator
