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
#include "simulator/rank_times.hpp"
#include "simulator/shared_resources.hpp"
#include "simulator/symmetry_folding.hpp"
#include "simulator/task_work.hpp"

namespace switchyard::simulator {
namespace {

using ir::Task;
using ir::TaskKind;

constexpr int kComputes = 0, kCommunicates = 1, kBoth = 2;  // a stretch
constexpr int kInOrder = -2;  // why a task waits: it is the next one of a queue; otherwise for a unit

class Simulator {
 public:
  Simulator(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans,
            const cluster::Hardware& hardware, KnownSegments& known, const MeasuredStep* measured)
      : program_(program),
        alone_speedup_(hardware.device.alone_speedup),
        costs_(plan, plans, hardware, known, measured),
        queues_(program.tasks, hardware.ranks()) {
    result_.tasks.resize(program.tasks.size());
    spans_.resize(program.tasks.size());
  }

  Simulation run() {
    fold();
    prepare();
    for (int id = 0; id < tasks(); ++id)
      if (fold_->stands(id) && state(id).missing == 0) ready_.push_back(id);
    begin_ready();
    for (int ended = shared_.next(); ended >= 0; ended = shared_.next()) {
      work_ended(ended);
      begin_ready();
    }
    unfold();
    for (const TaskTime& id : result_.tasks) result_.step_seconds = std::max(result_.step_seconds, id.end);
    result_.ranks = rank_times(program_, result_.tasks, result_.step_seconds, *fold_);
    result_.kept = std::make_shared<const std::vector<std::vector<Span>>>(std::move(spans_));
    return std::move(result_);
  }

 private:
  // The claims of a class of tasks on the classes of resources in a segment.
  struct FoldedSegment {
    std::vector<Claim> computing;
    std::vector<std::vector<Claim>> exchanging, both;
  };

  // A task on its way. missing: streams and tasks that it waits for; zeroing: of accumulators that the run makes; the
  // rest is of runs, too.
  struct TaskState {
    int missing = 0;
    bool started = false, done = false, awaited = false;  // awaited: for units
    const ReplicaSegment* segment = nullptr;
    const FoldedSegment* folded = nullptr;
    const PlacedWork* other = nullptr;  // work of tasks that aren't runs
    size_t piece = 0, await = 0, release = 0;
    double attention_pairs = 0, squared_lengths = 0, zeroing = 0;
    Queues queues{};
  };

  const Task& task(int id) const { return program_.tasks[static_cast<size_t>(id)]; }
  TaskTime& time(int id) { return result_.tasks[static_cast<size_t>(id)]; }
  TaskState& state(int id) { return state_[static_cast<size_t>(id)]; }

  // Also by copies within a device, where they are part of a switch.
  static bool communicates(const Task& t) { return ir::is_transfer(t.kind()) || t.kind() == TaskKind::allocate; }

  int tasks() const { return static_cast<int>(program_.tasks.size()); }

  // Which tasks are bound to take place together: one of them is looked at.
  void fold() {
    state_.resize(program_.tasks.size());
    TaskGraph graph(costs_.kinds_of_resources());
    std::vector<int> last_of_queue(queues_.count(), -1);
    for (int id = 0; id < tasks(); ++id) {
      const Task& t = task(id);
      if (t.kind() == TaskKind::run)
        add_run(id, graph);
      else
        add_other(id, graph);
      int known = -1;  // mostly all ranks of a task have the same task before it
      for (const int rank : t.ranks) {
        const int before = std::exchange(last_of_queue[queues_.of(t, rank)], id);
        if (before < 0 || before == known) continue;
        graph.wait(known = before, kInOrder);
        in_order_.emplace_back(id, before);
      }
      for (const ir::Wait& wait : t.after) graph.wait(wait.task, wait.unit);
    }
    fold_.emplace(graph);
    shared_ = SharedResources(fold_->resources());
  }

  static std::uint64_t bits(double number) { return std::bit_cast<std::uint64_t>(number); }

  void add_run(int id, TaskGraph& graph) {
    const Task& t = task(id);
    TaskState& s = state(id);
    const ReplicaSegment& segment = costs_.segment(t);
    std::vector<int>& lists = lists_[&segment];
    if (lists.empty()) {
      lists.push_back(graph.list(&segment.computing));
      for (const auto* kinds : {&segment.exchanging, &segment.both})
        for (const std::vector<Claim>& claims : *kinds) lists.push_back(graph.list(&claims));
    }
    s.segment = &segment;
    s.attention_pairs = batch::attention_pairs(costs_.shard(t));
    s.squared_lengths = static_cast<double>(batch::squared_lengths(costs_.shard(t)));
    if (costs_.makes_own_gradients(t) || t.pass() == Pass::W || t.pass() == Pass::BW)
      if (accumulating_.insert(costs_.accumulators_of(t)).second) s.zeroing = costs_.zeroing(t);
    const std::array parts{reinterpret_cast<std::uint64_t>(segment.times), bits(s.attention_pairs),
                           bits(s.squared_lengths), bits(s.zeroing)};
    graph.add_task(TaskGraph::work_of(parts), lists);
  }

