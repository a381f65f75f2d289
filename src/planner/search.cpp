#include "planner/search.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/errors.hpp"
#include "planner/home_plans.hpp"
#include "planner/model_threads.hpp"

namespace switchyard::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kNoLimit = std::numeric_limits<double>::max() / 2;
constexpr int kZeros = 2;  // stages of ZeRO: copies at home, or none
constexpr double kDeeper =
    0.003;  // how much further the first round looks; each one looks twice as much further as a cheap one before
constexpr i64 kLargeMicroBatch = 1 << 16;  // tokens
constexpr size_t kCheap = 1000;  // plans in the making of a round, whose number grows many times as fast as the limit

constexpr size_t kEntriesOfARound = 256;  // entries of a part of a range
constexpr double kRound = 1.003;          // by which a round raises what a plan takes at least
constexpr double kSettled = 1.005;  // so near to its bound a range's time is known before anything else is looked at
constexpr double kRounding = 1 + 1e-12;  // bounds are sums in another order

Degrees degrees(const Placement& p) { return {p.dp, mesh_key(p.mesh), p.pp}; }

PlanKey key_of(Range longest, const Placement& p) { return {longest.lo, degrees(p)}; }

class Search {
 public:
  Search(ModelThreads& threads, const ShapeIndex& shapes, const SearchSettings& settings)
      : threads_(threads),
        model_(threads.model(0)),
        settings_(settings),
        wanted_(settings.top),
        levels_(static_cast<int>(model_.bounds().size())),
        least_finish_(model_.transfers().least_finish()),
        ranges_{levels_, {}},
        counts_(threads.count()),
        plans_(model_, ranges_, settings_, stop_, counts_.front()) {
    ranges_.candidates.resize(ranges_.slots());
    for (size_t number = 0; number < threads.count(); ++number)
      rooms_.push_back(std::make_unique<MemoryRoom>(threads.model(number), shapes, settings.memory));
    for_ranges([&](Range range) {
      const bool possible = settings.most_buckets != 1 || range == Range{0, levels_};
      if (!possible || !model_.any(range)) return;
      std::vector<std::unique_ptr<RangeQueue>> parts;
      for (int part = 0; part < RangeCandidates::kParts; ++part) {
        const size_t model = static_cast<size_t>(part) % threads.count();
        parts.push_back(std::make_unique<RangeQueue>(threads.model(model), shapes, *rooms_[model], range,
                                                     counts_[model], Part{part, RangeCandidates::kParts}));
      }
      ranges_.candidates[slot(range)] = std::make_unique<RangeCandidates>(std::move(parts), shapes.placements());
    });
  }

  /// A plan that the search need not find.
  void begin_with(Choice choice) { keep(std::move(choice)); }

  /// Nothing if nothing fits; otherwise a plan that is nearly the best, as bounds on plans in which nothing moves have
  /// it, and single strategies.
  std::vector<Choice> nearly_best() {
    settings_.top = 1;
    find_single();
    settle_relaxed();
    std::vector<Choice> plans = found_.best;
    if (settings_.singles > 0) find_singles();
    std::ranges::move(found_.singles, std::back_inserter(plans));
    return plans;
  }

  // The best plan comes first: those after it leave less to be pruned.
  Found run() {
    settings_.top = 1;
    if (found_.best.empty()) find_single();
    find(settle_relaxed() + least_finish_);
    found_.proven = !stopped_ || (!found_.best.empty() && found_.least >= enough() / kRounding);
    if (!found_.best.empty() && found_.proven) found_.least = found_.best.front().seconds;
    if (wanted_ > 1 && found_.proven && !found_.best.empty()) {
      settings_.top = wanted_;
      if (settings_.on_first) settings_.on_first(found_.best.front());
      limit_steps(settings_.runners_up);
      const double least = found_.least;
      keep_others_like(Choice(found_.best.front()));
      find(least);
      found_.least = least;
    }
    if (settings_.singles > 0) find_singles();
    count_rest();
    for (const Counts& counts : counts_) found_.counts += counts;
    return std::move(found_);
  }

