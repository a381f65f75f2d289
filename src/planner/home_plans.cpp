#include "planner/home_plans.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

namespace switchyard::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int kDrafts = 4;  // at least so many are returned, as they may be the best when all times are exact
constexpr size_t kNotSorted = std::numeric_limits<size_t>::max();

}  // namespace

PhaseTimes times_of(const CostModel& model, const Transfers& transfers, const std::optional<Placement>& previous, const Placement& next,
                    const Placement& home, double work) {
  const double moves = transfers.moves(previous, next, home);
  // A stage has its first unit when its share of the moves has come.
  const double units = static_cast<double>(model.units().model().layers + 2) / next.pp;
  return {moves, moves / units, work, transfers.flush(next, home)};
}

void HomePlans::open(std::vector<double> others) {
  others_ = std::move(others);
  sorted_.assign(ranges_.slots(), {});
  timed_.assign(ranges_.slots(), 0);
  for (size_t slot = 0; slot < ranges_.slots(); ++slot) {
    if (!ranges_.queues[slot]) continue;
    sorted_[slot].resize(ranges_.queues[slot]->options().size());
    std::iota(sorted_[slot].begin(), sorted_[slot].end(), size_t{0});
    timed_[slot] = kNotSorted;
  }
}

PhaseTimes HomePlans::times(const std::optional<Placement>& previous, const Option& next, const Placement& home) const {
  return times_of(model_, transfers_, previous, next.shape.placement, home, next.seconds);
}

std::vector<Draft> HomePlans::best(const Step& first, double limit) {
  const Option& longest = option(first);
  home_ = longest.shape.placement;
  end_ = first.range.lo;
  limit_ = limit;
  room_ = settings_.memory == 0 ? std::numeric_limits<i64>::max() : settings_.memory - model_.home_bytes(home_);
  finish_ = transfers_.finish(home_);
  stopped_ = false;
  found_.clear();
  labels_ = {{{}, first, -1, 1}};
  labels_.front().timeline.add(times(std::nullopt, longest, home_));
  at_.assign(static_cast<size_t>(end_) + 1, std::vector<std::vector<int>>(static_cast<size_t>(ranges_.queue(first.range)->placements())));
  at_.front().front() = {0};
  if (end_ > 0) {
    choose_options();
    bound_rests();
    if (labels_.front().timeline.computed + rest_.front() > limit_) return {};
    bound_starts();
  }
  for (int level = 0; level < end_; ++level)
    for (int next = level + 1; next <= end_; ++next)
      if (ranges_.queue({level, next})) extend(level, next);
  if (stopped_) return {};
  for (const std::vector<int>& labels : at_.back())
    for (const int label : labels) finish(label);
  return std::move(found_);
}

double HomePlans::least(const Step& first, double rest) const {
  const Option& longest = option(first);
  const Placement& home = longest.shape.placement;
  Timeline timeline;
  timeline.add(times(std::nullopt, longest, home));
  return std::max(timeline.flushed, timeline.computed + rest) + transfers_.finish(home);
}

double HomePlans::seconds(const Draft& draft) const {
  const Placement& home = option(draft.steps.front()).shape.placement;
  Timeline timeline;
  std::optional<Placement> previous;
  for (const Step& step : draft.steps) {
    timeline.add(times(previous, option(step), home));
    previous = option(step).shape.placement;
  }
  return timeline.flushed + transfers_.finish(home);
}

// Again where an option's time has become exact.
const std::vector<size_t>& HomePlans::sorted(Range range) {
  const RangeQueue& queue = *ranges_.queue(range);
  std::vector<size_t>& sorted = sorted_[ranges_.slot(range)];
  if (std::exchange(timed_[ranges_.slot(range)], queue.timed()) != queue.timed())
    std::ranges::sort(sorted, {}, [&](size_t index) {
      const Option& one = queue.options()[index];
      return std::tie(one.seconds, one.shape, one.capacity);
    });
  return sorted;
}

void HomePlans::choose_options() {
  options_.assign(ranges_.slots(), {});
  std::vector<bool> seen;
  for (int lo = 0; lo < end_; ++lo)
    for (int hi = lo + 1; hi <= end_; ++hi) {
      const Range range{lo, hi};
      const RangeQueue* queue = ranges_.queue(range);
      if (!queue) continue;
      seen.assign(static_cast<size_t>(queue->placements()), false);
      for (const size_t index : sorted(range)) {
        const Option& one = queue->options()[index];
        if (one.seconds > limit_ - others_[ranges_.slot(range)]) break;
        if (one.memory > room_ || seen[static_cast<size_t>(one.placement)]) continue;
        seen[static_cast<size_t>(one.placement)] = true;
        options_[ranges_.slot(range)].push_back(index);
      }
    }
}

