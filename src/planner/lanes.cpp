#include "planner/lanes.hpp"

#include <algorithm>

#include "base/errors.hpp"

namespace switchyard::planner {
namespace {

constexpr double kNotYet = -1;

struct Stage {
  size_t next = 0;
  double free = 0, forward_link = 0, backward_link = 0;
};

}  // namespace

double pipeline_seconds(const schedule::Order& order, const std::vector<std::vector<StageTime>>& at) {
  const size_t stages = order.size(), mbs = at.front().size();
  check(stages == at.size(), "times of {} stages for a schedule of {}", at.size(), stages);
  // When what a stage needs of a micro-batch has come.
  std::vector<double> activation(stages * mbs, kNotYet), gradient(stages * mbs, kNotYet);
  std::vector<Stage> state(stages);
  double end = 0;
  size_t left = 2 * stages * mbs;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < stages; ++s) {
      Stage& stage = state[s];
      for (; stage.next < order[s].size(); ++stage.next, --left, moved = true) {
        const schedule::Item& item = order[s][stage.next];
        const size_t mb = static_cast<size_t>(item.mb);
        const bool forward = item.what == 'F', enters = forward ? s == 0 : s + 1 == stages;
        const double come = enters ? 0 : (forward ? activation : gradient)[s * mbs + mb];
        if (come == kNotYet) break;
        const StageTime& time = at[s][mb];
        stage.free = std::max(stage.free, come) + (forward ? time.forward : time.backward);
        end = std::max(end, stage.free);
        if (forward && s + 1 < stages) {
          stage.forward_link = std::max(stage.free, stage.forward_link) + time.send;
          activation[(s + 1) * mbs + mb] = stage.forward_link;
        } else if (!forward && s > 0) {
          stage.backward_link = std::max(stage.free, stage.backward_link) + at[s - 1][mb].send;
          gradient[(s - 1) * mbs + mb] = stage.backward_link;
        }
      }
    }
  }
  check(left == 0, "a schedule of {} stages stops with {} items left", stages, left);
  return end;
}

}  // namespace switchyard::planner