 private:
  // Every round finds the best of all plans of at most `limit` seconds, so those it finds are the best there are.
  void find(double limit) {
    for (double deeper = kDeeper; limit < kNever;) {
      found_.least = limit;
      const size_t made = plans_.made();
      limit = std::min(limit * (1 + deeper), std::max(limit, enough()));
      if (limit > kNoLimit) limit = kNoLimit;
      const bool all = open_up_to(limit);
      limit_ = std::min(limit, enough());
      if (!stopped_) look_at(starts());
      if (stopped_ || enough() <= limit || limit == kNoLimit) break;
      if (all) limit = kNoLimit;  // one more round
      if (plans_.made() - made < kCheap) deeper *= 2;
    }
  }

  // What a search that was stopped has left is excluded only by bounds with which no plan is quicker than the best one.
  void count_rest() {
    cover_ranges();
    for_ranges([&](Range range) {
      if (const RangeCandidates* of = candidates(range))
        of->count_rest(found_.proven ? 0 : enough() - least_finish_ - rest_of(range));
    });
  }

  size_t slot(Range range) const { return ranges_.slot(range); }
  RangeCandidates* candidates(Range range) const {
    return single_ && range != Range{0, levels_} ? nullptr : ranges_.of(range);
  }
  template <class Visit>
  void for_ranges(Visit visit) const {
    for (int lo = 0; lo < levels_; ++lo)
      for (int hi = lo + 1; hi <= levels_; ++hi) visit(Range{lo, hi});
  }

  // cover_[slot]: no buckets for all documents of the range take less, whatever moves between them.
  void cover_ranges() {
    cover_.assign(ranges_.slots(), kNever);
    least_.assign(ranges_.slots(), kNever);
    for (int length = 1; length <= levels_; ++length)
      for (int lo = 0; lo + length <= levels_; ++lo) {
        const Range range{lo, lo + length};
        double& least = cover_[slot(range)];
        if (candidates(range)) least = least_[slot(range)] = candidates(range)->least_of_all();
        for (int middle = lo + 1; middle < range.hi; ++middle)
          least = std::min(least, cover({lo, middle}) + cover({middle, range.hi}));
      }
  }
  double cover(Range range) const { return range.lo == range.hi ? 0 : cover_[slot(range)]; }

  // Ranges of the best plan if nothing moved.
  void path(Range range, std::vector<Range>& into) const {
    if (candidates(range) && least_[slot(range)] <= cover(range)) return into.push_back(range);
    for (int middle = range.lo + 1; middle < range.hi; ++middle)
      if (cover({range.lo, middle}) + cover({middle, range.hi}) <= cover(range)) {
        path({range.lo, middle}, into);
        return path({middle, range.hi}, into);
      }
  }

  // Calls task(part, range) for each part of each range; returns whether any of the calls returned true.
  template <class Task>
  bool any_part(Task task) {
    std::vector<char> any(threads_.count(), 0);
    threads_.run([&](size_t model) {
      for_ranges([&](Range range) {
        for (size_t part = model; candidates(range) && part < RangeCandidates::kParts; part += threads_.count())
          if (task(candidates(range)->part(part), range)) any[model] = 1;
      });
    });
    for_ranges([&](Range range) {
      if (candidates(range)) candidates(range)->list();
    });
    return std::ranges::count(any, 1) > 0;
  }

  // Seconds below which another candidate of the range, if there is one, may be much quicker than those whose time is
  // known.
  template <class Candidates>
  static double unsettled(const Candidates& of) {
    return std::min(of.quickest() / kSettled, of.least_of_options());
  }

  // Raises the bound on that plan: looks closer at every range that it may have, until it takes longer with any of
  // them, or the quickest candidates of those it has are nearly known. Rounds, in which bounds rise together, are the
  // same with any number of threads.
  void settle_all() {
    std::mutex mutex;
    const auto stop = [&] {
      if (most_steps_) return false;  // work is counted between rounds
      const std::lock_guard lock(mutex);
      return stop_();
    };
    for (bool more = true; more && !stop_();) {
      cover_ranges();
      const double level = std::min(kRound * cover({0, levels_}), enough() - least_finish_);
      std::vector<double> most(ranges_.slots(), 0);
      for_ranges([&](Range range) {
        if (candidates(range)) most[slot(range)] = std::min(level - rest_of(range), unsettled(*candidates(range)));
      });
      more = any_part([&](RangeQueue& part, Range range) {
        bool any = false;
        for (; part.least() < std::min(most[slot(range)], unsettled(part)) && !stop(); any = true) part.refine();
        return any;
      });
    }
  }

