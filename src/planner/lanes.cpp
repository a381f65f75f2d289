#include "planner/lanes.hpp"

#include <algorithm>

#include "base/errors.hpp"

namespace switchyard::planner {
namespace {

constexpr double kNotYet = -1;

// When what a position needs of a micro-batch has come, and when its links are free.
struct Position {
  std::vector<double> activation, gradient;
  double forward_link = 0, backward_link = 0;
};

class Replay {
 public:
  Replay(const schedule::Schedule& schedule, const std::vector<std::vector<StageTime>>& at)
      : schedule_(schedule), at_(at), next_(schedule.order.size(), 0), free_(schedule.order.size(), 0) {
    const std::vector<double> none(at.front().size(), kNotYet), there(at.front().size(), 0);
    for (size_t p = 0; p < at.size(); ++p) positions_.push_back({p == 0 ? there : none, p + 1 == at.size() ? there : none});
  }

  double run() {
    size_t left = 0;
    for (const auto& items : schedule_.order) left += items.size();
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < next_.size(); ++stage)
        for (; next_[stage] < schedule_.order[stage].size() && perform(stage, schedule_.order[stage][next_[stage]]); ++next_[stage], --left) moved = true;
    }
    check(left == 0, "a schedule of {} stages stops with {} items left", next_.size(), left);
    return *std::ranges::max_element(free_);
  }

 private:
  // Whether what it needs is there.
  bool perform(size_t stage, const schedule::Item& item) {
    const size_t p = static_cast<size_t>(schedule::position_of(schedule_.placement, schedule_.stages(), static_cast<int>(stage), item.chunk));
    const size_t mb = static_cast<size_t>(item.mb);
    const StageTime& time = at_[p][mb];
    Position& here = positions_[p];
    if (item.what == 'W') {
      free_[stage] += time.weight;
      return true;
    }
    const bool forward = item.what == 'F';
    const double come = (forward ? here.activation : here.gradient)[mb];
    if (come == kNotYet) return false;
    free_[stage] = std::max(free_[stage], come) + (forward ? time.forward : time.backward);
    if (forward && p + 1 < positions_.size()) {
      here.forward_link = std::max(free_[stage], here.forward_link) + time.send;
      positions_[p + 1].activation[mb] = here.forward_link;
    } else if (!forward && p > 0) {
      here.backward_link = std::max(free_[stage], here.backward_link) + at_[p - 1][mb].send;
      positions_[p - 1].gradient[mb] = here.backward_link;
    }
    return true;
  }

  const schedule::Schedule& schedule_;
  const std::vector<std::vector<StageTime>>& at_;
  std::vector<size_t> next_;   // of each stage
  std::vector<double> free_;   // of each stage
  std::vector<Position> positions_;
};

}  // namespace

double pipeline_seconds(const schedule::Schedule& schedule, const std::vector<std::vector<StageTime>>& at) {
  check(schedule.positions() == static_cast<int>(at.size()), "times of {} positions for a schedule of {}", at.size(), schedule.positions());
  return Replay(schedule, at).run();
}

}  // namespace switchyard::planner