  void add_other(int id, TaskGraph& graph) {
    const Task& t = task(id);
    const PlacedWork& work = costs_.work(t);
    std::vector<int>& lists = lists_[&work];
    if (lists.empty()) lists.push_back(graph.list(&work.claims));
    state(id).other = &work;
    const std::array parts{bits(work.seconds), static_cast<std::uint64_t>(communicates(t))};
    graph.add_task(TaskGraph::work_of(parts), lists);
  }

  // Waits of each task: its streams' tasks before it, other tasks, units of other tasks.
  void prepare() {
    work_began_.resize(program_.tasks.size());
    after_task_.resize(program_.tasks.size());
    for (const auto& [id, before] : in_order_)
      if (fold_->stands(id)) follow(id, fold_->of(before));
    for (int id = 0; id < tasks(); ++id) {
      if (!fold_->stands(id)) continue;
      const Task& t = task(id);
      for (const ir::Wait& wait : t.after) {
        if (t.kind() == TaskKind::run && wait.unit >= 0) continue;
        const int awaited = fold_->of(wait.task);
        if (releases(wait)) {
          after_unit_[{awaited, wait.unit}].push_back(id);
          state(awaited).awaited = true;
          ++state(id).missing;
        } else {
          follow(id, awaited);
        }
      }
    }
  }

  // The tasks that weren't looked at.
  void unfold() {
    for (int id = 0; id < tasks(); ++id) {
      const int first = fold_->of(id);
      check(state(first).done, "task {} never ran", id);
      time(first).spans = spans_[static_cast<size_t>(first)];
      time(id) = time(first);
    }
  }

  void follow(int id, int before) {
    after_task_[static_cast<size_t>(before)].push_back(id);
    ++state(id).missing;
  }

  // Whether the task that is waited for has the unit's gradients ready before it ends.
  bool releases(const ir::Wait& wait) {
    const ReplicaSegment* segment = state(wait.task).segment;
    return wait.unit >= 0 && segment &&
           std::ranges::find(segment->times->releases, wait.unit, &UnitMark::unit) != segment->times->releases.end();
  }

  // Begins ready tasks, or lets those that stopped within go on.
  void begin_ready() {
    for (; !ready_.empty(); ready_.pop_front()) {
      const int id = ready_.front();
      if (!std::exchange(state(id).started, true)) time(id).begin = time(id).end = shared_.now();
      go_on(id);
    }
  }

  void go_on(int id) {
    const Task& t = task(id);
    TaskState& s = state(id);
    if (t.kind() == TaskKind::run) return next_piece(id);
    if (s.piece++ > 0) return finish(id);
    if (s.other->seconds <= 0) return finish(id);
    work_.assign(1, {s.other->seconds, folded(id, *s.other), communicates(t) ? kCommunicates : kComputes});
    work(id);
  }

  // Runs stop within for parameters that are not there yet, and report which gradients are complete. Collectives go on
  // where a run stops.
  void next_piece(int id) {
    TaskState& s = state(id);
    const SegmentTimes& times = *s.segment->times;
    for (;;) {
      for (; s.release < times.releases.size() && times.releases[s.release].before == s.piece; ++s.release)
        released(id, times.releases[s.release].unit);
      work_.clear();
      size_t await = s.await;
      if (s.piece == times.pieces.size() || !parameters_there(id, times, await)) {
        parts_.clear();
        s.queues.finish(parts_);
        add_work(id);
        if (!work_.empty()) return work(id);
      }
      for (; s.await < times.awaits.size() && times.awaits[s.await].before == s.piece; ++s.await)
        for (const ir::Wait& wait : task(id).after)
          if (wait.unit == times.awaits[s.await].unit && !state(fold_->of(wait.task)).done)
            follow(id, fold_->of(wait.task));
      if (s.missing > 0) return;
      if (s.piece == times.pieces.size()) return finish(id);
      do add_piece(id, times.pieces[s.piece++]);
      while (s.piece < times.pieces.size() && goes_on(id, times));
      if (!work_.empty()) return work(id);
    }
  }

  void add_piece(int id, const Piece& piece) {
    TaskState& s = state(id);
    double seconds = piece.fixed + piece.per_pair * s.attention_pairs + piece.per_square * s.squared_lengths;
    if (piece.what == Activity::compute) seconds = (seconds + std::exchange(s.zeroing, 0.0)) / alone_speedup_;
    parts_.clear();
    s.queues.add(piece, seconds, parts_);
    add_work(id);
  }

  void add_work(int id) {
    TaskState& s = state(id);
    if (!s.folded) s.folded = &folded(id, *s.segment);
    for (const Part& part : parts_) {
      const auto exchange = static_cast<size_t>(part.exchange);
      if (part.exchange < 0)
        work_.push_back({part.seconds, s.folded->computing, kComputes});
      else if (!part.computes)
        work_.push_back({part.seconds, s.folded->exchanging[exchange], kCommunicates});
      else
        work_.push_back({part.seconds * s.segment->slowdown[exchange], s.folded->both[exchange], kBoth});
    }
  }

