#include "schedule/zero_bubble.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/errors.hpp"
#include "schedule/list_scheduler.hpp"

namespace switchyard::schedule {
namespace {

// Each rule is the best for some costs, mostly one of the first.
const std::vector<Rule>& rules_of(int chunks) {
  static const std::vector<Rule> kOne{{"FB", "BF"}, {"FB", "BF", 0.25}, {"FB", "BF", 0.5}, {"FB", "BF", 1}};
  static const std::vector<Rule> kTwo{{"BFfb", "BfFb"},       {"BFfb", "fbBF", 0.5}, {"BbFf", "BfFb", 0.25},
                                      {"BFfb", "BfFb", 0.75}, {"BFfb", "fFbB", 1},   {"bBfF", "fFbB"}};
  return chunks == 1 ? kOne : kTwo;
}

// 1F1B with each BW replaced by B and W, because a B sends its gradient sooner.
Schedule split_one_f_one_b(const Pipeline& pipeline) {
  Schedule made{.order = Order(static_cast<size_t>(pipeline.stages)), .mbs = pipeline.mbs};
  const Order usual = one_f_one_b(pipeline.stages, pipeline.mbs).order;
  for (size_t stage = 0; stage < usual.size(); ++stage)
    for (const Item& item : usual[stage]) {
      if (item.pass == Pass::F)
        made.order[stage].push_back(item);
      else
        made.order[stage].insert(made.order[stage].end(), {{Pass::B, 0, item.mb}, {Pass::W, 0, item.mb}});
    }
  return made;
}

// Costs are estimates: a gain below this share may be a loss in the real step.
constexpr double kGain = 0.005, kRounding = 5e-13;

// Finds the best of all candidates with the memory of 1F1B or less. More memory is used only where it gains, so that it
// never makes the step longer.
class Search {
 public:
  explicit Search(const Pipeline& pipeline) : pipeline_(pipeline) {}

  Schedule run(int cap) {
    cap = std::clamp(cap, pipeline_.chunks, std::max(1, pipeline_.mbs) * pipeline_.chunks);  // no stage ever holds more
    const int usual = std::min(cap, pipeline_.positions());
    for (int c = usual; c >= pipeline_.chunks && !(best_ && best_->length <= least_length(pipeline_, c)); --c) {
      Scheduled made = best_of_cap(c);
      if (!best_ || gains(made.length, best_->length, kRounding)) best_ = std::move(made);
    }
    for (int c = usual + 1; c <= cap && gains(least_length(pipeline_, cap), best_->length, kGain); ++c) {
      if (!gains(least_length(pipeline_, c), best_->length, kGain)) continue;
      Scheduled made = best_of_cap(c);
      if (gains(made.length, best_->length, kGain)) best_ = std::move(made);
    }
    return std::move(best_->schedule);
  }

 private:
  static bool gains(const Length& now, const Length& before, double share) {
    if (now.makespan <= before.makespan * (1 - share)) return true;
    return now.makespan <= before.makespan * (1 + kRounding) && now.longest_stage <= before.longest_stage * (1 - share);
  }

  Scheduled best_of_cap(int cap) {
    const Length least = least_length(pipeline_, cap);
    std::optional<Scheduled> best;
    for (Rule rule : rules_of(pipeline_.chunks)) {
      rule.cap = cap;
      std::optional<Scheduled> made =
          made_by(rule, best ? best->length.makespan : Seconds{std::numeric_limits<double>::infinity()});
      if (made && (!best || gains(made->length, best->length, kRounding))) best = std::move(made);
      if (best->length <= least) break;
    }
    if (pipeline_.chunks == 1 && cap == std::min(pipeline_.stages, std::max(1, pipeline_.mbs)))
      if (Scheduled usual = timed(split_one_f_one_b(pipeline_)); gains(usual.length, best->length, kRounding))
        best = std::move(usual);
    return std::move(*best);
  }

  // A stage that holds items back may start some later than it could, so only a replay gives the schedule's length, and
  // no candidate is given up before its replay.
  std::optional<Scheduled> made_by(const Rule& rule, Seconds most) const {
    const std::vector<Rule> rules(static_cast<size_t>(pipeline_.stages), rule);
    if (rule.hold == 0) return list_schedule(pipeline_, rules, most);
    return timed(list_schedule(pipeline_, rules, Seconds{std::numeric_limits<double>::infinity()})->schedule);
  }

  Scheduled timed(Schedule made) const {
    const Length length = length_of(pipeline_, made);
    return {std::move(made), length};
  }

  const Pipeline& pipeline_;
  std::optional<Scheduled> best_;
};

Schedule best_of(const Pipeline& pipeline, int cap) {
  check(pipeline.stages >= 1 && pipeline.mbs >= 0 && cap >= pipeline.chunks,
        "zero_bubble: {} stages, {} micro-batches, {} chunks and a cap of {} activations", pipeline.stages,
        pipeline.mbs, pipeline.chunks, cap);
  check_costs(pipeline.costs, pipeline.positions());
  return Search(pipeline).run(cap);
}

}  // namespace

Schedule zero_bubble(int stages, int mbs, int cap, const Costs& costs) {
  return best_of({.stages = stages, .mbs = mbs, .chunks = 1, .placement = Placement::loop, .costs = costs}, cap);
}

Schedule zero_bubble_v(int stages, int mbs, int cap, const Costs& costs) {
  return best_of({.stages = stages, .mbs = mbs, .chunks = 2, .placement = Placement::v, .costs = costs}, cap);
}

}  // namespace switchyard::schedule
