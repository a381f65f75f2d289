#include "schedule/list_scheduler.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::schedule {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// The clock and the state of all stages. Micro-batches keep their order at each position, so counters say what has
/// run.
class Machine {
 public:
  Machine(const Pipeline& pipeline, const std::vector<Rule>& rules, double most)
      : pipeline_(pipeline), rules_(rules), mbs_(pipeline.mbs), most_(most) {
    made_ = {.order = Order(static_cast<size_t>(pipeline.stages)),
             .mbs = mbs_,
             .chunks = pipeline.chunks,
             .placement = pipeline.placement};
    wakes_.assign(static_cast<size_t>(pipeline.stages), 0);
    for (int stage = 0; stage < pipeline.stages; ++stage) {
      stages_.push_back({});
      for (int chunk = 0; chunk < pipeline.chunks; ++chunk)
        where_.push_back(position_of(pipeline.placement, pipeline.stages, stage, chunk));
      made_.order[static_cast<size_t>(stage)].reserve(static_cast<size_t>(3 * mbs_ * pipeline.chunks));
    }
    for (int p = 0; p < pipeline.positions(); ++p) {
      const ItemTimes& times = pipeline.costs.of(p);
      Position& position = positions_.emplace_back();
      position.stage = stage_of(pipeline.placement, pipeline.stages, p);
      position.forward = times.forward.count;
      position.gradient = times.input_gradient.count;
      position.weight = times.weight_gradient.count;
      position.input_at.assign(static_cast<size_t>(mbs_), p == 0 ? 0 : kNever);
      position.gradient_at.assign(static_cast<size_t>(mbs_), kNever);
      stages_[static_cast<size_t>(position.stage)].left +=
          mbs_ * (position.forward + position.gradient + position.weight);
    }
  }

  std::optional<Scheduled> run() {
    for (;;) {
      const auto next = std::ranges::min_element(wakes_);
      if (*next == kNever) break;
      const double now = *next;
      const int stage = static_cast<int>(next - wakes_.begin());
      if (const auto choice = choose(stage, now)) {
        if (!start(stage, *choice, now)) return std::nullopt;
      } else {
        *next = next_arrival(stage, now);
      }
    }
    Length length;
    for (const Stage& stage : stages_) {
      length.longest_stage = std::max(length.longest_stage, Seconds{stage.free - stage.first});
      length.makespan = std::max(length.makespan, Seconds{stage.free});
    }
    for (const Position& position : positions_)
      check(position.w == mbs_, "list_schedule: stopped after {} of {} micro-batches", position.w, mbs_);
    return Scheduled{std::move(made_), length};
  }

 private:
  struct Position {
    int stage = 0;
    int f = 0, b = 0, w = 0;                    // items run
    std::vector<double> input_at, gradient_at;  // [mb] when F, B may start
    double forward = 0, gradient = 0, weight = 0;

    double next_input() const {
      return f < static_cast<int>(input_at.size()) ? input_at[static_cast<size_t>(f)] : kNever;
    }
    double next_gradient() const { return b < f ? gradient_at[static_cast<size_t>(b)] : kNever; }
  };
  struct Stage {
    double first = 0, free = 0, left = 0;  // left: work to do
    int held = 0;                          // activations
    bool begun = false;
    Pass last = Pass::B;
  };
  struct Choice {
    Pass pass;
    int chunk;
  };

  Stage& at(int stage) { return stages_[static_cast<size_t>(stage)]; }
  const Rule& rule(int stage) const { return rules_[static_cast<size_t>(stage)]; }
  int where(int stage, int chunk) const { return where_[static_cast<size_t>(stage * pipeline_.chunks + chunk)]; }
  Position& position(int stage, int chunk) { return positions_[static_cast<size_t>(where(stage, chunk))]; }

  /// The last chunk may fill the memory. The others leave room for one activation of each later chunk that still has
  /// forwards to run, so that a micro-batch in the pipeline can always be finished.
  bool has_room(int stage, int chunk) {
    int after = 0;
    for (int later = chunk + 1; later < pipeline_.chunks; ++later) after += position(stage, later).f < mbs_ ? 1 : 0;
    return at(stage).held + after < rule(stage).cap;
  }

