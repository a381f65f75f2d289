#include "schedule/join_gradients.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::schedule {
namespace {

constexpr double kNotYet = std::numeric_limits<double>::infinity();
constexpr double kRounding = 5e-13;

struct Place {
  int stage = 0, index = 0;
};

size_t at(int i) { return static_cast<size_t>(i); }

// The times of a schedule's items on one device.
class Clock {
 public:
  Clock(const Schedule& schedule, const Costs& costs) : schedule_(schedule), costs_(costs) {
    for (const std::vector<Item>& items : schedule.order) latest_.emplace_back(items.size());
    start_anew();
  }

  void start_anew() {
    const std::vector<double> none(at(schedule_.mbs), kNotYet);
    input_.assign(at(schedule_.positions()), none);
    gradient_ = input_;
    std::ranges::fill(input_.front(), 0);
    free_.assign(schedule_.order.size(), 0);
  }

  bool has_come(const Item& item, int here) const { return item.pass == Pass::W || come(item, here) != kNotYet; }
  double end(int stage, const Item& item, int here) const {
    const double start = item.pass == Pass::W ? free_[at(stage)] : std::max(free_[at(stage)], come(item, here));
    return start + costs_.of(item.pass, here).count;
  }
  double send(int stage, int to) const { return stage_at(to) == stage ? 0 : costs_.send.count; }
  const ItemTimes& times(int here) const { return costs_.of(here); }

  void run(int stage, const Item& item, int here) {
    const double ended = free_[at(stage)] = end(stage, item, here);
    if (item.pass == Pass::W) return;
    const bool forward = item.pass == Pass::F;
    const int to = forward ? here + 1 : here - 1;
    if (to == schedule_.positions())
      gradient_[at(here)][at(item.mb)] = ended;
    else if (to >= 0)
      (forward ? input_ : gradient_)[at(to)][at(item.mb)] = ended + send(stage, to);
  }
  double makespan() const { return *std::ranges::max_element(free_); }

  // Latest starts, with which all that comes later is done by `most`. `order` has each item behind those that it waits
  // for; receiver: of what an item sends, if any.
  template <class Receiver>
  void find_latest(const std::vector<Place>& order, double most, const Receiver& receiver) {
    for (auto place = order.rbegin(); place != order.rend(); ++place) {
      const std::vector<Item>& items = schedule_.order[at(place->stage)];
      const Item& item = items[at(place->index)];
      const int here = position_of(schedule_.placement, schedule_.stages(), place->stage, item.chunk);
      double end =
          place->index + 1 < static_cast<int>(items.size()) ? latest_[at(place->stage)][at(place->index + 1)] : most;
      if (item.pass != Pass::W)
        if (const auto [to, sent] = receiver(item, here); sent)
          end = std::min(end, latest_start(to) - (to.stage == place->stage ? 0 : costs_.send.count));
      latest_[at(place->stage)][at(place->index)] = end - costs_.of(item.pass, here).count;
    }
  }
  double latest_start(Place place) const { return latest_[at(place.stage)][at(place.index)]; }

 private:
  double come(const Item& item, int here) const {
    return (item.pass == Pass::F ? input_ : gradient_)[at(here)][at(item.mb)];
  }
  int stage_at(int position) const { return stage_of(schedule_.placement, schedule_.stages(), position); }

  const Schedule& schedule_;
  const Costs& costs_;
  std::vector<std::vector<double>> latest_;            // [stage][item]
  std::vector<std::vector<double>> input_, gradient_;  // when they have come; [position][mb]
  std::vector<double> free_;                           // by stage
};

class Joining {
 public:
  Joining(const Schedule& schedule, const std::vector<Costs>& devices) : schedule_(schedule) {
    forwards_.assign(at(schedule.positions()), std::vector<Place>(at(schedule.mbs)));
    gradients_ = forwards_;
    for (int stage = 0; stage < schedule.stages(); ++stage)
      for (int i = 0; i < static_cast<int>(schedule.order[at(stage)].size()); ++i)
        if (const Item& item = item_at({stage, i}); item.pass != Pass::W)
          (item.pass == Pass::F ? forwards_ : gradients_)[at(position(stage, item))][at(item.mb)] = {stage, i};
    for (const Costs& costs : devices) clocks_.emplace_back(schedule, costs);
    std::vector<Place> order;
    each_in_order([&](Place place) {
      const Item& item = item_at(place);
      if (!clocks_.front().has_come(item, position(place.stage, item))) return false;
      for (Clock& clock : clocks_) clock.run(place.stage, item, position(place.stage, item));
      order.push_back(place);
      return true;
    });
    size_t items = 0;
    for (const std::vector<Item>& of_stage : schedule.order) items += of_stage.size();
    check(order.size() == items, "join_gradients: the order deadlocks after {} of {} items", order.size(), items);
    for (Clock& clock : clocks_) {
      makespans_.push_back(clock.makespan());
      clock.find_latest(order, makespans_.back() * (1 + kRounding), [&](const Item& item, int here) {
        const int to = item.pass == Pass::F ? here + 1 : here - 1;
        if (to == schedule_.positions()) return std::pair(gradients_[at(here)][at(item.mb)], true);
        return to < 0 ? std::pair(Place{}, false)
                      : std::pair((item.pass == Pass::F ? forwards_ : gradients_)[at(to)][at(item.mb)], true);
      });
    }
  }