  // Looks closer until that plan is known to be nearly the best.
  double settle_relaxed() {
    settle_all();
    cover_ranges();
    const double lowest = cover({0, levels_});
    if (lowest == kNever || stop_()) return lowest;
    std::vector<Range> ranges;
    path({0, levels_}, ranges);
    keep_relaxed(ranges);
    return lowest;
  }

  // The best single strategy, which is often near the best of all, and quickly found.
  void find_single() {
    single_ = true;
    find(settle_relaxed() + least_finish_);
    single_ = false;
  }

  // Bounds that are known already say much of them, too.
  void find_singles() {
    Found all = std::exchange(found_, {});
    std::erase_if(of_key_, [](const auto& of) { return of.second.phases.size() > 1; });
    settings_.top = wanted_ = settings_.singles;
    list_best();
    single_ = singles_last_ = true;
    stopped_ = false;
    limit_steps(settings_.of_singles);
    find(settle_relaxed() + least_finish_);
    single_ = false;
    all.singles = std::move(found_.best);
    found_ = std::move(all);
  }

  // From now on work is limited, and not time; nothing: as before.
  void limit_steps(std::optional<i64> most) {
    if (most) most_steps_ = steps() + *most;
  }

  // First plans: on each range the quickest option that is known, if it fits beside home. Ranges rise.
  void keep_relaxed(const std::vector<Range>& ranges) {
    if (settings_.most_buckets > 0 && std::cmp_greater(ranges.size(), settings_.most_buckets)) return;
    for (int zero = 0; zero < kZeros; ++zero) {
      Draft draft{{}, zero, 0};
      i64 room = settings_.memory == 0 ? std::numeric_limits<i64>::max() : settings_.memory;
      for (size_t i = 0; i < ranges.size(); ++i) {
        const Range range = i == 0 ? ranges.back() : ranges[i - 1];  // the published order
        const RangeCandidates& all = *candidates(range);
        std::optional<size_t> quickest;
        for (size_t number = 0; number < all.size(); ++number) {
          const Option& one = all.option(number);
          const Home home{one.shape.placement, zero};
          if (one.exact && (i > 0 ? one.memory <= room : fits(one, home)) &&
              (!quickest || one.least() < all.option(*quickest).least()))
            quickest = number;
        }
        if (!quickest) break;
        draft.steps.push_back({range, *quickest});
        const Home home{all.option(*quickest).shape.placement, zero};
        if (i == 0 && zero == 0 && !home.copies()) break;
        if (i == 0 && settings_.memory > 0) room -= model_.home_bytes(home);
      }
      if (draft.steps.size() == ranges.size()) keep_orders(std::move(draft));
    }
  }

  void keep_orders(Draft draft) {
    keep(draft);
    constexpr size_t kMostPhases = 5;  // whose orders are all tried
    if (draft.steps.size() > kMostPhases) return;
    const auto lo = [](const Step& step) { return step.range.lo; };
    std::ranges::sort(draft.steps, {}, lo);
    do keep(draft);
    while (std::ranges::next_permutation(draft.steps, {}, lo).found);
  }

  // The plan with other degrees of the longest documents: often the next best ones, and found without looking further
  // at the other documents.
  void keep_others_like(const Choice& best) {
    const Range longest = best.longest().range;
    Draft draft{{}, 1, 0};
    for (const Phase& phase : best.phases) {
      const RangeCandidates& of = *candidates(phase.range);
      size_t number = 0;
      const auto same = [&](const Option& one) { return one.shape == phase.shape && one.capacity == phase.capacity; };
      while (number < of.size() && !same(of.option(number))) ++number;
      if (number == of.size()) return;  // it was not found by this search
      draft.steps.push_back({phase.range, number});
    }
    for (const size_t index : quickest_of_each_key(longest)) {
      if (stop_()) return;
      for (Step& step : draft.steps)
        if (step.range == longest) step.option = index;
      const Home home{option({longest, index}).shape.placement, 1};
      if (std::ranges::any_of(draft.steps, [&](const Step& step) { return !fits(option(step), home); })) continue;
      time(draft);
      keep_orders(draft);
    }
  }

