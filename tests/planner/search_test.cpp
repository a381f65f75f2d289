#include "planner/search.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

// What the phases of a plan may have, by name.
struct Feature {
  std::string name;
  std::function<bool(const Shape&)> in;
};
std::vector<Feature> features() {
  std::vector<Feature> all = {
      {"dp", [](const Shape& shape) { return shape.placement.dp > 1; }},
      {"pp", [](const Shape& shape) { return shape.placement.pp > 1; }},
      {"chunks in a loop",
       [](const Shape& shape) {
         return shape.placement.chunks > 1 && shape.placement.path == schedule::Placement::loop && !shape.blockwise();
       }},
      {"chunks on a V", [](const Shape& shape) { return shape.placement.path == schedule::Placement::v; }},
      {"chunks of blocks", [](const Shape& shape) { return shape.placement.chunks > 1 && shape.blockwise(); }},
      {"zero=2", [](const Shape& shape) { return shape.placement.zero == 2; }},
      {"zero=3", [](const Shape& shape) { return shape.placement.zero == 3 && !shape.blockwise(); }},
      {"blocks", [](const Shape& shape) { return shape.blockwise() && shape.every > 1; }},
      {"stages within a host", [](const Shape& shape) { return shape.placement.inside == config::Inside::pipeline; }},
      {"fewer layers beside the head", [](const Shape& shape) { return shape.placement.head_layers > 0; }}};
  for (const layout::StageAxisInfo& axis : layout::stage_axes())
    if (axis.axis != layout::StageAxis::data)
      all.push_back({std::string(axis.name),
                     [which = axis.axis](const Shape& shape) { return shape.placement.mesh[which] > 1; }});
  return all;
}

// Enumerates every plan and times each as a whole; nothing is pruned. What a phase takes, and what moves before and
// after it, is computed once.
class Exhaustive {
 public:
  explicit Exhaustive(SmallProblem& problem) : p_(problem), levels_(static_cast<int>(problem.model.bounds().size())) {
    for (int lo = 0; lo < levels_; ++lo)
      for (int hi = lo + 1; hi <= levels_; ++hi)
        if (p_.model.any({lo, hi})) add_candidates({lo, hi});
    for (size_t home = 0; home < 2 * placements_.size(); ++home) add_home(home);
  }

  std::vector<double> best() {
    for (int lo = 0; lo < levels_; ++lo) for_all({lo, levels_}, [&] { from(0, lo); });
    std::vector<Quickest> sorted;
    for (const auto& [key, quickest] : quickest_) sorted.push_back(quickest);
    std::ranges::sort(sorted, {}, &Quickest::seconds);
    std::set<DegreesOfLevels> seen;
    std::vector<double> seconds;
    for (const auto& [time, plans] : sorted) {
      const auto known = std::ranges::count_if(plans, [&](const auto& plan) { return seen.contains(plan); });
      ties_ = ties_ || (known > 0 && std::cmp_less(known, plans.size()));
      if (known == 0) seconds.push_back(time);
      seen.insert(plans.begin(), plans.end());
    }
    return seconds;
  }
  /// Whether it depends on which of equally quick plans is taken what else is listed.
  bool ties() const { return ties_; }
  i64 plans() const { return plans_; }
  /// Adds how many plans that fit have each feature, in their order.
  void count(std::vector<i64>& met) const {
    met.resize(features_.size());
    for (const auto& [mask, plans] : met_)
      for (size_t f = 0; f < features_.size(); ++f)
        if ((mask >> f & 1) != 0) met[f] += plans;
  }

 private:
  struct Candidate {
    Range range;
    planner::Degrees degrees;
    PhaseTimes times{};  // without moves and reduction
    i64 need = 0;
    size_t placement = 0;
    unsigned features = 0;  // a bit each
  };
  using DegreesOfLevels = std::vector<planner::Degrees>;
  struct Quickest {
    double seconds = 0;
    std::set<DegreesOfLevels> plans;  // all that take as long
  };