// Of what follows each level: the work, the last phase's gradients, which nothing hides, and the update.
void HomePlans::bound_rests() {
  rest_.assign(static_cast<size_t>(end_) + 1, kNever);
  rest_.back() = finish_;
  for (int level = end_ - 1; level >= 0; --level)
    for (int next = level + 1; next <= end_; ++next) {
      double& least = rest_[static_cast<size_t>(level)];
      for (const size_t index : options_[ranges_.slot({level, next})]) {
        const Option& one = option({{level, next}, index});
        const double so_far = one.seconds + rest_[static_cast<size_t>(next)];
        if (so_far >= least) break;
        least = std::min(least, so_far + (next == end_ ? transfers_.flush(one.shape.placement, home_) : 0));
      }
    }
}

void HomePlans::bound_starts() {
  start_.assign(static_cast<size_t>(end_) + 1, kNever);
  start_.front() = labels_.front().timeline.computed;
  for (int level = 0; level < end_; ++level)
    for (int next = level + 1; next <= end_; ++next)
      if (const auto& options = options_[ranges_.slot({level, next})]; !options.empty())
        start_[static_cast<size_t>(next)] = std::min(start_[static_cast<size_t>(next)], start_[static_cast<size_t>(level)] + option({{level, next}, options.front()}).seconds);
}

// Labels in the order in which they have computed. Whatever an option's transfers take after one of them, the option's phase begins and
// ends no earlier than when its parameters are there at once: where that is dominated, so are all later labels.
void HomePlans::extend(int level, int next) {
  std::vector<int> labels;
  for (const std::vector<int>& of_placement : at_[static_cast<size_t>(level)]) labels.insert(labels.end(), of_placement.begin(), of_placement.end());
  std::ranges::stable_sort(labels, {}, [&](int label) { return labels_[static_cast<size_t>(label)].timeline.computed; });
  const double most = limit_ - rest_[static_cast<size_t>(next)];
  for (const size_t index : options_[ranges_.slot({level, next})]) {
    const Step step{{level, next}, index};
    const Option& one = option(step);
    stopped_ = stopped_ || settings_.stop();
    if (stopped_) return;
    if (start_[static_cast<size_t>(level)] + one.seconds > most) break;
    const double flush = transfers_.flush(one.shape.placement, home_);
    for (const int label : labels) {
      const int buckets = labels_[static_cast<size_t>(label)].buckets + 1;
      const double before = labels_[static_cast<size_t>(label)].timeline.computed, computed = before + one.seconds;
      if (computed > most) break;
      if (settings_.most_buckets > 0 && buckets > settings_.most_buckets) continue;
      const Timeline soonest{before, computed, 0, computed + flush};
      if (!dominated(soonest, buckets, at_[static_cast<size_t>(next)][static_cast<size_t>(one.placement)]))
        extend(label, step, next);
      else if (settings_.most_buckets == 0)
        break;
    }
  }
}

// With as many plans that nowhere are later, one isn't among the best, whatever follows.
bool HomePlans::dominated(const Timeline& timeline, int buckets, const std::vector<int>& labels) const {
  const auto better = [&](int index) {
    const Label& other = labels_[static_cast<size_t>(index)];
    return other.timeline.no_later(timeline) && (settings_.most_buckets == 0 || other.buckets <= buckets);
  };
  return std::ranges::count_if(labels, better) >= settings_.top;
}

void HomePlans::extend(int from, const Step& step, int next) {
  const Label& before = labels_[static_cast<size_t>(from)];
  const Option& one = option(step);
  Label longer{before.timeline, step, from, before.buckets + 1};
  longer.timeline.add(times(placement(before), one, home_));
  std::vector<int>& labels = at_[static_cast<size_t>(next)][static_cast<size_t>(one.placement)];
  if (longer.timeline.computed > limit_ - rest_[static_cast<size_t>(next)] || dominated(longer.timeline, longer.buckets, labels)) return;
  labels.push_back(static_cast<int>(labels_.size()));
  labels_.push_back(longer);
}

void HomePlans::finish(int index) {
  Draft draft{{}, labels_[static_cast<size_t>(index)].timeline.flushed + finish_};
  if (draft.seconds > limit_) return;
  for (int label = index; label >= 0; label = labels_[static_cast<size_t>(label)].before) draft.steps.push_back(labels_[static_cast<size_t>(label)].last);
  std::ranges::reverse(draft.steps);
  found_.insert(std::ranges::upper_bound(found_, draft.seconds, {}, &Draft::seconds), std::move(draft));
  if (static_cast<int>(found_.size()) > std::max(settings_.top, kDrafts)) found_.pop_back();
}

}  // namespace switchyard::planner