  // Options of the range's quickest keys, a few more than are listed, by their times or bounds on them.
  std::vector<size_t> quickest_of_each_key(Range range) {
    constexpr double kFurthest = 0.1;
    std::vector<size_t> quickest;
    for (double further = kDeeper; further < kFurthest && std::cmp_less(quickest.size(), 2 * wanted_) && !stop_();
         further *= 2) {
      RangeCandidates& of = *candidates(range);
      const double most = (1 + further) * of.least_of_all();
      for (bool left = true; left && !stop_();) left = !of.open(most, kEntriesOfARound);
      std::vector<size_t> all(of.size());
      std::iota(all.begin(), all.end(), size_t{0});
      std::ranges::stable_sort(all, {}, [&](size_t index) { return of.option(index).least(); });
      std::set<PlanKey> keys;
      quickest.clear();
      for (const size_t index : all)
        if (keys.insert(key_of(range, of.option(index).shape.placement)).second) quickest.push_back(index);
    }
    if (std::cmp_greater(quickest.size(), 2 * wanted_)) quickest.resize(static_cast<size_t>(2 * wanted_));
    return quickest;
  }

  // Seconds that all other ranges take at least, in a plan that has the range as a bucket.
  double rest_of(Range range) const { return cover({0, range.lo}) + cover({range.hi, levels_}); }

  // Makes options of all candidates that a plan of at most `limit` seconds may have; whether there are no others.
  // Whether to stop is asked between rounds, which are the same with any number of threads.
  bool open_up_to(double limit) {
    cover_ranges();
    for (bool left = true; left && !stop_();)
      left = any_part([&](RangeQueue& part, Range range) {
        return !part.open(limit - least_finish_ - rest_of(range), kEntriesOfARound);
      });
    cover_ranges();
    bool all = true;
    std::vector<double> others(ranges_.slots(), kNever);
    for_ranges([&](Range range) {
      all = all && (!candidates(range) || candidates(range)->least() == kNever);
      others[slot(range)] = rest_of(range);
    });
    plans_.open(std::move(others));
    return all;
  }

  // A placement for the longest documents, and what a plan takes at least that has home there.
  struct Start {
    double least = kNever;
    Range range;
    int placement = 0, zero = 1;
    PlanKey key{};
    double deeper = kDeeper;
    bool known = false;  // transfers that nothing hides are counted
  };

  std::vector<Start> starts() const {
    std::vector<Start> starts;
    for (int lo = 0; lo < levels_; ++lo) {
      const Range range{lo, levels_};
      const RangeCandidates* all = candidates(range);
      if (!all) continue;
      std::vector<Start> of(static_cast<size_t>(all->placements() * kZeros));
      for (size_t number = 0; number < all->size(); ++number)
        for (int zero = 0; zero < kZeros; ++zero) {
          const Option& option = all->option(number);
          const Home home{option.shape.placement, zero};
          if (!fits(option, home) || (zero == 0 && !home.copies())) continue;
          Start& start = of[static_cast<size_t>(option.placement * kZeros + zero)];
          start = {.least = std::min(start.least, option.least() + cover({0, lo}) + least_finish_),
                   .range = range,
                   .placement = option.placement,
                   .zero = zero,
                   .key = key_of(range, option.shape.placement)};
        }
      std::ranges::copy_if(std::make_move_iterator(of.begin()), std::make_move_iterator(of.end()),
                           std::back_inserter(starts), [](const Start& start) { return start.least < kNever; });
    }
    return starts;
  }

  const Option& option(const Step& step) const { return candidates(step.range)->option(step.option); }
  bool fits(const Option& option, const Home& home) const {
    return settings_.memory == 0 || option.memory + model_.home_bytes(home) <= settings_.memory;
  }

  // Always the start whose plans are known to take the least is looked at closer, no further than it must be: only
  // options of plans that may be the best are timed.
  void look_at(std::vector<Start> waiting) {
    const auto later = [](const Start& a, const Start& b) {
      return std::tie(a.least, a.range, a.placement, b.zero) > std::tie(b.least, b.range, b.placement, a.zero);
    };
    std::ranges::make_heap(waiting, later);
    while (!waiting.empty() && waiting.front().least <= limit_) {
      if (stop_()) {
        found_.least = std::clamp(waiting.front().least, found_.least, found_.best.front().seconds);
        return;
      }
      std::ranges::pop_heap(waiting, later);
      if (waiting.back().least <= limit_of(waiting.back()) && look_at(waiting.back()))
        std::ranges::push_heap(waiting, later);
      else
        waiting.pop_back();
    }
  }