  void add_candidates(Range range) {
    for (const Shape& any : p_.shapes)
      for (const i64 capacity : capacities(p_.model, range)) {
        const Shape shape = cut_to_fit(p_.model, any, capacity, range, p_.settings.memory);
        const Placement& p = shape.placement;
        const auto known = std::ranges::find(placements_, p);
        candidates_[range].push_back(
            {range,
             {p.dp, mesh_key(p.mesh), p.pp},
             p_.transfers.phase(p, 0, p_.model.seconds(shape, capacity, range), 0, p_.model.last_backward(p, range)),
             p_.model.need(shape, capacity, range).total(),
             static_cast<size_t>(known - placements_.begin()),
             features_of(shape)});
        if (known == placements_.end()) placements_.push_back(p);
      }
  }
  unsigned features_of(const Shape& shape) const {
    unsigned mask = 0;
    for (size_t f = 0; f < features_.size(); ++f) mask |= (features_[f].in(shape) ? 1U : 0U) << f;
    return mask;
  }
  // Two homes of each placement, by ZeRO stage.
  void add_home(size_t home) {
    const Home at{placements_[home / 2], static_cast<int>(home % 2)};
    home_bytes_.push_back(p_.model.home_bytes(at));
    finish_.push_back(p_.transfers.finish(at));
    for (const Placement& next : placements_) {
      reduce_.push_back(p_.transfers.reduce(next, at));
      moves_.push_back(p_.transfers.moves({}, next, at));
      for (const Placement& previous : placements_) moves_.push_back(p_.transfers.moves(previous, next, at));
    }
  }
  template <class Then>
  void for_all(Range range, Then then) {
    const auto of_range = candidates_.find(range);
    if (of_range == candidates_.end()) return;
    for (const Candidate& candidate : of_range->second) {
      plan_.push_back(&candidate);
      then();
      plan_.pop_back();
    }
  }
  void from(int level, int end) {
    if (level == end) return finish();
    for (int next = level + 1; next <= end; ++next) for_all({level, next}, [&] { from(next, end); });
  }
  // plan_: that of the longest documents, then the others by length.
  void finish() {
    if (p_.settings.most_buckets > 0 && std::cmp_greater(plan_.size(), p_.settings.most_buckets)) return;
    const Candidate& longest = *plan_.front();
    double least = std::numeric_limits<double>::infinity();
    std::vector<const Candidate*> order = plan_;
    std::ranges::sort(order);
    for (int zero = placements_[longest.placement].copies() > 1 ? 0 : 1; zero < 2; ++zero) {
      do {
        ++plans_;
        least = std::min(least, seconds_of(order, 2 * longest.placement + static_cast<size_t>(zero)));
      } while (std::ranges::next_permutation(order).found);
    }
    if (least == std::numeric_limits<double>::infinity()) return;
    unsigned mask = 0;
    for (const Candidate* candidate : plan_) mask |= candidate->features;
    ++met_[mask];
    const std::pair key(longest.range.lo, longest.degrees);
    Quickest& quickest = quickest_.try_emplace(key, Quickest{least, {}}).first->second;
    if (least < quickest.seconds * (1 - kRounding)) quickest.plans.clear();
    if (least <= quickest.seconds * (1 + kRounding)) quickest.plans.insert(degrees());
    quickest.seconds = std::min(quickest.seconds, least);
  }
  DegreesOfLevels degrees() const {
    DegreesOfLevels of(static_cast<size_t>(levels_));
    for (const Candidate* candidate : plan_)
      std::fill(of.begin() + candidate->range.lo, of.begin() + candidate->range.hi, candidate->degrees);
    return of;
  }
  // The same as step_seconds.
  double seconds_of(const std::vector<const Candidate*>& order, size_t home) const {
    Timeline timeline;
    size_t previous = 0;  // none
    for (const Candidate* phase : order) {
      if (p_.settings.memory > 0 && phase->need + home_bytes_[home] > p_.settings.memory)
        return std::numeric_limits<double>::infinity();
      const size_t of_home = home * placements_.size() + phase->placement;
      const double moves = moves_[of_home * (placements_.size() + 1) + previous];
      const double units = static_cast<double>(p_.units.model().layers + 2) / placements_[phase->placement].pp;
      PhaseTimes times = phase->times;
      std::tie(times.moves, times.first_unit) = std::pair(moves, moves / units);
      std::tie(times.reduce, times.last_unit) = std::pair(reduce_[of_home], reduce_[of_home] / units);
      timeline.add(times);
      previous = phase->placement + 1;
    }
    return timeline.reduced + finish_[home];
  }

  SmallProblem& p_;
  int levels_;
  std::map<Range, std::vector<Candidate>> candidates_;
  std::vector<Placement> placements_;
  std::vector<i64> home_bytes_;                  // by home
  std::vector<double> finish_, reduce_, moves_;  // by home, and the placement, and the one before it (first: none)
  std::vector<const Candidate*> plan_;
  i64 plans_ = 0;
  const std::vector<Feature> features_ = features();
  std::map<unsigned, i64> met_;  // by the features of their phases: plans that fit
  static constexpr double kRounding = 1e-12;
  std::map<std::pair<int, planner::Degrees>, Quickest> quickest_;  // by the longest documents' bucket
  bool ties_ = false;
};

