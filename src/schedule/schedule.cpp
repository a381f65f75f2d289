#include "schedule/schedule.hpp"

#include <algorithm>

#include "base/errors.hpp"
#include "schedule/item_index.hpp"

namespace switchyard::schedule {
namespace {

// The schedule whose stage s runs ahead[s] forwards before its first backward, then backward and forward in turn.
Schedule with_forwards_ahead(int mbs, const std::vector<int>& ahead) {
  Schedule made;
  made.mbs = mbs;
  for (const int forwards : ahead) {
    std::vector<Item>& items = made.order.emplace_back();
    for (int mb = 0; mb < forwards; ++mb) items.push_back({Pass::F, 0, mb});
    for (int mb = 0; mb < mbs; ++mb) {
      items.push_back({Pass::BW, 0, mb});
      if (forwards + mb < mbs) items.push_back({Pass::F, 0, forwards + mb});
    }
  }
  return made;
}

void check_sizes(int stages, int mbs) {
  check(stages >= 1 && mbs >= 0, "schedule: {} stages and {} micro-batches", stages, mbs);
}

}  // namespace

int position_of(Placement placement, int stages, int stage, int chunk) {
  const bool back = placement == Placement::v && chunk % 2 == 1;
  return chunk * stages + (back ? stages - 1 - stage : stage);
}

int stage_of(Placement placement, int stages, int position) {
  const bool back = placement == Placement::v && position / stages % 2 == 1;
  return back ? stages - 1 - position % stages : position % stages;
}

std::string_view name_of(Placement placement) { return placement == Placement::loop ? "loop" : "v"; }

Schedule gpipe(int stages, int mbs) {
  check_sizes(stages, mbs);
  return with_forwards_ahead(mbs, std::vector(static_cast<size_t>(stages), mbs));
}

Schedule one_f_one_b(int stages, int mbs) {
  check_sizes(stages, mbs);
  std::vector<int> ahead;
  for (int stage = 0; stage < stages; ++stage) ahead.push_back(std::min(mbs, stages - stage));
  return with_forwards_ahead(mbs, ahead);
}

void verify(const Schedule& schedule) {
  run_in_order(ItemIndex(schedule), [](Place) {});
}

void verify(const Order& order) {
  Schedule schedule{.order = order};
  for (const std::vector<Item>& items : order) {
    for (const Item& item : items) {
      schedule.chunks = std::max(schedule.chunks, item.chunk + 1);
      schedule.mbs = std::max(schedule.mbs, item.mb + 1);
    }
  }
  verify(schedule);
}

std::vector<int> peak_in_flight(const Order& order) {
  std::vector<int> peaks;
  for (const Bytes peak : peak_bytes(order, Bytes{1}, Bytes{0})) peaks.push_back(static_cast<int>(peak.count));
  return peaks;
}

std::vector<Bytes> peak_bytes(const Order& order, Bytes activation, Bytes gradient) {
  std::vector<Bytes> peaks;
  for (const std::vector<Item>& items : order) {
    Bytes alive, peak;
    for (const Item& item : items) {
      if (item.pass == Pass::F) alive += activation;
      if (item.pass == Pass::B || item.pass == Pass::BW) alive += gradient;
      peak = std::max(peak, alive);
      if (item.pass == Pass::BW || item.pass == Pass::W) alive -= activation + gradient;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

std::string to_string(const Item& item) {
  return item.chunk == 0 ? fmt::format("{}{}", name_of(item.pass), item.mb)
                         : fmt::format("{}{}.{}", name_of(item.pass), item.mb, item.chunk);
}

std::string to_string(const std::vector<Item>& items) {
  std::string text;
  for (const Item& item : items) text += (text.empty() ? "" : " ") + to_string(item);
  return text;
}

}  // namespace switchyard::schedule