  // The seconds above which a start's plans are not looked for: only the best plan with the start's key is listed, so
  // the best one known is a limit.
  double limit_of(const Start& start) const {
    const auto known = of_key_.find(start.key);
    return known == of_key_.end() ? limit_ : std::min(limit_, known->second.seconds * kRounding);
  }

  // Whether there is more to see. A start's plans are looked for up to a limit of its own, which is raised until there
  // are any.
  bool look_at(Start& start) {
    const Step longest{start.range, quickest(start)};
    if (!std::exchange(start.known, true)) {
      start.least = std::max(start.least, plans_.least(longest, start.zero, cover({0, start.range.lo})));
      return true;
    }
    const double most = limit_of(start), limit = std::min(most, start.least * (1 + start.deeper));
    const std::vector<Draft> drafts = plans_.best(longest, start.zero, limit);
    if (stopped_) return true;
    bool exact = true;
    for (size_t i = 0; i < drafts.size(); ++i)
      if (time(drafts[i]) && i == 0) exact = false;
    for (const Draft& draft : drafts) keep(draft);
    if (!exact) {
      start.least = std::max(start.least, drafts.front().seconds);
      return true;
    }
    if (limit < most && drafts.empty()) {
      start.least = limit;
      start.deeper *= 2;
      return true;
    }
    return false;
  }

  // Makes a draft's options exact; whether they weren't.
  bool time(const Draft& draft) {
    bool any = false;
    for (const Step& step : draft.steps)
      if (!option(step).exact) {
        candidates(step.range)->time(step.option);
        any = true;
      }
    return any;
  }

  size_t quickest(const Start& start) const {
    const RangeCandidates& all = *candidates(start.range);
    size_t quickest = all.size();
    for (size_t i = 0; i < all.size(); ++i) {
      const Option& one = all.option(i);
      if (one.placement != start.placement || (quickest < all.size() && one.seconds >= all.option(quickest).seconds))
        continue;
      if (fits(one, {one.shape.placement, start.zero})) quickest = i;
    }
    return quickest;
  }

  void keep(const Draft& draft) {
    Choice choice{{}, draft.zero, plans_.seconds(draft)};
    for (const Step& step : draft.steps)
      choice.phases.push_back({step.range, option(step).shape, option(step).capacity});
    keep(std::move(choice));
  }
  void keep(Choice choice) {
    const auto [it, fresh] = of_key_.try_emplace(key_of(choice), choice);
    if (!fresh && !before(choice, it->second)) return;
    it->second = std::move(choice);
    list_best();
    limit_ = std::min(limit_, enough());
  }

  static bool before(const Choice& a, const Choice& b) {
    return std::tie(a.seconds, a.phases, b.zero) < std::tie(b.seconds, b.phases, a.zero);
  }

  void list_best() {
    std::vector<const Choice*> all;
    for (const auto& [key, choice] : of_key_) all.push_back(&choice);
    std::ranges::sort(all, [](const Choice* a, const Choice* b) { return before(*a, *b); });
    found_.best.clear();
    for (const Choice* choice : all) {
      if (std::cmp_equal(found_.best.size(), wanted_)) break;
      if (std::ranges::none_of(found_.best, [&](const Choice& other) { return same_degrees(model_, other, *choice); }))
        found_.best.push_back(*choice);
    }
  }

  // No plan that takes longer is of interest.
  double enough() const {
    const auto top = static_cast<size_t>(settings_.top);
    return found_.best.size() < top ? kNever : found_.best[top - 1].seconds * kRounding;
  }

  i64 steps() const {
    return std::transform_reduce(counts_.begin(), counts_.end(), i64{0}, std::plus<>(),
                                 [](const Counts& counts) { return counts.steps; });
  }