// Fewer shapes where the product over buckets would take long.
void make_small(SmallProblem& problem) {
  std::shuffle(problem.shapes.begin(), problem.shapes.end(), problem.random);
  const size_t bounds = problem.model.bounds().size();
  problem.shapes.resize(std::min<size_t>(problem.shapes.size(), bounds > 3 ? 4 : bounds > 2 ? 9 : 14));
  std::ranges::sort(problem.shapes);
}

constexpr unsigned kProblems = cases(140u, 3u), kBounded = cases(20u, 2u);

TEST(Search, finds_what_trying_every_plan_finds) {
  std::set<size_t> buckets;
  int nothing_fits = 0, reordered = 0, ties = 0;
  i64 plans = 0;
  const std::vector<Feature> features = planner::features();
  std::vector<i64> met(features.size(), 0);         // in plans that fit
  std::vector<int> found_with(features.size(), 0);  // in plans that the search found
  for (unsigned seed = 1; seed <= kProblems; ++seed) {
    SmallProblem problem(seed);
    make_small(problem);
    if (seed % 4 == 3) problem.settings.memory = problem.memory(true);  // many fit only with ZeRO-2 or 3
    problem.settings.top = problem.pick({1, 3});
    problem.settings.most_buckets = seed % 10 == 7 ? 1 : 0;
    if (seed % 2 == 0) problem.settings.many = 0;
    Exhaustive exhaustive(problem);
    const std::vector<double> best = exhaustive.best();
    plans += exhaustive.plans();
    exhaustive.count(met);
    const Found found = search(problem.model, problem.shapes, problem.settings);
    ties += exhaustive.ties();
    const size_t listed = exhaustive.ties() ? 1 : found.best.size();
    ASSERT_EQ(listed, std::min<size_t>(best.size(), exhaustive.ties() ? 1 : static_cast<size_t>(problem.settings.top)))
        << "seed " << seed;
    for (size_t i = 0; i < listed; ++i) {
      EXPECT_DOUBLE_EQ(found.best[i].seconds, best[i]) << "seed " << seed << ", plan " << i;
      EXPECT_DOUBLE_EQ(found.best[i].seconds,
                       step_seconds(problem.model, problem.transfers, found.best[i], problem.settings.memory));
    }
    if (best.empty())
      ++nothing_fits;
    else
      buckets.insert(found.best.front().phases.size());
    for (const Choice& choice : found.best)
      if (!std::ranges::is_sorted(choice.phases.begin() + 1, choice.phases.end()) ||
          choice.phases.front() != choice.longest())
        ++reordered;
    for (const Choice& choice : found.best)
      for (size_t f = 0; f < features.size(); ++f)
        found_with[f] += std::ranges::any_of(choice.phases, features[f].in, &Phase::shape);
    const Counts& c = found.counts;
    EXPECT_EQ(c.rough + c.memory + c.bound + c.dominated + c.timed, c.candidates) << "nothing is unexamined";
  }
  EXPECT_LT(nothing_fits, 30);
  EXPECT_LT(ties, 10);
  if (kProblems < 100) return;
  EXPECT_GE(buckets.size(), 2u) << "one strategy, and several";
  EXPECT_GT(reordered, 5) << "not the published order";
  for (size_t f = 0; f < features.size(); ++f) {
    EXPECT_GT(met[f], 500) << features[f].name << ", of all plans";
    EXPECT_GT(found_with[f], 0) << features[f].name << ", of the best ones";
  }
  EXPECT_GT(plans, 1000000);
}

TEST(Search, single_strategies_are_those_of_a_search_among_them_alone) {
  size_t several = 0, none = 0;
  for (unsigned seed = 1; seed <= kBounded; ++seed)
    for (const size_t many : {size_t{20000}, size_t{1}}) {  // also after the usual part
      SmallProblem problem(seed);
      problem.settings.top = problem.settings.singles = 4;
      problem.settings.many = many;
      const Found found = search(problem.model, problem.shapes, problem.settings);
      problem.settings.singles = 0;
      EXPECT_TRUE(search(problem.model, problem.shapes, problem.settings).singles.empty());
      problem.settings.most_buckets = 1;
      const Found alone = search(problem.model, problem.shapes, problem.settings);
      ASSERT_EQ(found.singles.size(), alone.best.size()) << "seed " << seed;
      for (size_t i = 0; i < alone.best.size(); ++i) {
        EXPECT_EQ(found.singles[i].phases.size(), 1u);
        EXPECT_EQ(found.singles[i].seconds, alone.best[i].seconds) << "seed " << seed;
        EXPECT_EQ(step_seconds(problem.model, problem.transfers, found.singles[i], problem.settings.memory),
                  alone.best[i].seconds);
      }
      several += alone.best.size() > 1;
      none += alone.best.empty();
    }
  EXPECT_GT(several, kBounded / 2);
  EXPECT_LT(none, kBounded);
}

