#include "schedule/zero_bubble.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <queue>
#include <string_view>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::schedule {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// How a stage chooses among items that could run. after_gradient, after_forward: chunks' F and B, best first, written F, B
/// for chunk 0 and f, b for chunk 1; which of the two holds depends on the F or B that the stage ran last. W runs when
/// nothing else can. hold: rather than an F, wait for a B that comes within this share of its time; rather than a W, for a B or an F.
struct Rule {
  std::string_view after_gradient, after_forward;
  double hold = 0;
  bool unit_times = false;  // choose as if F = B = W = 1, without sends
};

/// Runs all stages on a clock, each choosing by the rule. Micro-batches keep their order at each position, so counters say
/// what has run.
class Machine {
 public:
  Machine(int stages, int mbs, int chunks, int cap, const Costs& costs, const Rule& rule)
      : made_{.order = Order(static_cast<size_t>(stages)), .mbs = mbs, .chunks = chunks, .placement = Placement::v},
        cap_(cap),
        costs_(costs),
        rule_(rule),
        positions_(static_cast<size_t>(made_.positions())),
        stages_(static_cast<size_t>(stages)) {
    for (Position& position : positions_) {
      position.input.assign(static_cast<size_t>(mbs), kNever);
      position.gradient = position.input;
    }
    std::fill(positions_[0].input.begin(), positions_[0].input.end(), 0.0);
    for (int stage = 0; stage < stages; ++stage) wakes_.push({0.0, stage});
  }

  Schedule run() {
    while (!wakes_.empty()) {
      const auto [now, stage] = wakes_.top();
      wakes_.pop();
      if (at(stage).free > now) continue;
      if (const auto choice = choose(stage, now)) start(stage, choice->what, choice->chunk, now);
    }
    for (const Position& position : positions_) {
      check(position.w == made_.mbs, "zero_bubble: stopped after {} of {} micro-batches", position.w, made_.mbs);
    }
    return std::move(made_);
  }

  /// After run: what replay gives as longest_stage and makespan, or a little more where the rule holds items back.
  std::pair<Seconds, Seconds> length() const {
    std::pair<Seconds, Seconds> length;
    for (const Stage& stage : stages_) {
      length.first = std::max(length.first, Seconds{stage.free - stage.first});
      length.second = std::max(length.second, Seconds{stage.free});
    }
    return length;
  }

  /// After run: no stage waited between its items.
  bool without_idle() const {
    return std::all_of(stages_.begin(), stages_.end(), [](const Stage& stage) { return !stage.waited; });
  }

 private:
  struct Position {
    int f = 0, b = 0, w = 0;              // items run
    std::vector<double> input, gradient;  // [mb] when F, B may start
  };
  struct Stage {
    double first = 0, free = 0;
    bool waited = false;
    int held = 0;  // activations
    char last = 'B';
  };
  struct Choice {
    char what;
    int chunk;
  };

  Stage& at(int stage) { return stages_[static_cast<size_t>(stage)]; }
  int where(int stage, int chunk) const { return position_of(made_.placement, made_.stages(), stage, chunk); }
  Position& position(int stage, int chunk) { return positions_[static_cast<size_t>(where(stage, chunk))]; }

  double next_input(const Position& p) const { return p.f < made_.mbs ? p.input[static_cast<size_t>(p.f)] : kNever; }
  static double next_gradient(const Position& p) { return p.b < p.f ? p.gradient[static_cast<size_t>(p.b)] : kNever; }

  /// The last chunk may fill the memory; the others leave a place for each chunk after them that still has forwards to run,
  /// so that a micro-batch that is in the pipeline can always be finished.
  bool has_room(int stage, int chunk) {
    int after = 0;
    for (int later = chunk + 1; later < made_.chunks; ++later) after += position(stage, later).f < made_.mbs ? 1 : 0;
    return at(stage).held + after < cap_;
  }

  std::optional<Choice> choose(int stage, double now) {
    const std::optional<int> weight = pending_weight(stage);
    double coming = kNever, input = kNever;  // the next B, the next F there is room for
    bool forward = false, blocked = false, gradient = false;
    for (int chunk = 0; chunk < made_.chunks; ++chunk) {
      const Position& p = position(stage, chunk);
      const bool room = has_room(stage, chunk);
      if (next_input(p) <= now) (room ? forward : blocked) = true;
      if (room) input = std::min(input, next_input(p));
      gradient = gradient || next_gradient(p) <= now;
      coming = std::min(coming, next_gradient(p));
    }
    // Forward and gradient take turns: where only memory keeps a forward back, a W makes room.
    if (gradient && blocked && !forward && weight && at(stage).last == 'B') return Choice{'W', *weight};
    if (forward || gradient) {
      const Choice choice = best(stage, now);
      if (choice.what == 'F' && holds_back(stage, choice, now, coming)) return std::nullopt;
      return choice;
    }
    if (!weight || holds_back(stage, {'W', *weight}, now, std::min(coming, input))) return std::nullopt;
    return Choice{'W', *weight};
  }

