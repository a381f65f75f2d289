#include "planner/search.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <set>

#include "base/errors.hpp"
#include "planner/range_queue.hpp"

namespace switchyard::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kDeeper = 1.003;  // how much further each round of the search looks

PhaseTimes times_of(const CostModel& model, const Transfers& transfers, const std::optional<Placement>& previous, const Placement& next,
                    const Placement& home, double work) {
  const double moves = transfers.moves(previous, next, home);
  // A stage has its first unit when its share of the moves has come.
  const double units = static_cast<double>(model.units().model().layers + 2) / next.pp;
  return {moves, moves / units, work, transfers.flush(next, home)};
}

/// A plan in the making: the longest bucket, and those from the shortest up to `level`.
struct Label {
  Timeline timeline;
  std::vector<const Timed*> chosen;  // the longest bucket's first
  std::vector<Range> ranges;
  int level = 0;
};

class Search {
 public:
  Search(const CostModel& model, const Transfers& transfers, const std::vector<Shape>& shapes, const SearchSettings& settings)
      : model_(model), transfers_(transfers), settings_(settings), levels_(static_cast<int>(model.bounds().size())) {
    queues_.resize(static_cast<size_t>(levels_ * (levels_ + 1)));
    for (int lo = 0; lo < levels_; ++lo)
      for (int hi = lo + 1; hi <= levels_; ++hi)
        if (model.any({lo, hi})) queues_[slot({lo, hi})] = std::make_unique<RangeQueue>(model, shapes, Range{lo, hi}, settings.memory, found_.counts);
  }

  // Every round finds all plans of at most `limit` seconds, so those it finds are the best there are.
  Found run() {
    const double lowest = settle_relaxed();
    for (double limit = lowest * kDeeper; limit < kNever; limit *= kDeeper) {
      const bool all = refine_up_to(limit);
      found_.best.clear();
      for (int lo = 0; lo < levels_; ++lo) plans_of_longest(lo, limit);
      if (static_cast<int>(found_.best.size()) >= settings_.top) break;
      if (all) {
        if (exhausted_) break;
        exhausted_ = true;  // one more round, without a limit
        limit = std::numeric_limits<double>::max() / 2;
      }
    }
    for (const auto& queue : queues_)
      if (queue) queue->count_rest();
    return std::move(found_);
  }

 private:
  size_t slot(Range range) const { return static_cast<size_t>(range.lo * (levels_ + 1) + range.hi); }
  RangeQueue* queue(Range range) const { return queues_[slot(range)].get(); }

  // cover_[slot]: no buckets for all documents of the range take less, whatever moves between them.
  void cover_ranges() {
    cover_.assign(queues_.size(), kNever);
    for (int length = 1; length <= levels_; ++length)
      for (int lo = 0; lo + length <= levels_; ++lo) {
        const Range range{lo, lo + length};
        double& least = cover_[slot(range)];
        if (queue(range)) least = queue(range)->least_of_all();
        for (int middle = lo + 1; middle < range.hi; ++middle) least = std::min(least, cover({lo, middle}) + cover({middle, range.hi}));
      }
  }
  double cover(Range range) const { return range.lo == range.hi ? 0 : cover_[slot(range)]; }

  // Ranges of the best plan if nothing moved.
  void path(Range range, std::vector<Range>& into) const {
    if (queue(range) && queue(range)->least_of_all() <= cover(range)) return into.push_back(range);
    for (int middle = range.lo + 1; middle < range.hi; ++middle)
      if (cover({range.lo, middle}) + cover({middle, range.hi}) <= cover(range)) {
        path({range.lo, middle}, into);
        return path({middle, range.hi}, into);
      }
  }

  // Looks closer at the ranges of that plan until it is known to be the best.
  double settle_relaxed() {
    for (;;) {
      cover_ranges();
      std::vector<Range> ranges;
      const double lowest = cover({0, levels_});
      if (lowest == kNever) return kNever;
      path({0, levels_}, ranges);
      bool settled = true;
      for (const Range range : ranges)
        for (RangeQueue& q = *queue(range); q.least() <= q.least_of_all() && q.least() < kNever; settled = false) q.refine();
      if (settled) return lowest;
    }
  }

