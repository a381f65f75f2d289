#include "planner/replicas.hpp"

#include <algorithm>
#include <array>

#include "base/errors.hpp"

namespace switchyard::planner {
namespace {

constexpr double kNotYet = -1;

// Arrival times at a position of each micro-batch's activations and gradients, and the times at which its links are
// free.
struct Position {
  std::vector<double> activation, gradient;
  double forward_link = 0, backward_link = 0;
};

class Replay {
 public:
  Replay(const schedule::Schedule& schedule, const std::vector<std::vector<StageTime>>& at)
      : schedule_(schedule), at_(at), next_(schedule.order.size(), 0), free_(schedule.order.size(), 0) {
    const std::vector<double> none(at.front().size(), kNotYet), there(at.front().size(), 0);
    for (size_t p = 0; p < at.size(); ++p)
      positions_.push_back({p == 0 ? there : none, p + 1 == at.size() ? there : none});
  }

  double run() {
    size_t left = 0;
    for (const auto& items : schedule_.order) left += items.size();
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < next_.size(); ++stage)
        for (; next_[stage] < schedule_.order[stage].size() && perform(stage, schedule_.order[stage][next_[stage]]);
             ++next_[stage], --left)
          moved = true;
    }
    check(left == 0, "a schedule of {} stages stops with {} items left", next_.size(), left);
    return *std::ranges::max_element(free_);
  }

 private:
  // Runs the item if its input has arrived; returns whether it has.
  bool perform(size_t stage, const schedule::Item& item) {
    const size_t p = static_cast<size_t>(
        schedule::position_of(schedule_.placement, schedule_.stages(), static_cast<int>(stage), item.chunk));
    const size_t mb = static_cast<size_t>(item.mb);
    const StageTime& time = at_[p][mb];
    Position& here = positions_[p];
    if (item.pass == Pass::W) {
      free_[stage] += time.weight;
      return true;
    }
    const bool forward = item.pass == Pass::F;
    const double come = (forward ? here.activation : here.gradient)[mb];
    if (come == kNotYet) return false;
    free_[stage] = std::max(free_[stage], come) + time.of(item.pass);
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
  std::vector<size_t> next_;  // by stage
  std::vector<double> free_;  // by stage
  std::vector<Position> positions_;
};

// Stages and sends of all pipelines as activities, which end in order of time.
class SharedReplay {
 public:
  SharedReplay(std::span<const SharedPipeline> pipelines, int hosts, double speedup)
      : pipelines_(pipelines), speedup_(speedup), shared_(hosts) {
    for (const SharedPipeline& one : pipelines) {
      const std::vector<double> none(one.at.front().size(), kNotYet), there(one.at.front().size(), 0);
      std::vector<Position>& positions = positions_.emplace_back();
      for (size_t p = 0; p < one.at.size(); ++p)
        positions.push_back({p == 0 ? there : none, p + 1 == one.at.size() ? there : none});
      next_.emplace_back(one.schedule.order.size(), 0);
      busy_.emplace_back(one.schedule.order.size(), false);
      for (const auto& items : one.schedule.order) left_ += items.size();
      resting_.push_back(one.hosts);
      for (std::vector<simulator::Claim>& claims : resting_.back())
        for (simulator::Claim& claim : claims) claim.share = 0;
    }
  }

  SharedSeconds run() {
    for (size_t replica = 0; replica < pipelines_.size(); ++replica)
      for (size_t stage = 0; stage < next_[replica].size(); ++stage) start(replica, stage);
    for (int ended = shared_.next(); ended >= 0; ended = shared_.next()) end(ended);
    check(left_ == 0, "schedules stop with {} items left", left_);
    return result_;
  }

 private:
  // A running activity: an item of a stage, or a send to a position.
  struct Activity {
    size_t replica = 0, stage = 0, position = 0, mb = 0;
    bool send = false, forward = false;
    double begin = 0;
  };

  size_t position_of(size_t replica, size_t stage, const schedule::Item& item) const {
    const schedule::Schedule& schedule = pipelines_[replica].schedule;
    return static_cast<size_t>(
        schedule::position_of(schedule.placement, schedule.stages(), static_cast<int>(stage), item.chunk));
  }

