#include "schedule/zero_bubble.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/errors.hpp"
#include "schedule/list_scheduler.hpp"

namespace switchyard::schedule {
namespace {

// Each is best for some costs; the first ones mostly are.
const std::vector<Rule>& rules_of(int chunks) {
  static const std::vector<Rule> kOne{{"FB", "BF"}, {"FB", "BF", 0.25}, {"FB", "BF", 0.5}, {"FB", "BF", 1}};
  static const std::vector<Rule> kTwo{{"BFfb", "BfFb"}, {"BFfb", "fbBF", 0.5}, {"BbFf", "BfFb", 0.25}, {"BFfb", "BfFb", 0.75}, {"BFfb", "fFbB", 1}, {"bBfF", "fFbB"}};
  return chunks == 1 ? kOne : kTwo;
}

// How many of the last micro-batches have B and W even where X saves time: those in the pipeline when the last forward has run get through it
// sooner so.
std::vector<int> splits_of(const Pipeline& pipeline) {
  if (std::ranges::none_of(pipeline.costs.at, [](const ItemTimes& times) { return times.saved.count > 0; })) return {pipeline.mbs};
  std::vector<int> splits{0};
  for (const int split : {pipeline.stages, pipeline.mbs})
    if (split <= pipeline.mbs && split > splits.back()) splits.push_back(split);
  return splits;
}

// Each X as B and W, but for those that save time: a B sends its gradient sooner.
Schedule one_f_one_b(const Pipeline& pipeline, int split) {
  Schedule made{.order = Order(static_cast<size_t>(pipeline.stages)), .mbs = pipeline.mbs};
  const Order usual = schedule(Kind::one_f_one_b, pipeline.stages, pipeline.mbs);
  for (int stage = 0; stage < pipeline.stages; ++stage) {
    const int at_once = pipeline.costs.of(stage).saved.count > 0 ? pipeline.mbs - split : 0;
    std::vector<Item>& items = made.order[static_cast<size_t>(stage)];
    for (const Item& item : usual[static_cast<size_t>(stage)]) {
      if (item.what == 'F' || item.mb < at_once)
        items.push_back(item);
      else
        items.insert(items.end(), {{'B', 0, item.mb}, {'W', 0, item.mb}});
    }
  }
  return made;
}

// The best of all candidates within a cap. Those of smaller caps are among them, so that more memory never makes it longer.
class Search {
 public:
  explicit Search(const Pipeline& pipeline) : pipeline_(pipeline), splits_(splits_of(pipeline)) {}

  Schedule run(int cap) {
    cap = std::clamp(cap, 1, std::max(1, pipeline_.mbs) * pipeline_.chunks);  // more is never held
    for (int c = std::max(cap, pipeline_.chunks); c >= pipeline_.chunks && !reaches(least_length(pipeline_, c)); --c)
      for (const int split : splits_) {
        for (Rule rule : rules_of(pipeline_.chunks)) {
          rule.cap = c;
          consider(rule, split);
          if (reaches(least_length(pipeline_, c))) break;
        }
        if (pipeline_.chunks == 1 && c == std::min(pipeline_.stages, std::max(1, pipeline_.mbs))) consider(timed(one_f_one_b(pipeline_, split)));
      }
    return std::move(best_->schedule);
  }

 private:
  bool reaches(const Length& length) const { return best_ && best_->length <= length; }

  // A stage that holds items back may start some later than it could: only a replay tells how long the schedule takes, and none is given up before.
  void consider(const Rule& rule, int split) {
    const bool exact = rule.hold == 0;
    const Seconds most = exact && best_ ? best_->length.makespan : Seconds{std::numeric_limits<double>::infinity()};
    std::optional<Scheduled> made = list_schedule(pipeline_, std::vector<Rule>(static_cast<size_t>(pipeline_.stages), rule), split, most);
    consider(exact ? std::move(made) : timed(std::move(made->schedule)));
  }

  void consider(std::optional<Scheduled> made) {
    if (made && (!best_ || made->length < best_->length)) best_ = std::move(made);
  }

  Scheduled timed(Schedule made) const {
    const Length length = length_of(pipeline_, made);
    return {std::move(made), length};
  }

  const Pipeline& pipeline_;
  const std::vector<int> splits_;
  std::optional<Scheduled> best_;
};

Schedule best_of(const Pipeline& pipeline, int cap) {
  check(pipeline.stages >= 1 && pipeline.mbs >= 0 && cap >= pipeline.chunks, "zero_bubble: {} stages, {} micro-batches, {} chunks and a cap of {} activations",
        pipeline.stages, pipeline.mbs, pipeline.chunks, cap);
  check_costs(pipeline.costs, pipeline.positions());
  return Search(pipeline).run(cap);
}

}  // namespace

Schedule zero_bubble(int stages, int mbs, int cap, const Costs& costs) { return best_of({stages, mbs, 1, Placement::loop, costs}, cap); }

Schedule zero_bubble_v(int stages, int mbs, int cap, const Costs& costs) { return best_of({stages, mbs, 2, Placement::v, costs}, cap); }

}  // namespace switchyard::schedule