  std::optional<Choice> choose(int stage, double now) {
    const Rule& rule = this->rule(stage);
    int oldest = -1, waiting = 0;            // chunk of the W with the lowest micro-batch; on a tie, the later chunk
    double coming = kNever, input = kNever;  // the next B, the next F there is room for
    bool forward = false, blocked = false, gradient = false;
    for (int chunk = pipeline_.chunks - 1; chunk >= 0; --chunk) {
      const Position& p = position(stage, chunk);
      const bool room = has_room(stage, chunk);
      if (p.next_input() <= now) (room ? forward : blocked) = true;
      if (room) input = std::min(input, p.next_input());
      gradient = gradient || p.next_gradient() <= now;
      coming = std::min(coming, p.next_gradient());
      waiting += p.b - p.w;
      if (p.w < p.b && (oldest < 0 || p.w < position(stage, oldest).w)) oldest = chunk;
    }
    if (waiting > rule.waiting) return Choice{Pass::W, oldest};
    // Forward and gradient take turns. Where only memory prevents a forward, a W frees some.
    if (gradient && blocked && !forward && oldest >= 0 && at(stage).last == Pass::B) return Choice{Pass::W, oldest};
    if (forward || gradient) {
      const Choice choice = best(stage, now);
      if (choice.pass == Pass::F && holds_back(stage, choice, now, coming)) return std::nullopt;
      return choice;
    }
    if (oldest < 0 || holds_back(stage, {Pass::W, oldest}, now, std::min(coming, input))) return std::nullopt;
    return Choice{Pass::W, oldest};
  }

  /// The first item of the rule's list that can run.
  Choice best(int stage, double now) {
    for (const char letter : at(stage).last == Pass::B ? rule(stage).after_gradient : rule(stage).after_forward) {
      const int chunk = letter == 'f' || letter == 'b' ? 1 : 0;
      if (chunk >= pipeline_.chunks) continue;
      const Position& p = position(stage, chunk);
      const bool forward = letter == 'F' || letter == 'f';
      if (forward ? p.next_input() <= now && has_room(stage, chunk) : p.next_gradient() <= now)
        return {forward ? Pass::F : Pass::B, chunk};
    }
    throw InternalError("list_schedule: the rule lacks an item");
  }

  bool holds_back(int stage, Choice choice, double now, double coming) {
    const Position& p = position(stage, choice.chunk);
    return coming > now && coming < now + rule(stage).hold * (choice.pass == Pass::F ? p.forward : p.weight);
  }

  /// The time of the next arrival of an input or gradient that the stage does not have yet.
  double next_arrival(int stage, double now) {
    double next = kNever;
    for (int chunk = 0; chunk < pipeline_.chunks; ++chunk)
      for (const double time : {position(stage, chunk).next_input(), position(stage, chunk).next_gradient()})
        if (time > now) next = std::min(next, time);
    return next;
  }

  /// Starts an item; returns whether the schedule can still end in time.
  bool start(int stage, Choice choice, double now) {
    const int here = where(stage, choice.chunk);
    Position& p = positions_[static_cast<size_t>(here)];
    Stage& s = at(stage);
    if (now + s.left > most_) return false;
    const Pass pass = choice.pass;
    const int mb = pass == Pass::F ? p.f++ : pass == Pass::W ? p.w++ : p.b++;
    const double time = pass == Pass::F ? p.forward : pass == Pass::W ? p.weight : p.gradient, end = now + time;
    if (!std::exchange(s.begun, true)) s.first = now;
    made_.order[static_cast<size_t>(stage)].push_back({pass, choice.chunk, mb});
    wakes_[static_cast<size_t>(stage)] = s.free = end;
    s.left = std::max(0.0, s.left - time * (1 + 1e-12));  // rounding never ends a schedule that is in time
    if (pass == Pass::F) ++s.held;
    if (pass == Pass::W) --s.held;
    if (pass != Pass::W) {
      s.last = pass == Pass::F ? Pass::F : Pass::B;
      hand_over(stage, pass == Pass::F ? here + 1 : here - 1, pass == Pass::F, mb, end);
    }
    return true;
  }

  /// Passes the output of an F or B that ends at `end` to position `to`, or from the last F to the loss's gradient.
  void hand_over(int stage, int to, bool forward, int mb, double end) {
    if (to < 0) return;
    if (to == pipeline_.positions()) {
      positions_.back().gradient_at[static_cast<size_t>(mb)] = end;
      return;
    }
    Position& p = positions_[static_cast<size_t>(to)];
    const double arrival = end + (p.stage == stage ? 0.0 : pipeline_.costs.send.count);
    (forward ? p.input_at : p.gradient_at)[static_cast<size_t>(mb)] = arrival;
    double& wakes = wakes_[static_cast<size_t>(p.stage)];
    if (wakes > arrival) wakes = std::max(arrival, at(p.stage).free);
  }

  const Pipeline& pipeline_;
  const std::vector<Rule>& rules_;
  const int mbs_;
  const double most_;
  Schedule made_;
  std::vector<int> where_;
  std::vector<Position> positions_;
  std::vector<Stage> stages_;
  std::vector<double> wakes_;  // by stage
};

}  // namespace