  // Times all candidates that a plan of at most `limit` seconds may have; whether there are no others.
  bool refine_up_to(double limit) {
    cover_ranges();
    for (int lo = 0; lo < levels_; ++lo) refine({lo, levels_}, [&](const RangeQueue&) { return limit - cover({0, lo}); });
    find_homes(limit);
    cover_ranges();
    cover_last();
    for (int lo = 0; lo < levels_; ++lo)
      for (int hi = lo + 1; hi <= levels_; ++hi) {
        const double rest = rest_of({lo, hi});
        refine({lo, hi}, [&](const RangeQueue&) { return limit - least_finish_ - rest; });
      }
    return std::ranges::all_of(queues_, [](const auto& q) { return !q || q->least() == kNever; });
  }

  void refine(Range range, const std::function<double(const RangeQueue&)>& most) {
    if (RangeQueue* q = queue(range))
      while (q->least() < kNever && q->least() <= most(*q)) q->refine();
  }

  // Placements that the longest documents may have: home is on one of them.
  void find_homes(double limit) {
    std::set<Placement> homes;
    least_finish_ = kNever;
    for (int lo = 0; lo < levels_; ++lo)
      if (queue({lo, levels_}))
        for (const Timed& timed : queue({lo, levels_})->timed())
          if (timed.seconds + cover({0, lo}) <= limit) homes.insert(timed.shape.placement);
    homes_.assign(homes.begin(), homes.end());
    for (const Placement& home : homes_) least_finish_ = std::min(least_finish_, transfers_.finish(home));
    least_flush_.clear();
  }

  // Nothing hides the last phase's gradients.
  double least_flush(const Placement& placement) {
    const auto [it, fresh] = least_flush_.try_emplace(placement, kNever);
    if (fresh)
      for (const Placement& home : homes_) it->second = std::min(it->second, transfers_.flush(placement, home));
    return it->second;
  }

  // last_[slot]: as cover_, where the range's last bucket is the last phase. to_end_[level]: the least of all from there on, the longest
  // bucket among it, which is not the last phase.
  void cover_last() {
    const auto flush = [&](const Placement& placement) { return least_flush(placement); };
    last_.assign(queues_.size(), kNever);
    for (int lo = 0; lo < levels_; ++lo)
      for (int hi = lo + 1; hi <= levels_; ++hi) {
        if (!queue({lo, hi})) continue;
        const double last = queue({lo, hi})->least_with(flush);
        for (int first = 0; first <= lo; ++first) last_[slot({first, hi})] = std::min(last_[slot({first, hi})], cover({first, lo}) + last);
      }
    to_end_.assign(static_cast<size_t>(levels_) + 1, kNever);
    for (int level = 0; level < levels_; ++level)
      for (int longest = level + 1; longest < levels_; ++longest)
        if (queue({longest, levels_})) {
          double& least = to_end_[static_cast<size_t>(level)];
          least = std::min(least, last_[slot({level, longest})] + queue({longest, levels_})->least_of_all());
        }
  }

  // What all else takes at least in a plan that has the range as a bucket.
  double rest_of(Range range) const {
    if (range.hi == levels_) return range.lo == 0 ? 0 : last_[slot({0, range.lo})];
    const double longest_next = queue({range.hi, levels_}) ? queue({range.hi, levels_})->least_of_all() : kNever;
    return cover({0, range.lo}) + std::min(longest_next, to_end_[static_cast<size_t>(range.hi)]);
  }

  // The quickest candidate of each placement of the range that fits beside home and in the limit.
  std::vector<const Timed*> usable(Range range, i64 home, double limit) const {
    std::map<Placement, const Timed*> quickest;
    for (const Timed& timed : queue(range)->timed()) {
      if (settings_.memory > 0 && timed.memory + home > settings_.memory) continue;
      if (timed.seconds > limit) continue;
      const Timed*& best = quickest[timed.shape.placement];
      if (!best || std::tie(timed.seconds, timed.shape, timed.capacity) < std::tie(best->seconds, best->shape, best->capacity)) best = &timed;
    }
    std::vector<const Timed*> list;
    for (const auto& [placement, timed] : quickest) list.push_back(timed);
    return list;
  }

  void plans_of_longest(int lo, double limit) {
    const Range range{lo, levels_};
    if (!queue(range)) return;
    for (const Timed& first : queue(range)->timed()) {
      const Placement& home = first.shape.placement;
      const auto fitting = usable(range, model_.home_bytes(home), limit - cover({0, lo}));
      if (std::ranges::count(fitting, &first) == 0) continue;
      Label label;
      label.timeline.add(times_of(model_, transfers_, std::nullopt, home, home, first.seconds));
      label.chosen = {&first};
      label.ranges = {range};
      extend(label, lo, limit);
    }
  }