  // Starts the stage's next item if the stage is free and the item's input has arrived.
  void start(size_t replica, size_t stage) {
    const SharedPipeline& pipeline = pipelines_[replica];
    const auto& items = pipeline.schedule.order[stage];
    if (busy_[replica][stage] || next_[replica][stage] == items.size()) return;
    const schedule::Item& item = items[next_[replica][stage]];
    const size_t p = position_of(replica, stage, item), mb = static_cast<size_t>(item.mb);
    const StageTime& time = pipeline.at[p][mb];
    const bool forward = item.pass == Pass::F, weight = item.pass == Pass::W;
    if (!weight && (forward ? positions_[replica][p].activation : positions_[replica][p].gradient)[mb] == kNotYet)
      return;
    const double exchange = time.exchange_of(item.pass), all = time.of(item.pass);
    busy_[replica][stage] = true;
    const std::array stretches{simulator::Stretch{(all - exchange) / speedup_, pipeline.hosts[stage], 0},
                               simulator::Stretch{exchange, resting_[replica][stage], 0}};
    launch({.replica = replica, .stage = stage, .position = p, .mb = mb, .forward = forward, .begin = shared_.now()},
           stretches);
  }

  void send(size_t replica, size_t to, size_t mb, bool forward, double& link, double seconds) {
    link = std::max(shared_.now(), link) + seconds;
    const std::array stretches{simulator::Stretch{link - shared_.now(), {}, 0}};
    launch({.replica = replica, .position = to, .mb = mb, .send = true, .forward = forward, .begin = shared_.now()},
           stretches);
  }

  void launch(const Activity& activity, std::span<const simulator::Stretch> stretches) {
    const auto number = static_cast<size_t>(shared_.start(stretches));
    if (activities_.size() <= number) activities_.resize(number + 1);
    activities_[number] = activity;
  }

  void end(int number) {
    const Activity one = activities_[static_cast<size_t>(number)];
    const SharedPipeline& pipeline = pipelines_[one.replica];
    std::vector<Position>& positions = positions_[one.replica];
    const size_t p = one.position;
    if (one.send) {
      (one.forward ? positions[p].activation : positions[p].gradient)[one.mb] = shared_.now();
      return start(one.replica, static_cast<size_t>(schedule::stage_of(
                                    pipeline.schedule.placement, pipeline.schedule.stages(), static_cast<int>(p))));
    }
    result_.compute += shared_.ends(number).front() - one.begin;
    result_.seconds = shared_.now();
    const bool weight = pipeline.schedule.order[one.stage][next_[one.replica][one.stage]].pass == Pass::W;
    --left_;
    ++next_[one.replica][one.stage];
    busy_[one.replica][one.stage] = false;
    if (one.forward && p + 1 < positions.size())
      send(one.replica, p + 1, one.mb, true, positions[p].forward_link, pipeline.at[p][one.mb].send);
    if (!one.forward && !weight && p > 0)
      send(one.replica, p - 1, one.mb, false, positions[p].backward_link, pipeline.at[p - 1][one.mb].send);
    start(one.replica, one.stage);
  }

  std::span<const SharedPipeline> pipelines_;
  double speedup_;
  simulator::SharedResources shared_;
  std::vector<std::vector<Position>> positions_;  // by pipeline
  std::vector<std::vector<size_t>> next_;         // by pipeline and stage
  std::vector<std::vector<bool>> busy_;
  std::vector<Activity> activities_;
  std::vector<std::vector<std::vector<simulator::Claim>>> resting_;  // claims of stages while they communicate
  size_t left_ = 0;
  SharedSeconds result_;
};

}  // namespace

double pipeline_seconds(const schedule::Schedule& schedule, const std::vector<std::vector<StageTime>>& at) {
  check(schedule.positions() == static_cast<int>(at.size()), "times of {} positions for a schedule of {}", at.size(),
        schedule.positions());
  return Replay(schedule, at).run();
}

SharedSeconds shared_seconds(std::span<const SharedPipeline> pipelines, int hosts, double speedup) {
  for (const SharedPipeline& one : pipelines)
    check(one.schedule.positions() == static_cast<int>(one.at.size()), "times of {} positions for a schedule of {}",
          one.at.size(), one.schedule.positions());
  return SharedReplay(pipelines, hosts, speedup).run();
}

}  // namespace switchyard::planner
