#include "schedule/zeropp.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/errors.hpp"
#include "schedule/list_scheduler.hpp"

namespace switchyard::schedule {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// When weight gradients run. hold: rather than beginning one, a stage waits for an item that comes within this share of
// its time. keep: how many may wait when the stage goes on to its next chunk. A block's gradients go down the pipeline
// and the next block's forward passes up, so that each stage has two fewer to spare than the one after it.
struct WeightRule {
  enum class Keep { two_for_each_stage_before, all } keep = Keep::two_for_each_stage_before;
  double hold = 0;
};

// All stages on one clock.
class Machine {
 public:
  Machine(const Pipeline& pipeline, int every, const WeightRule& rule)
      : pipeline_(pipeline), every_(every), rule_(rule), stages_(static_cast<size_t>(pipeline.stages)) {
    made_ = {.order = Order(stages_.size()), .mbs = pipeline.mbs, .chunks = pipeline.chunks};
    wakes_.assign(stages_.size(), 0);
    const auto mbs = static_cast<size_t>(pipeline.mbs);
    input_at_.assign(static_cast<size_t>(pipeline.positions()), std::vector<double>(mbs, kNever));
    gradient_at_ = input_at_;
    std::ranges::fill(input_at_[0], 0.0);
  }

  // Nothing if it takes longer than `most`.
  std::optional<Schedule> run(double most) {
    for (;;) {
      const auto next = std::ranges::min_element(wakes_);
      if (*next == kNever) break;
      if (*next > most) return std::nullopt;
      const int stage = static_cast<int>(next - wakes_.begin());
      const double now = std::exchange(*next, kNever);
      if (const auto item = choose(stage, now)) start(stage, *item, now);
    }
    return std::move(made_);
  }

 private:
  // step: of the block that begins with micro-batch `first`: 0 ... chunks - 2 are forward passes of a chunk, chunks - 1
  // both passes of the last one, those behind it gradients of the others. f, b: items of the step that ran.
  struct Stage {
    double free = 0;
    int first = 0, step = 0, f = 0, b = 0;
    std::deque<Item> weights{};  // to come
  };

  int last_step() const { return 2 * pipeline_.chunks - 2; }
  int chunk_of(int step) const { return std::min(step, last_step() - step); }
  int block_size(const Stage& s) const { return std::min(every_, pipeline_.mbs - s.first); }
  int position(int stage, int chunk) const { return position_of(pipeline_.placement, pipeline_.stages, stage, chunk); }

  bool is_done(const Stage& s) const {
    const int size = block_size(s), last = pipeline_.chunks - 1;
    return (s.step > last || s.f == size) && (s.step < last || s.b == size);
  }

  size_t may_wait(int stage, int step) const {
    if (step < pipeline_.chunks - 1 || (rule_.keep == WeightRule::Keep::all && step < last_step()))
      return std::numeric_limits<size_t>::max();
    return step == last_step() ? 0 : 2 * static_cast<size_t>(stage);
  }

  // Nothing: the stage wakes again when something comes.
  std::optional<Item> choose(int stage, double now) {
    Stage& s = stages_[static_cast<size_t>(stage)];
    while (s.first < pipeline_.mbs && is_done(s)) {
      if (s.weights.size() > may_wait(stage, s.step)) return s.weights.front();
      s.f = s.b = 0;
      if (s.step++ < last_step()) continue;
      s.step = 0;
      s.first += every_;
    }
    if (s.first >= pipeline_.mbs) return std::nullopt;
    const int chunk = chunk_of(s.step), last = pipeline_.chunks - 1, size = block_size(s);
    const auto p = static_cast<size_t>(position(stage, chunk));
    double coming = kNever;
    if (s.step >= last && s.b < (s.step == last ? s.f : size)) {
      const double at = gradient_at_[p][static_cast<size_t>(s.first + s.b)];
      if (at <= now) return Item{Pass::B, chunk, s.first + s.b};
      coming = at;
    }
    if (s.step <= last && s.f < size) {
      const double at = input_at_[p][static_cast<size_t>(s.first + s.f)];
      if (at <= now) return Item{Pass::F, chunk, s.first + s.f};
      coming = std::min(coming, at);
    }
    if (!s.weights.empty()) {
      const Item& weight = s.weights.front();
      const double time = pipeline_.costs.of(Pass::W, position(stage, weight.chunk)).count;
      if (coming >= now + rule_.hold * time) return weight;
    }
    wakes_[static_cast<size_t>(stage)] = coming;
    return std::nullopt;
  }

  void start(int stage, const Item item, double now) {
    Stage& s = stages_[static_cast<size_t>(stage)];
    const int here = position(stage, item.chunk);
    const double end = now + pipeline_.costs.of(item.pass, here).count;
    made_.order[static_cast<size_t>(stage)].push_back(item);
    wakes_[static_cast<size_t>(stage)] = s.free = end;
    if (item.pass == Pass::W) return s.weights.pop_front();
    if (item.pass == Pass::B) s.weights.push_back({Pass::W, item.chunk, item.mb});
    ++(item.pass == Pass::F ? s.f : s.b);
    const auto mb = static_cast<size_t>(item.mb);
    const int to = item.pass == Pass::F ? here + 1 : here - 1;
    if (to == pipeline_.positions()) {
      gradient_at_.back()[mb] = end;
      return;
    }
    if (to < 0) return;
    const int target = stage_of(pipeline_.placement, pipeline_.stages, to);
    const double arrival = end + (target == stage ? 0.0 : pipeline_.costs.send.count);
    (item.pass == Pass::F ? input_at_ : gradient_at_)[static_cast<size_t>(to)][mb] = arrival;
    double& wakes = wakes_[static_cast<size_t>(target)];
    if (wakes > arrival) wakes = std::max(arrival, stages_[static_cast<size_t>(target)].free);
  }

  const Pipeline& pipeline_;
  const int every_;
  const WeightRule rule_;
  Schedule made_;
  std::vector<Stage> stages_;
  std::vector<double> wakes_;                                // by stage
  std::vector<std::vector<double>> input_at_, gradient_at_;  // [position][micro-batch]: when F, B may start
};

}  // namespace

Schedule zeropp(int stages, int mbs, int chunks, int every, const Costs& costs) {
  check(stages >= 1 && mbs >= 0 && chunks >= 1 && every >= 1,
        "zeropp: {} stages, {} micro-batches in blocks of {} and {} chunks", stages, mbs, every, chunks);
  const Pipeline pipeline{.stages = stages, .mbs = mbs, .chunks = chunks, .placement = Placement::loop, .costs = costs};
  check_costs(costs, pipeline.positions());
  std::optional<Scheduled> best;
  using Keep = WeightRule::Keep;
  constexpr double kGain = 5e-13;  // above rounding
  const Length least = least_length(pipeline, std::numeric_limits<int>::max());
  for (const Keep keep : {Keep::two_for_each_stage_before, Keep::all})
    for (const double hold : {0.0, 0.5, 1.0}) {
      if (best && best->length <= least) break;
      std::optional<Schedule> made =
          Machine(pipeline, every, {keep, hold}).run(best ? best->length.makespan.count * (1 + kGain) : kNever);
      if (!made) continue;
      const Length length = length_of(pipeline, *made);
      if (best && length.makespan > best->length.makespan * (1 - kGain) &&
          (length.makespan > best->length.makespan * (1 + kGain) ||
           length.longest_stage > best->length.longest_stage * (1 - kGain)))
        continue;
      best = Scheduled{*std::move(made), length};
    }
  return std::move(best->schedule);
}

}  // namespace switchyard::schedule
