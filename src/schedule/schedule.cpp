#include "schedule/schedule.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "base/errors.hpp"

namespace switchyard::schedule {
namespace {

std::vector<Item> gpipe_stage(int mbs) {
  std::vector<Item> items;
  for (int mb = 0; mb < mbs; ++mb) items.push_back({'F', 0, mb});
  for (int mb = 0; mb < mbs; ++mb) items.push_back({'X', 0, mb});
  return items;
}

std::vector<Item> one_f_one_b_stage(int stage, int stages, int mbs) {
  const int ahead = std::min(mbs, stages - stage);
  std::vector<Item> items;
  for (int mb = 0; mb < ahead; ++mb) items.push_back({'F', 0, mb});
  for (int mb = 0; mb < mbs; ++mb) {
    items.push_back({'X', 0, mb});
    if (ahead + mb < mbs) items.push_back({'F', 0, ahead + mb});
  }
  return items;
}

std::string name_of(const Item& item) {
  return item.chunk == 0 ? fmt::format("{}{}", item.what, item.mb) : fmt::format("{}{}.{}", item.what, item.mb, item.chunk);
}

/// Where an item stands: stage, and place in its stage's order.
struct Place {
  int stage = 0, index = 0;
};

/// Finds items of an order, and knows which item waits for which.
class Index {
 public:
  explicit Index(const Order& order) : order_(order), stages_(static_cast<int>(order.size())) {
    for (int stage = 0; stage < stages_; ++stage) {
      const std::vector<Item>& items = order[static_cast<size_t>(stage)];
      for (int i = 0; i < static_cast<int>(items.size()); ++i) add(items[static_cast<size_t>(i)], {stage, i});
    }
    for (const auto& [key, place] : places_) check_complete(place);
  }

  int positions() const { return (last_chunk_ + 1) * stages_; }
  const Item& at(Place place) const { return order_[static_cast<size_t>(place.stage)][static_cast<size_t>(place.index)]; }

  /// What the item at `place` waits for besides its predecessor on the stage.
  std::vector<Place> waits_for(Place place) const {
    const Item& item = at(place);
    const int position = item.chunk * stages_ + place.stage;
    std::vector<Place> needs;
    if (item.what == 'F') {
      if (position > 0) needs.push_back(find('F', position - 1, item.mb));
      return needs;
    }
    needs.push_back(find('F', position, item.mb));
    if (item.what == 'W') {
      needs.push_back(find('B', position, item.mb));
    } else if (position + 1 < positions()) {
      needs.push_back(gradient(position + 1, item.mb));
    }
    return needs;
  }

 private:
  using Key = std::tuple<char, int, int>;  // what, position, micro-batch; X stands under B

  static char kind(char what) { return what == 'X' ? 'B' : what; }

  void add(const Item& item, Place place) {
    check(item.what == 'F' || item.what == 'B' || item.what == 'W' || item.what == 'X',
          "schedule: stage {} has work '{}', not F, B, W or X", place.stage, item.what);
    check(item.chunk >= 0 && item.mb >= 0, "schedule: stage {} has a negative chunk or micro-batch in {}", place.stage, name_of(item));
    const Key key{kind(item.what), item.chunk * stages_ + place.stage, item.mb};
    check(places_.emplace(key, place).second, "schedule: stage {} runs {} twice", place.stage, name_of(item));
    last_chunk_ = std::max(last_chunk_, item.chunk);
  }

  /// A micro-batch is at both neighbours of a position too, so that it runs along the whole pipeline, and has all its gradients.
  void check_complete(Place place) const {
    const Item& item = at(place);
    const int position = item.chunk * stages_ + place.stage;
    for (int other = std::max(0, position - 1); other < std::min(positions(), position + 2); ++other) find('F', other, item.mb);
    const Place back = gradient(position, item.mb);
    if (at(back).what == 'B') find('W', position, item.mb);
    check(item.what != 'W' || at(back).what == 'B', "schedule: stage {} runs {} after X{}, which has the weight gradient", place.stage,
          name_of(item), item.mb);
  }

  Place gradient(int position, int mb) const { return find('B', position, mb); }

  Place find(char what, int position, int mb) const {
    const auto found = places_.find({what, position, mb});
    check(found != places_.end(), "schedule: stage {} never runs {}{}", position % stages_, name_of({what, position / stages_, mb}),
          what == 'B' ? " (or X)" : "");
    return found->second;
  }

  const Order& order_;
  int stages_;
  int last_chunk_ = 0;
  std::map<Key, Place> places_;
};

/// Walks from a stage that is stuck to the stage it waits for until one comes again: that is the circle.
std::string circle(const Index& index, const std::vector<int>& next, int start) {
  const auto blocker = [&](int stage) {
    const Place place{stage, next[static_cast<size_t>(stage)]};
    for (const Place& need : index.waits_for(place)) {
      if (need.index >= next[static_cast<size_t>(need.stage)]) return need;
    }
    throw InternalError("schedule: a stage that isn't stuck was taken for stuck");
  };
  std::vector<int> seen(next.size(), 0);
  int stage = start;
  while (seen[static_cast<size_t>(stage)]++ == 0) stage = blocker(stage).stage;
  const int first = stage;
  std::string text;
  do {
    const Place need = blocker(stage);
    text += fmt::format("{}stage {} at {} waits for {} of stage {}", text.empty() ? "" : "; ", stage,
                        name_of(index.at({stage, next[static_cast<size_t>(stage)]})), name_of(index.at(need)), need.stage);
    stage = need.stage;
  } while (stage != first);
  return text;
}

}  // namespace

Order schedule(Kind kind, int stages, int mbs) {
  check(stages >= 1 && mbs >= 0, "schedule: {} stages and {} micro-batches", stages, mbs);
  Order order;
  for (int stage = 0; stage < stages; ++stage) {
    order.push_back(kind == Kind::gpipe ? gpipe_stage(mbs) : one_f_one_b_stage(stage, stages, mbs));
  }
  return order;
}

void verify(const Order& order) {
  const Index index(order);
  const int stages = static_cast<int>(order.size());
  std::vector<int> next(order.size(), 0);
  const auto ready = [&](int stage) {
    for (const Place& need : index.waits_for({stage, next[static_cast<size_t>(stage)]})) {
      if (need.index >= next[static_cast<size_t>(need.stage)]) return false;
    }
    return true;
  };
  std::optional<int> stuck;
  for (bool moved = true; moved;) {
    moved = false;
    stuck.reset();
    for (int stage = 0; stage < stages; ++stage) {
      while (next[static_cast<size_t>(stage)] < static_cast<int>(order[static_cast<size_t>(stage)].size())) {
        if (!ready(stage)) {
          stuck = stage;
          break;
        }
        ++next[static_cast<size_t>(stage)];
        moved = true;
      }
    }
  }
  check(!stuck, "schedule: the order deadlocks: {}", stuck ? circle(index, next, *stuck) : "");
}

std::vector<int> peak_in_flight(const Order& order) {
  std::vector<int> peaks;
  for (const std::vector<Item>& items : order) {
    int alive = 0, peak = 0;
    for (const Item& item : items) {
      if (item.what == 'F') peak = std::max(peak, ++alive);
      if (item.what == 'X' || item.what == 'W') --alive;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

std::string to_string(const std::vector<Item>& items) {
  std::string text;
  for (const Item& item : items) text += (text.empty() ? "" : " ") + name_of(item);
  return text;
}

}  // namespace switchyard::schedule