  const FoldedSegment& folded(int id, const ReplicaSegment& segment) {
    const auto [it, fresh] = folded_segments_.try_emplace({&segment, fold_->size(id)});
    if (fresh) {
      it->second.computing = fold_->claims(id, segment.computing);
      for (const std::vector<Claim>& claims : segment.exchanging)
        it->second.exchanging.push_back(fold_->claims(id, claims));
      for (const std::vector<Claim>& claims : segment.both) it->second.both.push_back(fold_->claims(id, claims));
    }
    return it->second;
  }
  const std::vector<Claim>& folded(int id, const PlacedWork& work) {
    const auto [it, fresh] = folded_.try_emplace({&work, fold_->size(id)});
    if (fresh) it->second = fold_->claims(id, work.claims);
    return it->second;
  }

  // Whether the units that the present piece awaits are there; await: goes past them.
  bool parameters_there(int id, const SegmentTimes& times, size_t& await) const {
    for (; await < times.awaits.size() && times.awaits[await].before == state_[static_cast<size_t>(id)].piece; ++await)
      for (const ir::Wait& wait : task(id).after)
        if (wait.unit == times.awaits[await].unit && !state_[static_cast<size_t>(fold_->of(wait.task))].done)
          return false;
    return true;
  }

  // Whether nothing happens at the start of the present piece.
  bool goes_on(int id, const SegmentTimes& times) {
    TaskState& s = state(id);
    size_t release = s.release, await = s.await;
    for (; release < times.releases.size() && times.releases[release].before == s.piece; ++release)
      if (s.awaited) return false;
    if (!parameters_there(id, times, await)) return false;
    s.release = release;
    s.await = await;
    return true;
  }

  void work(int id) {
    const auto number = static_cast<size_t>(shared_.start(work_));
    if (task_of_activity_.size() <= number) task_of_activity_.resize(number + 1);
    task_of_activity_[number] = id;
    work_began_[static_cast<size_t>(id)] = shared_.now();
  }

  void work_ended(int activity) {
    const int id = task_of_activity_[static_cast<size_t>(activity)];
    const std::span<const Stretch> stretches = shared_.stretches(activity);
    const std::span<const double> ends = shared_.ends(activity);
    double begin = work_began_[static_cast<size_t>(id)];
    for (size_t i = 0; i < ends.size(); ++i) {
      const double from = std::exchange(begin, ends[i]);
      for (const int what : {kComputes, kCommunicates})
        if (stretches[i].tag == what || stretches[i].tag == kBoth)
          spans_[static_cast<size_t>(id)].push_back({from, ends[i], what == kCommunicates});
    }
    go_on(id);
  }

  void finish(int id) {
    state(id).done = true;
    time(id).end = shared_.now();
    for (const int follower : after_task_[static_cast<size_t>(id)]) arrived(follower);
  }

  void arrived(int id) {
    if (--state(id).missing == 0) ready_.push_back(id);
  }

  void released(int id, int unit) {
    const auto found = after_unit_.find({id, unit});
    if (found == after_unit_.end()) return;
    for (const int follower : found->second) arrived(follower);
  }

  const ir::Program& program_;
  const double alone_speedup_;
  TaskWork costs_;
  Simulation result_;
  std::optional<SymmetryFolding> fold_;
  std::vector<std::pair<int, int>> in_order_;                // tasks of a queue, the later one first
  std::unordered_map<const void*, std::vector<int>> lists_;  // lists of the graph, of a segment or of other work
  std::map<std::pair<const ReplicaSegment*, i64>, FoldedSegment> folded_segments_;  // tasks of a class
  std::map<std::pair<const PlacedWork*, i64>, std::vector<Claim>> folded_;
  std::vector<std::vector<Span>> spans_;  // spans of tasks that stand for their class
  compiler::QueueNumbers queues_;
  SharedResources shared_{0};
  std::deque<int> ready_;  // tasks that miss nothing
  std::vector<TaskState> state_;
  std::vector<std::vector<int>> after_task_;                    // tasks that wait for its end
  std::map<std::pair<int, int>, std::vector<int>> after_unit_;  // task, unit
  std::set<TaskWork::Accumulators> accumulating_;               // that a run has begun
  std::vector<int> task_of_activity_;
  std::vector<double> work_began_;  // when a task's present stretches began
  std::vector<Part> parts_;         // parts of a piece
  std::vector<Stretch> work_;       // stretches of the task that goes on
};

}  // namespace

Simulation simulate(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans,
                    const cluster::Hardware& hardware, KnownSegments& known, const MeasuredStep* measured) {
  return Simulator(program, plan, plans, hardware, known, measured).run();
}

Simulation simulate(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans,
                    const cluster::Hardware& hardware) {
  KnownSegments known;
  return simulate(program, plan, plans, hardware, known);
}

}  // namespace switchyard::simulator