  Schedule run(double slack) {
    made_ = {.order = Order(schedule_.order.size()),
             .mbs = schedule_.mbs,
             .chunks = schedule_.chunks,
             .placement = schedule_.placement};
    slack_ = slack;
    weights_.assign(gradients_.size(), {});
    joined_.assign(gradients_.size(), 0);
    for (Clock& clock : clocks_) clock.start_anew();
    each_in_order([&](Place place) { return perform(place); });
    return std::move(made_);
  }

 private:
  const Item& item_at(Place place) const { return schedule_.order[at(place.stage)][at(place.index)]; }
  int position(int stage, const Item& item) const {
    return position_of(schedule_.placement, schedule_.stages(), stage, item.chunk);
  }

  // Calls perform with the next item of each stage until none can run. perform: whether it has run.
  template <class Perform>
  void each_in_order(const Perform& perform) const {
    std::vector<int> next(schedule_.order.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < schedule_.stages(); ++stage)
        for (int& i = next[at(stage)];
             i < static_cast<int>(schedule_.order[at(stage)].size()) && perform(Place{stage, i}); ++i)
          moved = true;
    }
  }

  bool perform(Place place) {
    Item item = item_at(place);
    const int here = position(place.stage, item);
    if (!clocks_.front().has_come(item, here)) return false;
    if (item.pass == Pass::W) {
      if (joined_[at(here)] > 0) {
        --joined_[at(here)];
        return true;
      }
      item.mb = weights_[at(here)].front();
      weights_[at(here)].pop_front();
    } else if (item.pass == Pass::B && saves(here) && fits(place, here)) {
      item.pass = Pass::BW;
      ++joined_[at(here)];
    } else if (item.pass == Pass::B) {
      weights_[at(here)].push_back(item.mb);
    }
    for (Clock& clock : clocks_) clock.run(place.stage, item, here);
    made_.order[at(place.stage)].push_back(item);
    return true;
  }

  bool saves(int here) const {
    return std::ranges::any_of(clocks_, [&](const Clock& clock) { return clock.times(here).saved.count > 0; });
  }

  // Whether what follows a B on its stage, and what waits for it, can start in time on all devices if it has its W.
  bool fits(Place place, int here) const {
    const Item &item = item_at(place), &follows = item_at({place.stage, place.index + 1});
    const bool left_out = follows.pass == Pass::W && follows.chunk == item.chunk;
    for (size_t i = 0; i < clocks_.size(); ++i) {
      const Clock& clock = clocks_[i];
      const double end = clock.end(place.stage, {Pass::BW, item.chunk, item.mb}, here) - slack_ * makespans_[i];
      const double spare = left_out ? clock.times(here).weight_gradient.count : 0;
      if (end > clock.latest_start({place.stage, place.index + 1}) + spare) return false;
      if (here == 0) continue;
      const Place receiver = gradients_[at(here - 1)][at(item.mb)];
      if (end + clock.send(place.stage, here - 1) > clock.latest_start(receiver)) return false;
    }
    return true;
  }

  const Schedule& schedule_;
  std::vector<std::vector<Place>> forwards_, gradients_;  // F; B or BW; [position][mb]
  std::vector<Clock> clocks_;                             // by device
  std::vector<double> makespans_;                         // before anything is joined, by device
  double slack_ = 0;
  std::vector<std::deque<int>> weights_;  // micro-batches whose W is still to come, by position
  std::vector<int> joined_;               // W that were joined ahead of their place, by position
  Schedule made_;
};

}  // namespace

std::vector<Schedule> join_gradients(const Schedule& schedule, const std::vector<Costs>& devices,
                                     std::span<const double> slacks) {
  check(!devices.empty(), "join_gradients: costs of no device");
  for (const Costs& costs : devices) check_costs(costs, schedule.positions());
  std::vector<Schedule> made;
  Joining joining(schedule, devices);
  for (const double slack : slacks) made.push_back(joining.run(slack));
  return made;
}

}  // namespace switchyard::schedule
