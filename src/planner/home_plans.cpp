#include "planner/home_plans.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <utility>

#include "base/random.hpp"

namespace switchyard::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int kDrafts = 4;  // so many are returned, as they may be the best when all times are exact
constexpr size_t kReductions = 16;
constexpr i64 kStepsOfAPlan = 5;  // mostly for what moves before its last phase
constexpr size_t kNotSorted = std::numeric_limits<size_t>::max();

}  // namespace

void HomePlans::open(std::vector<double> others) {
  others_ = std::move(others);
  sorted_.assign(ranges_.slots(), {});
  timed_.assign(ranges_.slots(), kNotSorted);
}

PhaseTimes HomePlans::times(const std::optional<Placement>& previous, const Option& next, const Home& home) const {
  return transfers_.phase(previous, next.shape.placement, home, next.seconds, next.last_backward);
}

// Seconds that gradients need at least after the last backward pass.
double HomePlans::after_computing(const Option& option, double reduce) {
  const bool in_work = option.shape.placement.runs_transfer();
  return std::max(0.0, reduce - (in_work ? 0 : option.last_backward));
}

// What an option for the longest documents has beyond its work includes an update at least; here home's is known.
double HomePlans::least(const Step& step) const {
  const Option& one = option(step);
  return step.range.hi > end_ ? one.seconds + transfers_.beyond_phase(one.shape.placement, false) : one.least();
}

HomePlans::Levels HomePlans::levels(Range range) const {
  return range.hi > end_ ? Levels{1} << end_ : (Levels{1} << range.hi) - (Levels{1} << range.lo);
}

std::vector<Draft> HomePlans::best(const Step& longest, int zero, double limit) {
  home_ = {option(longest).shape.placement, zero};
  end_ = longest.range.lo;
  all_ = (Levels{2} << end_) - 1;
  limit_ = limit;
  room_ = settings_.memory == 0 ? std::numeric_limits<i64>::max() : settings_.memory - model_.home_bytes(home_);
  finish_ = transfers_.finish(home_);
  stopped_ = false;
  choose_options();
  options_[ranges_.slot(longest.range)] = {longest.option};
  open_.push_back(longest.range);
  bound_rests();
  if (rest_.back() > limit_) return {};
  labels_.assign(1, {});
  marks_.clear();
  at_.assign(static_cast<size_t>(all_) + 1, {});
  at_.front() = {0};
  for (Levels done = 0; done < all_; ++done) extend(done);
  return stopped_ ? std::vector<Draft>{} : finished();
}

double HomePlans::least(const Step& longest, int zero, double rest) const {
  const Option& one = option(longest);
  const Home home{one.shape.placement, zero};
  Timeline timeline;
  // Other phases may run before it, and bring its parameters.
  timeline.add(longest.range.lo == 0 ? times(std::nullopt, one, home)
                                     : transfers_.phase(home.placement, 0, one.seconds,
                                                        transfers_.reduce(home.placement, home), one.last_backward));
  return std::max(timeline.reduced, timeline.least_end(transfers_.share()) + rest) + transfers_.finish(home);
}

double HomePlans::seconds(const Draft& draft) const {
  const Step& longest = *std::ranges::max_element(draft.steps, {}, [](const Step& step) { return step.range.hi; });
  const Home home{option(longest).shape.placement, draft.zero};
  Timeline timeline;
  std::optional<Placement> previous;
  for (const Step& step : draft.steps) {
    timeline.add(times(previous, option(step), home));
    previous = option(step).shape.placement;
  }
  return timeline.reduced + transfers_.finish(home);
}