  /// The first of the rule's list that can run.
  Choice best(int stage, double now) {
    for (const char letter : at(stage).last == 'B' ? rule_.after_gradient : rule_.after_forward) {
      const int chunk = letter == 'f' || letter == 'b' ? 1 : 0;
      if (chunk >= made_.chunks) continue;
      const Position& p = position(stage, chunk);
      const bool forward = letter == 'F' || letter == 'f';
      if (forward ? next_input(p) <= now && has_room(stage, chunk) : next_gradient(p) <= now) return {forward ? 'F' : 'B', chunk};
    }
    throw InternalError("zero_bubble: the rule lacks an item");
  }

  bool holds_back(int stage, Choice choice, double now, double coming) const {
    return coming > now && coming < now + rule_.hold * costs_.of(choice.what, where(stage, choice.chunk)).count;
  }

  /// The chunk of the oldest micro-batch whose B has run and W has not; of two, the chunk whose B ran first.
  std::optional<int> pending_weight(int stage) {
    std::optional<int> oldest;
    for (int chunk = made_.chunks - 1; chunk >= 0; --chunk) {
      const Position& p = position(stage, chunk);
      if (p.w < p.b && (!oldest || p.w < position(stage, *oldest).w)) oldest = chunk;
    }
    return oldest;
  }

  void start(int stage, char what, int chunk, double now) {
    const int here = where(stage, chunk);
    Position& p = positions_[static_cast<size_t>(here)];
    const double end = now + costs_.of(what, here).count;
    int& count = what == 'F' ? p.f : what == 'B' ? p.b : p.w;
    const int mb = count++;
    Stage& s = at(stage);
    std::vector<Item>& items = made_.order[static_cast<size_t>(stage)];
    if (items.empty()) s.first = now;
    s.waited = s.waited || (!items.empty() && now > s.free);
    items.push_back({what, chunk, mb});
    s.free = end;
    if (what == 'W') {
      --s.held;
    } else {
      s.last = what;
      hand_over(stage, what == 'F' ? here + 1 : here - 1, what, mb, end);
    }
    if (what == 'F') ++s.held;
    wakes_.push({end, stage});
  }

  /// The output of an F or B that ends at `end` comes to position `to`, or turns into the loss's gradient.
  void hand_over(int stage, int to, char what, int mb, double end) {
    if (to < 0) return;
    if (to == made_.positions()) {
      positions_.back().gradient[static_cast<size_t>(mb)] = end;
      return;
    }
    const int receiver = stage_of(made_.placement, made_.stages(), to);
    const double arrival = end + (receiver == stage ? 0.0 : costs_.send.count);
    Position& p = positions_[static_cast<size_t>(to)];
    (what == 'F' ? p.input : p.gradient)[static_cast<size_t>(mb)] = arrival;
    wakes_.push({arrival, receiver});
  }

  using Wake = std::pair<double, int>;  // time, stage
  Schedule made_;
  int cap_;
  const Costs& costs_;
  Rule rule_;
  std::vector<Position> positions_;
  std::vector<Stage> stages_;
  std::priority_queue<Wake, std::vector<Wake>, std::greater<>> wakes_;
};

Schedule best_of(const std::vector<Rule>& rules, int stages, int mbs, int chunks, int cap, const Costs& costs) {
  check(stages >= 1 && mbs >= 0 && cap >= chunks, "zero_bubble: {} stages, {} micro-batches, {} chunks and a cap of {} activations", stages,
        mbs, chunks, cap);
  check_costs(costs, stages * chunks);
  const Costs units{.at = {{Seconds{1}, Seconds{1}, Seconds{1}}}, .send = {}};
  std::optional<Schedule> best;
  std::pair<Seconds, Seconds> least;
  for (const Rule& rule : rules) {
    Machine machine(stages, mbs, chunks, cap, rule.unit_times ? units : costs, rule);
    Schedule made = machine.run();
    if (chunks == 1) made.placement = Placement::loop;  // the same places, by their usual name
    std::pair<Seconds, Seconds> length = machine.length();
    if (rule.unit_times) {
      const Timing timing = replay(made, costs);
      length = {timing.longest_stage(), timing.makespan};
    }
    if (best && length >= least) continue;
    best = std::move(made);
    least = length;
    if (!rule.unit_times && machine.without_idle()) break;
  }
  return std::move(*best);
}

}  // namespace

Schedule zero_bubble(int stages, int mbs, int cap, const Costs& costs) {
  const std::vector<Rule> rules{{"FB", "BF"}, {"FB", "BF", 0.25}, {"FB", "BF", 0.5}, {"FB", "BF", 1}, {"FB", "BF", 0, true}};
  return best_of(rules, stages, mbs, 1, cap, costs);
}

Schedule zero_bubble_v(int stages, int mbs, int cap, const Costs& costs) {
  const std::vector<Rule> rules{
      {"BFfb", "BfFb"}, {"BFfb", "fbBF", 0.5}, {"BbFf", "BfFb", 0.25}, {"BFfb", "BfFb", 0.75}, {"BFfb", "fFbB", 1}, {"BFfb", "BfFb", 0, true}};
  return best_of(rules, stages, mbs, 2, cap, costs);
}

}  // namespace switchyard::schedule
