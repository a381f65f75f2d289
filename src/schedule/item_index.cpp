#include "schedule/item_index.hpp"

#include <algorithm>
#include <optional>

#include "base/errors.hpp"

namespace switchyard::schedule {
namespace {

/// Walks from a stuck stage to the stage that it waits for, until a stage repeats: these form the cycle.
std::string cycle(const ItemIndex& index, const std::vector<int>& next, int start) {
  const auto blocker = [&](int stage) {
    const Place place{stage, next[static_cast<size_t>(stage)]};
    for (const Place& need : index.waits_for(place)) {
      if (need.index >= next[static_cast<size_t>(need.stage)]) return need;
    }
    throw InternalError("schedule: a cycle was looked for at a stage that isn't stuck");
  };
  std::vector<int> seen(next.size(), 0);
  int stage = start;
  while (seen[static_cast<size_t>(stage)]++ == 0) stage = blocker(stage).stage;
  const int first = stage;
  std::string text;
  do {
    const Place need = blocker(stage);
    text += fmt::format("{}stage {} at {} waits for {} of stage {}", text.empty() ? "" : "; ", stage,
                        to_string(index.at({stage, next[static_cast<size_t>(stage)]})), to_string(index.at(need)),
                        need.stage);
    stage = need.stage;
  } while (stage != first);
  return text;
}

}  // namespace

ItemIndex::ItemIndex(const Schedule& schedule) : schedule_(schedule) {
  constexpr int kMostPositions = 1 << 24;  // so that a key fits into 64 bits
  check(schedule.chunks >= 1 && schedule.chunks <= kMostPositions / std::max(1, schedule.stages()) && schedule.mbs >= 0,
        "schedule: {} stages with {} chunks and {} micro-batches", schedule.stages(), schedule.chunks, schedule.mbs);
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const int count = static_cast<int>(schedule.order[static_cast<size_t>(stage)].size());
    for (int i = 0; i < count; ++i) add({stage, i});
  }
  check_complete();
}

const Item& ItemIndex::at(Place place) const {
  return schedule_.order[static_cast<size_t>(place.stage)][static_cast<size_t>(place.index)];
}

int ItemIndex::position(Place place) const {
  return position_of(schedule_.placement, schedule_.stages(), place.stage, at(place).chunk);
}

std::vector<Place> ItemIndex::waits_for(Place place) const {
  const Item& item = at(place);
  const int here = position(place);
  std::vector<Place> needs;
  if (item.pass == Pass::F) {
    if (here > 0) needs.push_back(find(Pass::F, here - 1, item.mb));
    return needs;
  }
  needs.push_back(find(Pass::F, here, item.mb));
  if (item.pass == Pass::W) {
    needs.push_back(find(Pass::B, here, item.mb));
  } else if (here + 1 < schedule_.positions()) {
    needs.push_back(find(Pass::B, here + 1, item.mb));
  }
  return needs;
}

std::uint64_t ItemIndex::key(Pass pass, int position, int mb) const {
  const std::uint64_t kind = pass == Pass::F ? 0 : pass == Pass::W ? 2 : 1;  // BW is stored under B
  const auto positions = static_cast<std::uint64_t>(schedule_.positions()),
             mbs = static_cast<std::uint64_t>(schedule_.mbs);
  return (kind * positions + static_cast<std::uint64_t>(position)) * mbs + static_cast<std::uint64_t>(mb);
}

void ItemIndex::add(Place place) {
  const Item& item = at(place);
  if (item.chunk >= 0 && item.mb >= 0 && item.chunk < schedule_.chunks && item.mb < schedule_.mbs &&
      places_.emplace(key(item.pass, position(place), item.mb), place).second)
    return;  // the texts below are made only where a message is needed
  check(item.chunk >= 0 && item.mb >= 0, "schedule: stage {} has a negative chunk or micro-batch in {}", place.stage,
        to_string(item));
  check(item.chunk < schedule_.chunks && item.mb < schedule_.mbs,
        "schedule: stage {} has {}, but chunks end before {}, micro-batches before {}", place.stage, to_string(item),
        schedule_.chunks, schedule_.mbs);
  throw InternalError(fmt::format("schedule: stage {} runs {} twice", place.stage, to_string(item)));
}

void ItemIndex::check_complete() const {
  for (int mb = 0; mb < schedule_.mbs; ++mb) {
    for (int here = 0; here < schedule_.positions(); ++here) {
      find(Pass::F, here, mb);
      const Place back = find(Pass::B, here, mb);
      const bool split = at(back).pass == Pass::B;
      if (split) find(Pass::W, here, mb);
      check(split || !places_.contains(key(Pass::W, here, mb)),
            "schedule: stage {} runs W{} after BW{}, which has the weight gradient", back.stage, mb, mb);
    }
  }
}

Place ItemIndex::find(Pass pass, int position, int mb) const {
  const auto found = places_.find(key(pass, position, mb));
  if (found != places_.end()) return found->second;
  throw InternalError(fmt::format(
      "schedule: stage {} never runs {}{}", stage_of(schedule_.placement, schedule_.stages(), position),
      to_string(Item{pass, position / std::max(1, schedule_.stages()), mb}), pass == Pass::B ? " (or BW)" : ""));
}

void run_in_order(const ItemIndex& index, const std::function<void(Place)>& visit) {
  const Order& order = index.schedule().order;
  const int stages = index.schedule().stages();
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
      for (int& at = next[static_cast<size_t>(stage)]; at < static_cast<int>(order[static_cast<size_t>(stage)].size());
           ++at) {
        if (!ready(stage)) {
          stuck = stage;
          break;
        }
        visit({stage, at});
        moved = true;
      }
    }
  }
  check(!stuck, "schedule: the order deadlocks: {}", stuck ? cycle(index, next, *stuck) : "");
}

}  // namespace switchyard::schedule