// Options of a range, the quickest first. They are sorted again when an option's time has become exact, which may have
// made other candidates options.
const std::vector<size_t>& HomePlans::sorted(Range range) {
  const RangeCandidates& candidates = *ranges_.of(range);
  std::vector<size_t>& sorted = sorted_[ranges_.slot(range)];
  if (std::exchange(timed_[ranges_.slot(range)], candidates.timed()) == candidates.timed()) return sorted;
  for (size_t option = sorted.size(); option < candidates.size(); ++option) sorted.push_back(option);
  std::ranges::sort(sorted, {}, [&](size_t index) {
    const Option& one = candidates.option(index);
    return std::tuple<double, double, const Shape&, i64>(one.least(), one.seconds, one.shape, one.capacity);
  });
  return sorted;
}

void HomePlans::choose_options() {
  options_.assign(ranges_.slots(), {});
  open_.clear();
  std::vector<bool> seen;
  for (int lo = 0; lo < end_; ++lo)
    for (int hi = lo + 1; hi <= end_; ++hi) {
      const Range range{lo, hi};
      const RangeCandidates* candidates = ranges_.of(range);
      if (!candidates) continue;
      std::vector<size_t>& options = options_[ranges_.slot(range)];
      seen.assign(static_cast<size_t>(candidates->placements()), false);
      for (const size_t index : sorted(range)) {
        const Option& one = candidates->option(index);
        if (one.least() > limit_ - others_[ranges_.slot(range)]) break;
        if (one.memory > room_ || seen[static_cast<size_t>(one.placement)]) continue;
        seen[static_cast<size_t>(one.placement)] = true;
        options.push_back(index);
      }
      if (!options.empty()) open_.push_back(range);
    }
}

// Bounds on the time of all levels that have yet to run: their pipelines, then the gradients of the last phase, of
// which its last backward pass hides some, and the update.
void HomePlans::bound_rests() {
  work_.assign(static_cast<size_t>(all_) + 1, kNever);
  work_.front() = 0;
  for (Levels left = 1; left <= all_; ++left)
    for (const Range range : open_)
      if (const Levels some = levels(range); (some & left) == some && std::countr_zero(some) == std::countr_zero(left))
        work_[left] = std::min(work_[left], least({range, options_[ranges_.slot(range)].front()}) + work_[left ^ some]);
  rest_.assign(static_cast<size_t>(all_) + 1, kNever);
  rest_.front() = finish_;
  const double exposed = 1 - least_of_transfer(transfers_.share(), 1);
  for (const Range range : open_) {
    // A reduction to this home takes long to find, so it is found for the quickest options only.
    const std::vector<size_t>& options = options_[ranges_.slot(range)];
    double last = kNever;
    for (size_t i = 0; i < options.size(); ++i) {
      const Option& one = option({range, options[i]});
      const double least = this->least({range, options[i]});
      if (least >= last) break;
      const auto end_with = [&](double reduce) { return least + exposed * after_computing(one, reduce); };
      if (i < kReductions && end_with(transfers_.least_reduce(one.shape.placement)) >= last) continue;
      last = std::min(last, end_with(i < kReductions ? transfers_.reduce(one.shape.placement, home_) : 0));
      if (i == kReductions) break;
    }
    const Levels some = levels(range);
    for (Levels left = some; left <= all_; left = (left + 1) | some)
      rest_[left] = std::min(rest_[left], work_[left ^ some] + last + finish_);
  }
}

// Labels in the order in which they have computed. Whatever an option's transfers take after one of them, the option's
// phase begins and ends no earlier than when its parameters are there at once: where that is dominated, so are all
// later labels.
void HomePlans::extend(Levels done) {
  std::vector<int> labels = at_[done];
  if (labels.empty()) return;
  std::ranges::stable_sort(labels, {},
                           [&](int label) { return labels_[static_cast<size_t>(label)].timeline.computed; });
  double soonest = kNever;
  for (const int label : labels)
    soonest = std::min(soonest, labels_[static_cast<size_t>(label)].timeline.least_end(transfers_.share()));
  for (const Range range : open_) {
    const Levels some = levels(range);
    if ((done & some) != 0) continue;
    for (const size_t index : options_[ranges_.slot(range)]) {
      stopped_ = stopped_ || stop_();
      if (stopped_ || soonest + least({range, index}) > limit_ - rest_[all_ ^ (done | some)]) break;
      extend(labels, done | some, {range, index});
    }
  }
}