std::optional<Scheduled> list_schedule(const Pipeline& pipeline, const std::vector<Rule>& rules, Seconds most) {
  check(std::ranges::all_of(rules, [&](const Rule& rule) { return rule.cap >= pipeline.chunks; }),
        "list_schedule: a cap is below {} chunks", pipeline.chunks);
  return Machine(pipeline, rules, most.count).run();
}

Length length_of(const Pipeline& pipeline, const Schedule& schedule) {
  const int positions = pipeline.positions();
  // [position][mb]: when F, B or BW may start.
  std::vector<std::vector<double>> input(static_cast<size_t>(positions),
                                         std::vector<double>(static_cast<size_t>(pipeline.mbs), kNever)),
      gradient = input;
  std::ranges::fill(input[0], 0.0);
  std::vector<size_t> next(schedule.order.size(), 0);
  std::vector<double> free(next.size(), 0), first(next.size(), kNever);
  const auto run = [&](size_t stage, const Item& item) {
    const int here = position_of(pipeline.placement, pipeline.stages, static_cast<int>(stage), item.chunk);
    const auto p = static_cast<size_t>(here), mb = static_cast<size_t>(item.mb);
    const double ready = item.pass == Pass::W ? 0 : (item.pass == Pass::F ? input : gradient)[p][mb];
    if (ready == kNever) return false;
    const double start = std::max(free[stage], ready), end = start + pipeline.costs.of(item.pass, here).count;
    first[stage] = std::min(first[stage], start);
    free[stage] = end;
    if (item.pass == Pass::W) return true;
    const int to = item.pass == Pass::F ? here + 1 : here - 1;
    if (to == positions) gradient[p][mb] = end;
    if (to < 0 || to == positions) return true;
    const bool stays = stage_of(pipeline.placement, pipeline.stages, to) == static_cast<int>(stage);
    (item.pass == Pass::F ? input : gradient)[static_cast<size_t>(to)][mb] =
        end + (stays ? 0.0 : pipeline.costs.send.count);
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t stage = 0; stage < next.size(); ++stage)
      for (; next[stage] < schedule.order[stage].size() && run(stage, schedule.order[stage][next[stage]]);
           ++next[stage])
        moved = true;
  }
  Length length;
  for (size_t stage = 0; stage < next.size(); ++stage) {
    check(next[stage] == schedule.order[stage].size(), "length_of: stage {} stops after {} items", stage, next[stage]);
    if (next[stage] == 0) continue;
    length.makespan = std::max(length.makespan, Seconds{free[stage]});
    length.longest_stage = std::max(length.longest_stage, Seconds{free[stage] - first[stage]});
  }
  return length;
}

// A stage begins when the first micro-batch reaches it. It then does all its work, of which at most `cap` forwards
// before the first gradient reaches it.
Length least_length(const Pipeline& pipeline, int cap) {
  Length least;
  std::vector<double> begin(static_cast<size_t>(pipeline.stages), kNever), work(begin.size(), 0),
      forward(begin.size(), 0);
  const auto stage_at = [&](int p) { return static_cast<size_t>(stage_of(pipeline.placement, pipeline.stages, p)); };
  const auto send = [&](int from, int to) { return stage_at(from) == stage_at(to) ? 0.0 : pipeline.costs.send.count; };
  double now = 0;
  const int positions = pipeline.positions();
  for (int p = 0; p < positions; ++p) {
    const ItemTimes& times = pipeline.costs.of(p);
    if (p > 0) now += send(p - 1, p);
    const size_t stage = stage_at(p);
    begin[stage] = std::min(begin[stage], now);
    work[stage] += pipeline.mbs * (times.forward + times.input_gradient + times.weight_gradient).count;
    forward[stage] = std::max(forward[stage], times.forward.count);
    now += times.forward.count;
  }
  std::vector<double> gradient(begin.size(), kNever);  // arrival of the first one at a stage
  for (int p = positions - 1; p >= 0; --p) {
    gradient[stage_at(p)] = std::min(gradient[stage_at(p)], now);
    now += pipeline.costs.of(p).input_gradient.count + (p > 0 ? send(p, p - 1) : 0);
  }
  for (size_t stage = 0; stage < begin.size(); ++stage) {
    if (pipeline.mbs == 0) break;
    const double waits =
        std::max(0.0, gradient[stage] - begin[stage] - std::min(cap, pipeline.mbs * pipeline.chunks) * forward[stage]);
    least.longest_stage = std::max(least.longest_stage, Seconds{waits + work[stage]});
    least.makespan = std::max(least.makespan, Seconds{begin[stage] + waits + work[stage]});
  }
  return least;
}

}  // namespace switchyard::schedule