TEST(Search, equal_models_and_threads_change_no_result) {
  i64 candidates = 0;
  for (unsigned seed = 1; seed <= kBounded; ++seed) {
    SmallProblem problem(seed), second(seed), third(seed);
    problem.settings.top = 4;
    const Found alone = search(problem.model, problem.shapes, problem.settings);
    problem.settings.equal = {&second.model, &third.model};
    problem.settings.threads = 2 + seed % 2;
    const Found found = search(problem.model, problem.shapes, problem.settings);
    EXPECT_EQ(found.counts.steps, alone.counts.steps) << "seed " << seed;
    EXPECT_EQ(found.counts.memory, alone.counts.memory);
    EXPECT_EQ(found.counts.rough, alone.counts.rough);
    EXPECT_EQ(found.counts.timed, alone.counts.timed);
    ASSERT_EQ(found.best.size(), alone.best.size()) << "seed " << seed;
    for (size_t i = 0; i < alone.best.size(); ++i) {
      EXPECT_EQ(found.best[i].phases, alone.best[i].phases) << "seed " << seed;
      EXPECT_EQ(found.best[i].seconds, alone.best[i].seconds);
    }
    candidates += found.counts.candidates;
  }
  EXPECT_GT(candidates, 1000);
}

TEST(Search, no_other_order_or_home_of_a_plan_is_quicker) {
  int copies = 0, plans = 0;
  for (unsigned seed = 1; seed <= 2 * kBounded; ++seed) {
    SmallProblem problem(seed);
    problem.settings.top = 40;
    for (const Choice& choice : search(problem.model, problem.shapes, problem.settings).best) {
      ++plans;
      Choice other = choice;
      std::ranges::sort(other.phases);
      for (other.zero = 0; other.zero < 2; ++other.zero) {
        do {
          if (other.home().copies()) ++copies;
          EXPECT_GE(step_seconds(problem.model, problem.transfers, other, problem.settings.memory),
                    choice.seconds * (1 - 1e-12))
              << "seed " << seed;
        } while (std::ranges::next_permutation(other.phases).found);
      }
    }
  }
  if (kBounded < 10) return;
  EXPECT_GT(plans, 100);
  EXPECT_GT(copies, 100) << "ZeRO stage 0";
}

TEST(Search, stopped_anywhere_it_has_a_plan_and_a_bound_on_its_gap) {
  int stopped = 0, better_later = 0, unexamined = 0;
  for (unsigned seed = 1; seed <= kBounded; ++seed) {
    SmallProblem problem(seed);
    const Found whole = search(problem.model, problem.shapes, problem.settings);
    EXPECT_TRUE(whole.proven);
    if (whole.best.empty()) continue;
    const double best = whole.best.front().seconds;
    EXPECT_EQ(whole.least, best);
    EXPECT_EQ(whole.gap(), 0);
    for (const int most : {0, 1, 2, 5, 20, 100, 1000000}) {
      int asked = 0;
      problem.settings.spent = [&] { return asked++ >= most ? 1.0 : 0.0; };
      const Found found = search(problem.model, problem.shapes, problem.settings);
      ASSERT_FALSE(found.best.empty()) << "seed " << seed;
      const Choice& choice = found.best.front();
      EXPECT_DOUBLE_EQ(choice.seconds, step_seconds(problem.model, problem.transfers, choice, problem.settings.memory))
          << "seed " << seed;
      EXPECT_LE(found.least, best * (1 + 1e-12)) << "seed " << seed << ", stopped after " << most;
      EXPECT_GE(choice.seconds, best * (1 - 1e-12));
      EXPECT_GE(found.least * (1 + found.gap()), best * (1 - 1e-12));
      if (found.proven) {
        EXPECT_DOUBLE_EQ(choice.seconds, best) << "seed " << seed;
      }
      if (asked <= most) {
        EXPECT_TRUE(found.proven);
      }
      const Counts& c = found.counts;
      EXPECT_EQ(c.rough + c.memory + c.bound + c.dominated + c.timed + c.unexamined, c.candidates);
      if (found.proven) {
        EXPECT_EQ(c.unexamined, 0);
      }
      if (c.unexamined > 0) ++unexamined;
      if (!found.proven) ++stopped;
      if (choice.seconds > best * (1 + 1e-9)) ++better_later;
    }
  }
  EXPECT_GE(stopped, static_cast<int>(kBounded) / 2);
  EXPECT_GE(unexamined, static_cast<int>(kBounded) / 2);
  if (kBounded > 10) {
    EXPECT_GT(better_later, 0);
  }
}

