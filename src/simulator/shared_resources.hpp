// Activities that run at the same time and share devices and ports.
#pragma once

#include <limits>
#include <queue>
#include <span>
#include <vector>

#include "base/dtype.hpp"

namespace switchyard::simulator {

/// The share of a resource that an activity uses while nothing slows it: 1 is all of it, 0.2 a fifth.
struct Claim {
  int resource = 0;
  double share = 0;
};

/// A part of an activity that takes `seconds` when nothing slows it. The memory of the claims must stay valid until the
/// activity has ended. tag: for the caller's use.
struct Stretch {
  double seconds = 0;
  std::span<const Claim> claims;
  int tag = 0;
};

/// A simulation of activities in continuous time. Where the claims on a resource add up to more than 1, each claimant
/// gets a share in proportion to its claim; an activity is as slow as its most overloaded resource.
///   Two activities alone on a device, with claims of 1 and k - 1, that start together take max(a, b) + (k - 1) min(a,
/// b).
/// An activity that is alone on its resources costs no work between its start, the arrival of another one, and its end,
/// however many stretches it has.
class SharedResources {
 public:
  explicit SharedResources(int resources) : resources_(static_cast<size_t>(resources)) {}

  /// Starts an activity that takes these stretches (at least one) in order, all on the same resources. Returns the
  /// activity's number; next() returns it again when the activity ends, and it is then reused. Numbers are smaller than
  /// the largest number of concurrent activities.
  int start(std::span<const Stretch> stretches);
  /// Advances to the end of the activity that ends first, and returns its number; -1: none runs. Among activities that
  /// end at the same time, the one that was started first comes first.
  int next();
  double now() const { return now_; }

  /// The stretches of an activity that has just ended, and the end of each of them.
  std::span<const Stretch> stretches(int number) const { return activities_[static_cast<size_t>(number)].stretches; }
  std::span<const double> ends(int number) const { return activities_[static_cast<size_t>(number)].ends; }

 private:
  struct Activity {
    std::vector<Stretch> stretches;
    std::vector<double> ends;              // ends of the completed stretches
    double left = 0, rate = 1, since = 0;  // left: seconds of the present stretch left at time `since`
    bool modest = false;                   // never claims more than the whole of a resource
    bool alone = false;                    // on all its resources, whose loads are then not kept up to date
    i64 order = 0;                         // order of starts
    i64 version = 0;                       // version of its next event
    i64 rated = 0;                         // value of changes_ when its rate was last computed
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
  void end_alone(int number);
  bool next_stretch(int number);
  void leave(int number);
  double rate_of(const Activity& activity);
  void settle(int number);
  void remember_loads(std::span<const Claim> claims);
  void changed(std::span<const Claim> claims);

  double now_ = 0;
  std::vector<Resource> resources_;
  std::vector<Activity> activities_;
  std::vector<int> free_;  // numbers
  std::vector<double>
      before_;  // loads, before the change, of the resources of the activity that starts, continues or ends
  i64 started_ = 0, versions_ = 0, changes_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace switchyard::simulator
