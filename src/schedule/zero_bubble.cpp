#include "schedule/zero_bubble.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/errors.hpp"
#include "schedule/join_gradients.hpp"
#include "schedule/list_scheduler.hpp"

namespace switchyard::schedule {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr size_t kNone = std::numeric_limits<size_t>::max();

// Each rule is the best for some costs, mostly one of the first.
const std::vector<Rule>& rules_of(int chunks) {
  static const std::vector<Rule> kOne{{"FB", "BF"}, {"FB", "BF", 0.25}, {"FB", "BF", 0.5}, {"FB", "BF", 1}};
  static const std::vector<Rule> kTwo{{"BFfb", "BfFb"},       {"BFfb", "fbBF", 0.5}, {"BbFf", "BfFb", 0.25},
                                      {"BFfb", "BfFb", 0.75}, {"BFfb", "fFbB", 1},   {"bBfF", "fFbB"}};
  return chunks == 1 ? kOne : kTwo;
}

// Those for orders with all gradients joined: a W, which takes no time of its own, follows its B.
const std::vector<Rule>& rules_of_joined() {
  static const std::vector<Rule> kJoined{
      {"FfbB", "fFbB", 0, 0}, {"FfBb", "bBfF", 0, 0}, {"FfBb", "fBFb", 0, 0}, {"fFbB", "bfFB", 1, 0}};
  return kJoined;
}

// With B and W in place of each BW, because a B sends its gradient sooner.
Schedule with_gradients_apart(Schedule schedule) {
  for (std::vector<Item>& items : schedule.order) {
    std::vector<Item> apart;
    for (const Item& item : items)
      if (item.pass == Pass::BW)
        apart.insert(apart.end(), {{Pass::B, item.chunk, item.mb}, {Pass::W, item.chunk, item.mb}});
      else
        apart.push_back(item);
    items = std::move(apart);
  }
  return schedule;
}

// With BW in place of each B, and without W.
Schedule with_gradients_joined(Schedule schedule) {
  for (std::vector<Item>& items : schedule.order) {
    std::erase_if(items, [](const Item& item) { return item.pass == Pass::W; });
    for (Item& item : items)
      if (item.pass == Pass::B) item.pass = Pass::BW;
  }
  return schedule;
}

// Costs are estimates: a gain below this share may be a loss in the real step.
constexpr double kGain = 0.005, kRounding = 5e-13;
// How much longer than without joining a makespan may become, as shares of it.
constexpr std::array kSlacks{0.0, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16};

// Means over the devices of a schedule's length, as a share of the device's least length.
struct Mean {
  double makespan = 0, longest_stage = 0;
};

struct Candidate {
  Schedule schedule;
  std::vector<Length> lengths;  // on each device
  Mean mean;
};

// Finds the best of all candidates with the memory of 1F1B or less. More memory is used only where it gains, so that it
// never makes the step longer.
class Search {
 public:
  Search(Pipeline pipeline, const std::vector<Costs>& devices) {
    for (const Costs& costs : devices) {
      pipeline.costs = costs;
      devices_.push_back(pipeline);
      units_.push_back(least_length(pipeline, pipeline.positions()));
    }
  }

  Schedule run(int cap) {
    const Pipeline& pipeline = devices_.front();
    const int most = std::max(1, pipeline.mbs);
    cap = std::clamp(cap, pipeline.chunks, most * pipeline.chunks);  // no stage ever holds more
    const int usual = std::min(cap, pipeline.positions());
    has_usual_ = pipeline.chunks == 1 && cap >= std::min(pipeline.stages, most);
    if (has_usual_) {
      take(with_gradients_apart(one_f_one_b(pipeline.stages, pipeline.mbs)), least_lengths(cap), kRounding);
      allowed_ = best_->lengths;
    }
    // A smaller cap may gain, as it keeps stages from running ahead.
    int c = usual;
    while (c >= pipeline.chunks && can_improve(c, kRounding) && try_cap(c, kRounding)) --c;
    join(usual, kRounding);
    for (c = usual + 1; c <= cap && can_improve(cap, kGain); ++c) {
      allowed_ = best_->lengths;
      if (can_improve(c, kGain) && try_cap(c, kGain)) join(c, kGain);
    }
    return std::move((joined_ ? joined_ : best_)->schedule);
  }

 private:
  std::vector<Length> least_lengths(int cap) const {
    std::vector<Length> least;
    for (const Pipeline& device : devices_) least.push_back(least_length(device, cap));
    return least;
  }

