#include "simulator/shared_resources.hpp"

#include <algorithm>

#include "base/errors.hpp"

namespace switchyard::simulator {

int SharedResources::start(double seconds, std::span<const Claim> claims) {
  check(seconds >= 0, "an activity of {} seconds", seconds);
  const int number = static_cast<int>(activities_.size());
  activities_.push_back({{claims.begin(), claims.end()}, seconds, 1, now_, 0});
  const std::vector<double> before = loads(claims);
  for (const Claim& claim : claims) {
    Resource& resource = resources_[static_cast<size_t>(claim.resource)];
    resource.load += claim.share;
    resource.users.push_back(number);
  }
  activities_.back().rate = rate_of(activities_.back());
  settle(number);
  changed(claims, before);
  return number;
}

int SharedResources::next() {
  while (!ends_.empty()) {
    const End end = ends_.top();
    ends_.pop();
    Activity& ended = activities_[static_cast<size_t>(end.activity)];
    if (ended.version != end.version) continue;
    now_ = end.at;
    ++ended.version;
    const std::vector<double> before = loads(ended.claims);
    for (const Claim& claim : ended.claims) {
      Resource& resource = resources_[static_cast<size_t>(claim.resource)];
      std::erase(resource.users, end.activity);
      resource.load = resource.users.empty() ? 0 : resource.load - claim.share;
    }
    const std::vector<Claim> claims = std::move(ended.claims);
    ended.claims.clear();
    changed(claims, before);
    return end.activity;
  }
  return -1;
}

double SharedResources::rate_of(const Activity& activity) const {
  double fullest = 1;
  for (const Claim& claim : activity.claims) fullest = std::max(fullest, resources_[static_cast<size_t>(claim.resource)].load);
  return 1 / fullest;
}

// When it ends, if its rate stays.
void SharedResources::settle(int number) {
  Activity& activity = activities_[static_cast<size_t>(number)];
  ends_.push({now_ + activity.left / activity.rate, number, ++activity.version});
}

std::vector<double> SharedResources::loads(std::span<const Claim> claims) const {
  std::vector<double> before;
  for (const Claim& claim : claims) before.push_back(resources_[static_cast<size_t>(claim.resource)].load);
  return before;
}

// Others on these resources go on at their new rates; loads up to 1 slow nothing.
void SharedResources::changed(std::span<const Claim> claims, const std::vector<double>& before) {
  constexpr double kFull = 1 + 1e-12;
  for (size_t i = 0; i < claims.size(); ++i) {
    const Resource& resource = resources_[static_cast<size_t>(claims[i].resource)];
    if (before[i] <= kFull && resource.load <= kFull) continue;
    for (const int user : resource.users) {
      Activity& activity = activities_[static_cast<size_t>(user)];
      const double rate = rate_of(activity);
      if (rate == activity.rate) continue;
      activity.left = std::max(0.0, activity.left - (now_ - activity.since) * activity.rate);
      activity.since = now_;
      activity.rate = rate;
      settle(user);
    }
  }
}

}  // namespace switchyard::simulator