void HomePlans::extend(const std::vector<int>& labels, Levels next, const Step& step) {
  const Option& one = option(step);
  const double share = transfers_.share(), most = limit_ - rest_[all_ ^ next],
               reduce = transfers_.reduce(one.shape.placement, home_), after = after_computing(one, reduce);
  const std::uint64_t phase = mix(ranges_.slot(step.range) << 40 ^ step.option);  // sums of different phases differ
  // Many labels have the same last placement.
  moves_.resize(static_cast<size_t>(ranges_.of(step.range)->placements()) + 1);
  ++extensions_;
  const auto moves_after = [&](int from) {
    const Option* last = from == 0 ? nullptr : &option(labels_[static_cast<size_t>(from)].last);
    auto& [extension, seconds] = moves_[last ? static_cast<size_t>(last->placement) + 1 : 0];
    if (std::exchange(extension, extensions_) != extensions_)
      seconds =
          transfers_.moves(last ? std::optional(last->shape.placement) : std::nullopt, one.shape.placement, home_);
    return seconds;
  };
  Marks& marks = marks_[static_cast<std::uint64_t>(next) << 32 | static_cast<std::uint64_t>(one.placement)];
  for (const int from : labels) {
    const Label& last = labels_[static_cast<size_t>(from)];
    const Timeline before = last.timeline;
    const double computed = before.computed + one.seconds;
    if (computed > most) break;
    if (before.least_end(share) + one.seconds + least_of_transfer(share, reduce) > most) continue;
    Mark mark{{before.computed, computed, 0, computed + after}, last.buckets + 1};
    if (settings_.most_buckets > 0 && mark.buckets > settings_.most_buckets) continue;
    if (dominated(mark, marks)) {
      if (settings_.most_buckets == 0) break;
      continue;
    }
    if (std::max(before.reduced + reduce, computed + after) + finish_ > limit_) continue;
    mark.timeline = before;
    mark.timeline.add(transfers_.phase(one.shape.placement, moves_after(from), one.seconds, reduce, one.last_backward));
    if (mark.timeline.least_end(share) > most || dominated(mark, marks)) continue;
    marks.push_back(mark);
    ++made_;
    counts_.steps += kStepsOfAPlan;
    at_[next].push_back(static_cast<int>(labels_.size()));
    labels_.push_back(
        {.timeline = mark.timeline, .last = step, .before = from, .buckets = mark.buckets, .plan = last.plan + phase});
  }
}

// Whether another one is nowhere later.
bool HomePlans::dominated(const Mark& mark, const Marks& others) const {
  return std::ranges::any_of(others, [&](const Mark& other) {
    return other.timeline.no_later(mark.timeline) && (settings_.most_buckets == 0 || other.buckets <= mark.buckets);
  });
}

std::vector<Draft> HomePlans::finished() const {
  std::vector<int> labels = at_.back();
  std::ranges::stable_sort(labels, {}, [&](int label) { return labels_[static_cast<size_t>(label)].timeline.reduced; });
  std::vector<Draft> drafts;
  std::vector<std::uint64_t> plans;
  for (const int index : labels) {
    const Label& last = labels_[static_cast<size_t>(index)];
    Draft draft{{}, home_.zero, last.timeline.reduced + finish_};
    if (draft.seconds > limit_ || static_cast<int>(drafts.size()) == kDrafts) break;
    if (std::ranges::count(plans, last.plan) > 0) continue;
    plans.push_back(last.plan);
    for (int label = index; label > 0; label = labels_[static_cast<size_t>(label)].before)
      draft.steps.push_back(labels_[static_cast<size_t>(label)].last);
    std::ranges::reverse(draft.steps);
    drafts.push_back(std::move(draft));
  }
  return drafts;
}

}  // namespace switchyard::planner