  Mean mean_of(const std::vector<Length>& lengths) const {
    const auto share = [&](Seconds time, Seconds unit) {
      return unit.count > 0 ? time / unit / static_cast<double>(lengths.size()) : 0;
    };
    Mean mean;
    for (size_t i = 0; i < lengths.size(); ++i) {
      mean.makespan += share(lengths[i].makespan, units_[i].makespan);
      mean.longest_stage += share(lengths[i].longest_stage, units_[i].longest_stage);
    }
    return mean;
  }

  std::vector<Length> lengths_of(const Schedule& schedule) const {
    std::vector<Length> lengths;
    for (const Pipeline& device : devices_) lengths.push_back(length_of(device, schedule));
    return lengths;
  }

  // The best of the rules' schedules for any of the devices that have all gradients joined, unless none can be nearly
  // as good as the best so far: with some gradients apart again it may be better.
  std::optional<Schedule> all_joined(int cap) const {
    std::vector<Pipeline> devices = devices_;
    std::vector<Length> least;
    for (Pipeline& device : devices) {
      for (int p = 0; p < static_cast<int>(device.costs.at.size()); ++p)
        device.costs.at[static_cast<size_t>(p)] = {.forward = device.costs.of(Pass::F, p),
                                                   .input_gradient = device.costs.of(Pass::BW, p),
                                                   .weight_gradient = Seconds{0}};
      least.push_back(least_length(device, cap));
    }
    const double bound = mean_of(least).makespan;
    std::optional<Schedule> best;
    double shortest = (1 + kSlacks.back()) * joined_->mean.makespan;
    for (size_t i = 0; i < devices.size(); ++i)
      for (Rule rule : rules_of_joined()) {
        const double spare = shortest - bound;
        if (spare <= kRounding) return best;
        rule.cap = cap;
        const std::vector<Rule> rules(static_cast<size_t>(devices[i].stages), rule);
        const Seconds most = least[i].makespan + spare * static_cast<double>(devices.size()) * units_[i].makespan;
        std::optional<Scheduled> whole = list_schedule(devices[i], rules, rule.hold == 0 ? most : Seconds{kNever});
        if (!whole) continue;
        Schedule made = with_gradients_joined(std::move(whole->schedule));
        const double makespan = mean_of(lengths_of(made)).makespan;
        if (makespan >= shortest) continue;
        shortest = makespan;
        best = std::move(made);
      }
    return best;
  }

  // Joins gradients of the best schedule that has them apart, where that saves time, and keeps the best result. On no
  // device is it longer than what was joined with less memory. Zero-bubble is not longer than 1F1B, and ZB-V not longer
  // than the same order with nothing joined.
  void join(int cap, double gain) {
    const auto saves = [](const ItemTimes& times) { return times.saved.count > 0; };
    if (std::ranges::none_of(devices_,
                             [&](const Pipeline& device) { return std::ranges::any_of(device.costs.at, saves); }))
      return;
    const auto consider = [&](Schedule made) {
      std::vector<Length> lengths = lengths_of(made);
      for (size_t i = 0; i < joined_allowed_.size(); ++i)
        if (lengths[i].makespan > joined_allowed_[i].makespan * (1 + kRounding)) return;
      const Mean mean = mean_of(lengths);
      if (!improves(joined_, mean, gain)) return;
      joined_ = {std::move(made), std::move(lengths), mean};
      gain = kRounding;
    };
    std::optional<Schedule> whole;
    if (has_usual_) whole = one_f_one_b(devices_.front().stages, devices_.front().mbs);
    if (!joined_) consider(whole ? *whole : best_->schedule);
    joined_allowed_ = joined_->lengths;
    consider(best_->schedule);
    std::vector<Costs> costs;
    for (const Pipeline& device : devices_) costs.push_back(device.costs);
    std::vector<Schedule> looked{best_->schedule};  // a larger share often changes nothing
    const auto consider_joined = [&](const Schedule& apart) {
      for (Schedule& made : join_gradients(apart, costs, kSlacks)) {
        if (std::ranges::find(looked, made) != looked.end()) continue;
        consider(made);
        looked.push_back(std::move(made));
      }
    };
    consider_joined(best_->schedule);
    if (!whole) whole = all_joined(cap);
    if (!whole) return;
    consider(*whole);
    if (const Schedule apart = with_gradients_apart(*whole); apart != best_->schedule) consider_joined(apart);
  }

