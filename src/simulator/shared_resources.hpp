// Activities that run at the same time and share devices and ports.
#pragma once

#include <limits>
#include <queue>
#include <span>
#include <vector>

#include "base/dtype.hpp"

namespace switchyard::simulator {

/// What an activity takes of a resource while nothing slows it: 1 all of it, 0.2 a fifth.
struct Claim {
  int resource = 0;
  double share = 0;
};

/// Time passes from the end of one activity to the next. Where more than the whole of a resource is claimed, all that claim it get their
/// part in proportion; an activity is as slow as the fullest of its resources.
///   two activities alone on a device, with claims of 1 and k - 1, that start together: together max(a, b) + (k - 1) min(a, b)
class SharedResources {
 public:
  explicit SharedResources(int resources) : resources_(static_cast<size_t>(resources)) {}

  /// Starts what takes so many seconds by itself. The number comes back from next().
  int start(double seconds, std::span<const Claim> claims);
  /// Passes to the end of the activity that ends first, and gives its number; -1: none runs. Of those that end at once the one that was
  /// started first.
  int next();
  double now() const { return now_; }

 private:
  struct Activity {
    std::vector<Claim> claims;
    double left = 0, rate = 1, since = 0;  // seconds of its own; since: when `left` was so much
    i64 version = 0;
  };
  struct Resource {
    double load = 0;
    std::vector<int> users;
  };
  struct End {
    double at = 0;
    int activity = 0;
    i64 version = 0;
    bool operator>(const End& other) const { return at != other.at ? at > other.at : activity > other.activity; }
  };

  double rate_of(const Activity& activity) const;
  void settle(int activity);
  void changed(std::span<const Claim> claims, const std::vector<double>& before);
  std::vector<double> loads(std::span<const Claim> claims) const;

  double now_ = 0;
  std::vector<Resource> resources_;
  std::vector<Activity> activities_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

}  // namespace switchyard::simulator