  ModelThreads& threads_;
  const CostModel& model_;
  SearchSettings settings_;  // top: 1 until the best one is known
  int wanted_;
  int levels_;
  double least_finish_;  // for all plans
  Found found_;
  // Not before there is a plan.
  std::function<bool()> stop_ = [this] {
    const bool said = most_steps_ ? steps() >= *most_steps_ : settings_.spent && settings_.spent() >= 1;
    return stopped_ = stopped_ || (said && (singles_last_ || !found_.best.empty()));
  };
  std::map<PlanKey, Choice> of_key_;                // the best one known
  std::vector<std::unique_ptr<MemoryRoom>> rooms_;  // by model
  Ranges ranges_;
  std::vector<Counts> counts_;  // by model
  HomePlans plans_;
  std::vector<double> cover_, least_;  // by slot
  double limit_ = 0;
  bool single_ = false;  // only one strategy for all documents is looked for
  bool singles_last_ = false;
  std::optional<i64> most_steps_;
  bool stopped_ = false;
};

}  // namespace

Counts& Counts::operator+=(const Counts& other) {
  for (i64 Counts::*const count : {&Counts::candidates, &Counts::rough, &Counts::memory, &Counts::bound,
                                   &Counts::dominated, &Counts::timed, &Counts::unexamined, &Counts::steps})
    this->*count += other.*count;
  return *this;
}

std::vector<i64> capacities(const CostModel& model, Range range) {
  std::vector<i64> all;
  const i64 most = std::max(2 * model.bounds().back(), std::min(kLargeMicroBatch, 2 * model.tokens(range) - 1));
  for (i64 tokens = model.longest(range); all.empty() || tokens <= most; tokens *= 2) all.push_back(tokens);
  return all;
}

PlanKey key_of(const Choice& choice) {
  const Phase& longest = choice.longest();
  return key_of(longest.range, longest.shape.placement);
}

bool same_degrees(const CostModel& model, const Choice& a, const Choice& b) {
  const auto by_level = [&](const Choice& choice) {
    std::vector<Degrees> levels(model.bounds().size());
    for (const Phase& phase : choice.phases)
      std::fill(levels.begin() + phase.range.lo, levels.begin() + phase.range.hi, degrees(phase.shape.placement));
    return levels;
  };
  return by_level(a) == by_level(b);
}

const Phase& Choice::longest() const {
  return *std::ranges::max_element(phases, {}, [](const Phase& phase) { return phase.range.hi; });
}

std::vector<PhaseTimes> phase_times(const CostModel& model, const Transfers& transfers, const Choice& choice) {
  std::vector<PhaseTimes> times;
  std::optional<Placement> previous;
  for (const Phase& phase : choice.phases) {
    const Placement& next = phase.shape.placement;
    times.push_back(transfers.phase(previous, next, choice.home(),
                                    model.seconds(phase.shape, phase.capacity, phase.range),
                                    model.last_backward(next, phase.range)));
    previous = next;
  }
  return times;
}

double step_seconds(const CostModel& model, const Transfers& transfers, const Choice& choice, i64 memory) {
  for (const Phase& phase : choice.phases)
    if (memory > 0 &&
        model.need(phase.shape, phase.capacity, phase.range).total() + model.home_bytes(choice.home()) > memory)
      return kNever;
  Timeline timeline;
  for (const PhaseTimes& times : phase_times(model, transfers, choice)) timeline.add(times);
  return timeline.reduced + transfers.finish(choice.home());
}

// The best plan of the usual part is often nearly the best of all: with it little else is looked at, and where time is
// short it stands.
Found search(const CostModel& model, const std::vector<Shape>& shapes, const SearchSettings& settings) {
  std::vector<const CostModel*> models{&model};
  models.insert(models.end(), settings.equal.begin(), settings.equal.end());
  ModelThreads threads(std::move(models), settings.threads);
  const bool by_ranks = model.units().shares_rise();
  std::vector<Choice> begin;
  if (shapes.size() > settings.many) {
    std::vector<Shape> usual;
    std::ranges::copy_if(shapes, std::back_inserter(usual), is_usual);
    SearchSettings first{.memory = settings.memory,
                         .most_buckets = settings.most_buckets,
                         .singles = settings.singles,
                         .of_singles = settings.of_singles};
    if (settings.spent) first.spent = [&] { return 2 * settings.spent(); };
    const ShapeIndex index(usual, by_ranks);
    begin = Search(threads, index, first).nearly_best();
  }
  const ShapeIndex index(shapes, by_ranks);
  Search all(threads, index, settings);
  for (Choice& choice : begin) all.begin_with(std::move(choice));
  return all.run();
}

}  // namespace switchyard::planner