  // From the shortest documents up to those of the longest bucket, level by level.
  void extend(const Label& first, int end, double limit) {
    const Placement& home = first.chosen.front()->shape.placement;
    const double finish = transfers_.finish(home);
    std::vector<std::map<Placement, std::vector<Label>>> at(static_cast<size_t>(end) + 1);
    at[0][home] = {first};
    for (int level = 0; level < end; ++level)
      for (int next = level + 1; next <= end; ++next) {
        if (!queue({level, next})) continue;
        const double after = cover({next, end}) + finish;
        const auto options = usable({level, next}, model_.home_bytes(home), limit - after);
        for (const auto& [last, labels] : at[static_cast<size_t>(level)])
          for (const Label& label : labels)
            for (const Timed* option : options) add(label, option, {level, next}, home, limit - after, at[static_cast<size_t>(next)]);
      }
    for (const auto& [last, labels] : at[static_cast<size_t>(end)])
      for (const Label& label : labels) keep(label, label.timeline.flushed + finish, limit);
  }

  void add(const Label& label, const Timed* option, Range range, const Placement& home, double limit, std::map<Placement, std::vector<Label>>& into) {
    const int most = settings_.most_buckets;
    if (label.timeline.computed + option->seconds > limit || (most > 0 && static_cast<int>(label.chosen.size()) >= most)) return;
    const Placement& placement = option->shape.placement;
    Timeline timeline = label.timeline;
    timeline.add(times_of(model_, transfers_, label.chosen.back()->shape.placement, placement, home, option->seconds));
    if (timeline.computed > limit) return;
    std::vector<Label>& labels = into[placement];
    // With as many plans that nowhere are later, this one isn't among the best, whatever follows.
    const auto better = [&](const Label& other) {
      return other.timeline.no_later(timeline) && (most == 0 || other.chosen.size() <= label.chosen.size() + 1);
    };
    if (std::ranges::count_if(labels, better) >= settings_.top) return;
    Label longer{timeline, label.chosen, label.ranges, range.hi};
    longer.chosen.push_back(option);
    longer.ranges.push_back(range);
    labels.push_back(std::move(longer));
  }

  void keep(const Label& label, double seconds, double limit) {
    if (seconds > limit) return;
    Choice choice{{}, seconds};
    for (size_t i = 0; i < label.chosen.size(); ++i) choice.phases.push_back({label.ranges[i], label.chosen[i]->shape, label.chosen[i]->capacity});
    const auto before = [](const Choice& a, const Choice& b) { return std::tie(a.seconds, a.phases) < std::tie(b.seconds, b.phases); };
    found_.best.insert(std::ranges::upper_bound(found_.best, choice, before), std::move(choice));
    if (static_cast<int>(found_.best.size()) > settings_.top) found_.best.pop_back();
  }

  const CostModel& model_;
  const Transfers& transfers_;
  SearchSettings settings_;
  int levels_;
  Found found_;
  std::vector<std::unique_ptr<RangeQueue>> queues_;
  std::vector<double> cover_, last_, to_end_;
  std::vector<Placement> homes_;
  std::map<Placement, double> least_flush_;
  double least_finish_ = 0;
  bool exhausted_ = false;
};

}  // namespace

std::vector<i64> capacities(const CostModel& model, Range range) {
  std::vector<i64> all;
  for (i64 tokens = model.longest(range); all.empty() || tokens <= 2 * model.bounds().back(); tokens *= 2) all.push_back(tokens);
  return all;
}

std::vector<PhaseTimes> phase_times(const CostModel& model, const Transfers& transfers, const std::vector<Phase>& phases) {
  std::vector<PhaseTimes> times;
  std::optional<Placement> previous;
  for (const Phase& phase : phases) {
    const Placement& next = phase.shape.placement;
    times.push_back(times_of(model, transfers, previous, next, phases.front().shape.placement, model.seconds(phase.shape, phase.capacity, phase.range)));
    previous = next;
  }
  return times;
}

double step_seconds(const CostModel& model, const Transfers& transfers, const std::vector<Phase>& phases, i64 memory) {
  const Placement& home = phases.front().shape.placement;
  for (const Phase& phase : phases)
    if (memory > 0 && model.need(phase.shape, phase.capacity, phase.range).total() + model.home_bytes(home) > memory) return kNever;
  Timeline timeline;
  for (const PhaseTimes& times : phase_times(model, transfers, phases)) timeline.add(times);
  return timeline.flushed + transfers.finish(home);
}

Found search(const CostModel& model, const Transfers& transfers, const std::vector<Shape>& shapes, const SearchSettings& settings) {
  return Search(model, transfers, shapes, settings).run();
}

}  // namespace switchyard::planner
