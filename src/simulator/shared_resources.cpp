#include "simulator/shared_resources.hpp"

#include <algorithm>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::simulator {

int SharedResources::start(std::span<const Stretch> stretches) {
  check(!stretches.empty(), "an activity without stretches");
  for (const Stretch& stretch : stretches) check(stretch.seconds >= 0, "an activity of {} seconds", stretch.seconds);
  const int number = fresh_number();
  Activity& fresh = activity(number);
  fresh.stretches.assign(stretches.begin(), stretches.end());
  fresh.ends.clear();
  fresh.modest = std::ranges::all_of(stretches, [](const Stretch& stretch) {
    return std::ranges::all_of(stretch.claims, [](const Claim& claim) { return claim.share <= 1; });
  });
  fresh.order = started_++;
  const std::span<const Claim> claims = fresh.present().claims;
  for (const Claim& claim : claims)
    if (const std::vector<int>& users = resource(claim).users; users.size() == 1 && activity(users[0]).alone)
      end_alone(users[0]);
  remember_loads(claims);
  for (const Claim& claim : claims) {
    resource(claim).load += claim.share;
    resource(claim).users.push_back(number);
  }
  go_on(number);
  return number;
}

int SharedResources::next() {
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    if (activity(event.activity).version != event.version) continue;
    now_ = event.at;
    if (next_stretch(event.activity)) continue;
    leave(event.activity);
    return event.activity;
  }
  return -1;
}

int SharedResources::fresh_number() {
  if (free_.empty()) {
    activities_.emplace_back();
    return static_cast<int>(activities_.size()) - 1;
  }
  const int number = free_.back();
  free_.pop_back();
  return number;
}

// Begins the present stretch; before_ has the loads from before it.
void SharedResources::go_on(int number) {
  Activity& it = activity(number);
  it.left = it.present().seconds;
  it.since = now_;
  it.alone = can_be_alone(it);
  it.rate = it.alone ? 1 : rate_of(it);
  settle(number);
  if (!it.alone) changed(it.present().claims);
}

bool SharedResources::can_be_alone(const Activity& it) const {
  return it.modest && std::ranges::all_of(it.present().claims,
                                          [&](const Claim& claim) { return resource(claim).users.size() == 1; });
}

// Another activity comes to a resource of one that was alone: brings its stretch and remaining time up to date.
void SharedResources::end_alone(int number) {
  Activity& it = activity(number);
  while (it.ends.size() + 1 < it.stretches.size() && it.since + it.left <= now_) {
    it.since += it.left;
    it.ends.push_back(it.since);
    it.left = it.present().seconds;
  }
  it.left = std::max(0.0, it.left - (now_ - it.since));
  it.since = now_;
  it.alone = false;
  for (const Claim& claim : it.present().claims) resource(claim).load = claim.share;
  settle(number);
}

// Ends the present stretch and begins the next one, if any; returns whether there is one. For an activity that was
// alone until now, all its stretches end.
bool SharedResources::next_stretch(int number) {
  Activity& it = activity(number);
  if (it.alone) {
    for (; it.ends.size() + 1 < it.stretches.size(); it.left = it.present().seconds)
      it.ends.push_back(it.since += it.left);
    it.ends.push_back(now_);
    return false;
  }
  const std::span<const Claim> before = it.present().claims;
  it.ends.push_back(now_);
  if (it.ends.size() == it.stretches.size()) return false;
  remember_loads(before);
  for (size_t i = 0; i < before.size(); ++i) resource(before[i]).load += it.present().claims[i].share - before[i].share;
  go_on(number);
  return true;
}

void SharedResources::leave(int number) {
  Activity& it = activity(number);
  const std::span<const Claim> claims = it.stretches.back().claims;
  remember_loads(claims);
  for (const Claim& claim : claims) {
    Resource& of = resource(claim);
    std::erase(of.users, number);
    of.load = of.users.empty() ? 0 : of.load - claim.share;
  }
  it.version = -1;
  if (!it.alone) changed(claims);
  free_.push_back(number);
}

double SharedResources::rate_of(const Activity& it) {
  double most = 1;
  for (const Claim& claim : it.present().claims) most = std::max(most, resource(claim).load);
  return 1 / most;
}

// Enters the event at which its stretch ends at the present rate; if it is alone, the event at which all its stretches
// end.
void SharedResources::settle(int number) {
  Activity& it = activity(number);
  it.version = ++versions_;
  double end = now_ + it.left / it.rate;
  if (it.alone)
    for (size_t i = it.ends.size() + 1; i < it.stretches.size(); ++i) end += it.stretches[i].seconds;
  events_.push({.at = end, .order = it.order, .activity = number, .version = it.version});
}

void SharedResources::remember_loads(std::span<const Claim> claims) {
  before_.clear();
  for (const Claim& claim : claims) before_.push_back(resource(claim).load);
}

// Updates the rates of other activities on these resources; loads up to 1 slow nothing.
void SharedResources::changed(std::span<const Claim> claims) {
  constexpr double kFull = 1 + 1e-12;
  ++changes_;
  for (size_t i = 0; i < claims.size(); ++i) {
    const Resource& of = resource(claims[i]);
    if (before_[i] <= kFull && of.load <= kFull) continue;
    for (const int user : of.users) {
      Activity& it = activity(user);
      if (std::exchange(it.rated, changes_) == changes_) continue;  // already updated for another of these resources
      const double rate = rate_of(it);
      if (rate == it.rate) continue;
      it.left = std::max(0.0, it.left - (now_ - it.since) * it.rate);
      it.since = now_;
      it.rate = rate;
      settle(user);
    }
  }
}

}  // namespace switchyard::simulator