TEST(Search, micro_batches_of_short_documents_may_have_65536_tokens) {
  const SmallProblem problem(1);
  const auto of = [&](size_t documents, i64 length) {
    const CostModel model(problem.units, problem.transfers, workload_of({std::vector<i64>(documents, length)}, length));
    return capacities(model, {0, static_cast<int>(model.bounds().size())});
  };
  EXPECT_EQ(of(100, 2048), (std::vector<i64>{2048, 4096, 8192, 16384, 32768, 65536}));
  EXPECT_EQ(of(3, 2048), (std::vector<i64>{2048, 4096, 8192})) << "there are no more documents";
  EXPECT_EQ(of(1, 2048), (std::vector<i64>{2048, 4096}));
  EXPECT_EQ(of(100, 65536), (std::vector<i64>{65536, 131072})) << "no more than two of the longest";
}

TEST(Search, a_plan_of_the_usual_part_stands_where_there_is_no_time_for_more) {
  int better = 0;
  for (unsigned seed = 1; seed <= kBounded; ++seed) {
    SmallProblem problem(seed);
    std::vector<Shape> usual;
    std::ranges::copy_if(problem.shapes, std::back_inserter(usual), is_usual);
    int asked = 0;
    problem.settings.spent = [&] { return ++asked, 0.0; };
    problem.settings.singles = 1;
    const Found part = search(problem.model, usual, problem.settings);
    problem.settings.singles = 0;
    if (part.best.empty()) continue;
    const int for_part = std::exchange(asked, 0);
    problem.settings.spent = [&] { return ++asked > for_part ? 1.0 : 0.0; };
    problem.settings.many = 0;
    const Found stopped = search(problem.model, problem.shapes, problem.settings);
    ASSERT_FALSE(stopped.best.empty());
    EXPECT_LE(stopped.best.front().seconds, part.singles.front().seconds) << "seed " << seed;
    EXPECT_LE(stopped.best.front().seconds, 1.02 * part.best.front().seconds) << "nearly the best, seed " << seed;
    problem.settings.many = problem.shapes.size();
    const Found without = search(problem.model, problem.shapes, problem.settings);
    better += stopped.best.front().seconds < without.best.front().seconds;
  }
  EXPECT_GT(better, 0);
}

TEST(Search, runners_up_are_limited_by_work_and_not_by_time) {
  int fewer = 0, more = 0;
  for (unsigned seed = 1; seed <= cases(20u, 1u); ++seed) {
    SmallProblem problem(seed);
    problem.settings.top = 8;
    const Found all = search(problem.model, problem.shapes, problem.settings);
    if (all.best.empty()) continue;
    size_t known = 0;
    for (const i64 steps : {0, 100, 1000, 100000000}) {
      problem.settings.runners_up = steps;
      int asked = 0;
      problem.settings.spent = [&] { return ++asked, 0.0; };
      const Found found = search(problem.model, problem.shapes, problem.settings);
      EXPECT_TRUE(found.proven);
      EXPECT_EQ(found.best.front().phases, all.best.front().phases) << "seed " << seed;
      EXPECT_GE(found.best.size(), known) << "seed " << seed;
      for (const Choice& choice : found.best)
        EXPECT_DOUBLE_EQ(choice.seconds,
                         step_seconds(problem.model, problem.transfers, choice, problem.settings.memory))
            << "seed " << seed;
      known = found.best.size();
      // A machine so slow that the limit of time is reached as soon as the best plan is known.
      const int most = asked;
      asked = 0;
      problem.settings.spent = [&] { return ++asked > most ? 1.0 : 0.0; };
      SmallProblem again(seed);
      again.settings = problem.settings;
      const Found slow = search(again.model, again.shapes, again.settings);
      EXPECT_EQ(slow.counts.steps, found.counts.steps) << "seed " << seed;
      ASSERT_EQ(slow.best.size(), found.best.size()) << "seed " << seed;
      for (size_t i = 0; i < found.best.size(); ++i) EXPECT_EQ(slow.best[i].phases, found.best[i].phases);
      fewer += found.best.size() < all.best.size();
    }
    ASSERT_EQ(known, all.best.size()) << "seed " << seed;
    more += all.best.size() > 1;
  }
  if (kBounded < 10) return;
  EXPECT_GT(fewer, 0);
  EXPECT_GT(more, 0);
}

}  // namespace
}  // namespace switchyard::planner
