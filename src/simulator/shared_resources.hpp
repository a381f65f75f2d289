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

/// A part of an activity that takes so many seconds by itself. The claims are read until the activity has ended. tag:
/// the caller's.
struct Stretch {
  double seconds = 0;
  std::span<const Claim> claims;
  int tag = 0;
};

/// Time passes from the end of one activity to the next. Where more than the whole of a resource is claimed, all that
/// claim it get their part in proportion; an activity is as slow as the fullest of its resources.
///   two activities alone on a device, with claims of 1 and k - 1, that start together: together max(a, b) + (k - 1)
///   min(a, b)
/// An activity that is alone on its resources isn't looked at before another one comes or it ends, however many
/// stretches it has.
class SharedResources {
 public:
  explicit SharedResources(int resources) : resources_(static_cast<size_t>(resources)) {}

  /// Starts what takes these stretches one after the other, one at least, all on the same resources. The number comes
  /// back from next(), and is then free for another activity; numbers are below the most that run at a time.
  int start(std::span<const Stretch> stretches);
  /// Passes to the end of the activity that ends first, and gives its number; -1: none runs. Of those that end at once
  /// the one that was started first.
  int next();
  double now() const { return now_; }

  /// The stretches of an activity that has just ended, and when each of them did.
  std::span<const Stretch> stretches(int number) const { return activities_[static_cast<size_t>(number)].stretches; }
  std::span<const double> ends(int number) const { return activities_[static_cast<size_t>(number)].ends; }

 private:
  struct Activity {
    std::vector<Stretch> stretches;
    std::vector<double> ends;              // of those that are over
    double left = 0, rate = 1, since = 0;  // seconds of the present stretch; since: when `left` was so much
    bool modest = false;                   // claims no more than the whole of a resource, to its end
    bool alone = false;                    // on all its resources: the loads there aren't kept up to date
    i64 order = 0;                         // of starts
    i64 version = 0;                       // of its next event
    i64 rated = 0;                         // when its rate was looked at last, by changes_
    const Stretch& present() const { return stretches[ends.size()]; }
  };
  struct Resource {
    double load = 0;
    std::vector<int> users;
  };
  struct Event {
    double at = 0;
    i64 order = 0;
    int activity = 0;
    i64 version = 0;
    bool operator>(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  Activity& activity(int number) { return activities_[static_cast<size_t>(number)]; }
  Resource& resource(const Claim& claim) { return resources_[static_cast<size_t>(claim.resource)]; }
  const Resource& resource(const Claim& claim) const { return resources_[static_cast<size_t>(claim.resource)]; }
  int fresh_number();
  bool can_be_alone(const Activity& activity) const;
  void go_on(int number);
  void meet(int number);
  bool next_stretch(int number);
  void leave(int number);
  double rate_of(const Activity& activity);
  void settle(int number);
  void remember_loads(std::span<const Claim> claims);
  void changed(std::span<const Claim> claims);

  double now_ = 0;
  std::vector<Resource> resources_;
  std::vector<Activity> activities_;
  std::vector<int> free_;       // numbers
  std::vector<double> before_;  // loads of the resources of the activity that starts, goes on or ends
  i64 started_ = 0, versions_ = 0, changes_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace switchyard::simulator