  bool can_improve(int cap, double gain) const { return improves(best_, mean_of(least_lengths(cap)), gain); }

  // Whether one of the rules' schedules with this cap is the best now. gain: by which the first must be better than the
  // best so far.
  bool try_cap(int cap, double gain) {
    bool gained = false;
    const std::vector<Length> least = least_lengths(cap);
    for (size_t i = 0; i < devices_.size(); ++i)
      for (Rule rule : rules_of(devices_[i].chunks)) {
        rule.cap = cap;
        const std::vector<Rule> rules(static_cast<size_t>(devices_[i].stages), rule);
        // A stage that holds items back may start some later than it could, so only a replay gives the schedule's
        // length, and no candidate is given up before its replay.
        std::optional<Scheduled> made =
            list_schedule(devices_[i], rules, rule.hold == 0 ? longest(i, least) : Seconds{kNever});
        if (!made) continue;
        std::vector<Length> lengths = least;
        if (rule.hold == 0) lengths[i] = made->length;
        if (take(std::move(made->schedule), std::move(lengths), gain, rule.hold == 0 ? i : kNone)) {
          gained = true;
          gain = kRounding;
        }
        if (!improves(best_, mean_of(least), kRounding)) return gained;
      }
    return gained;
  }

  // Whether the schedule became the best. lengths: its least ones, and its own on device `known`.
  bool take(Schedule made, std::vector<Length> lengths, double gain, size_t known = kNone) {
    for (size_t i = 0; i < devices_.size(); ++i) {
      const Seconds most = longest(i, lengths);
      if (i != known) lengths[i] = length_of(devices_[i], made);
      if (lengths[i].makespan > most) return false;
    }
    const Mean mean = mean_of(lengths);
    if (!improves(best_, mean, gain)) return false;
    best_ = {std::move(made), std::move(lengths), mean};
    return true;
  }

  // The longest makespan on device i with which a schedule can be better than the best so far. lengths: on the other
  // devices, or lower bounds of them.
  Seconds longest(size_t i, const std::vector<Length>& lengths) const {
    if (!best_) return Seconds{kNever};
    const double spare = best_->mean.makespan - mean_of(lengths).makespan + kRounding;
    const Seconds gain = lengths[i].makespan + spare * static_cast<double>(devices_.size()) * units_[i].makespan;
    return allowed_.empty() ? gain : std::min(gain, allowed_[i].makespan * (1 + kRounding));
  }

  static bool improves(const std::optional<Candidate>& best, const Mean& now, double gain) {
    if (!best || now.makespan <= best->mean.makespan * (1 - gain)) return true;
    return now.makespan <= best->mean.makespan * (1 + kRounding) &&
           now.longest_stage <= best->mean.longest_stage * (1 - gain);
  }

  bool has_usual_ = false;         // whether 1F1B holds no more than the cap
  std::vector<Pipeline> devices_;  // the same pipeline with each device's costs
  std::vector<Length> units_;      // least lengths with the memory of 1F1B
  std::vector<Length> allowed_;    // no candidate may be longer on any device
  std::optional<Candidate> best_;
  // The same with gradients joined again where that saves time.
  std::optional<Candidate> joined_;
  std::vector<Length> joined_allowed_;
};

Schedule best_of(const Pipeline& pipeline, int cap, const std::vector<Costs>& devices) {
  check(pipeline.stages >= 1 && pipeline.mbs >= 0 && cap >= pipeline.chunks && !devices.empty(),
        "zero_bubble: {} stages, {} micro-batches, {} chunks, a cap of {} activations and costs of {} devices",
        pipeline.stages, pipeline.mbs, pipeline.chunks, cap, devices.size());
  for (const Costs& costs : devices) check_costs(costs, pipeline.positions());
  return Search(pipeline, devices).run(cap);
}

}  // namespace

Schedule zero_bubble(int stages, int mbs, int cap, const std::vector<Costs>& devices) {
  return best_of({.stages = stages, .mbs = mbs, .chunks = 1, .placement = Placement::loop, .costs = {}}, cap, devices);
}

Schedule zero_bubble_v(int stages, int mbs, int cap, const std::vector<Costs>& devices) {
  return best_of({.stages = stages, .mbs = mbs, .chunks = 2, .placement = Placement::v, .costs = {}}, cap, devices);
}

}  // namespace switchyard::schedule
