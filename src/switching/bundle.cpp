#include "switching/bundle.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace switchyard::switching {

std::vector<Bundle> bundles(std::span<const TensorSlice> slices) {
  std::map<std::tuple<std::vector<int>, std::vector<int>, std::vector<int>>, size_t> known;
  std::vector<Bundle> result;
  for (const auto& [tensor, slice] : slices) {
    const auto [at, fresh] = known.try_emplace({slice.holders, slice.partials, slice.takers}, result.size());
    if (fresh) result.push_back({.holders = slice.holders, .partials = slice.partials, .takers = slice.takers});
    Bundle& bundle = result[at->second];
    bundle.pieces.push_back({tensor, slice.box, bundle.elements});
    bundle.elements += slice.box.elements();
  }
  return result;
}

void add_messages(const BundleRange& range, std::vector<layout::Msg>& messages) {
  const Bundle& bundle = *range.bundle;
  auto piece = std::upper_bound(bundle.pieces.begin(), bundle.pieces.end(), range.begin,
                                [](i64 at, const Piece& p) { return at < p.start; });
  if (piece != bundle.pieces.begin()) --piece;
  for (; piece != bundle.pieces.end() && piece->start < range.end; ++piece) {
    const i64 rows = piece->box.size(0);
    const i64 width = piece->box.elements() / rows;
    const auto row = [&](i64 at) {
      return std::clamp((2 * std::max<i64>(at - piece->start, 0) + width) / (2 * width), i64{0}, rows);
    };
    layout::Box box = piece->box;
    box.lo[0] = piece->box.lo[0] + row(range.begin);
    box.hi[0] = piece->box.lo[0] + row(range.end);
    if (!box.empty()) messages.push_back({.src = range.src, .dst = range.dst, .tensor = piece->tensor, .box = box});
  }
}

}  // namespace switchyard::switching
