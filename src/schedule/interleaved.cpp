#include "schedule/interleaved.hpp"

#include <algorithm>

#include "base/errors.hpp"

namespace switchyard::schedule {
namespace {

/// Sizes of the groups: at least `stages` each, so that a chunk's outputs are back at stage 0 when that stage continues
/// with the group, and as even as possible.
std::vector<int> group_sizes(int stages, int mbs) {
  const int groups = std::max(1, mbs / stages);
  std::vector<int> sizes;
  for (int group = 0; group < groups; ++group) sizes.push_back(mbs / groups + (group < mbs % groups ? 1 : 0));
  return sizes;
}

/// A stage's items of one kind in their order, the same on all stages.
std::vector<Item> items_of(Pass pass, const std::vector<int>& sizes, int chunks) {
  std::vector<Item> items;
  int first = 0;
  for (const int size : sizes) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int mb = first; mb < first + size; ++mb)
        items.push_back({pass, pass == Pass::F ? chunk : chunks - 1 - chunk, mb});
    }
    first += size;
  }
  return items;
}

}  // namespace

Schedule interleaved(int stages, int mbs, int chunks) {
  check(stages >= 1 && mbs >= 0 && chunks >= 1, "schedule: {} stages, {} micro-batches and {} chunks", stages, mbs,
        chunks);
  if (chunks == 1) return one_f_one_b(stages, mbs);
  const std::vector<int> sizes = group_sizes(stages, mbs);
  const std::vector<Item> forwards = items_of(Pass::F, sizes, chunks), backwards = items_of(Pass::BW, sizes, chunks);
  const size_t all = forwards.size();
  Schedule made{.order = {}, .mbs = mbs, .chunks = chunks};
  for (int stage = 0; stage < stages; ++stage) {
    const size_t lead = mbs <= stages ? all : static_cast<size_t>(2 * (stages - 1 - stage) + (chunks - 1) * sizes[0]);
    const size_t ahead = std::min(all, lead);
    std::vector<Item> items(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(ahead));
    for (size_t i = ahead; i < all; ++i) {
      items.push_back(forwards[i]);
      items.push_back(backwards[i - ahead]);
    }
    items.insert(items.end(), backwards.end() - static_cast<std::ptrdiff_t>(ahead), backwards.end());
    made.order.push_back(std::move(items));
  }
  return made;
}

}  // namespace switchyard::schedule
