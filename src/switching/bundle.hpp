// Bundles: slices of several tensors with the same holders and takers, concatenated, so that the ranks share them as
// one.
#pragma once

#include <span>
#include <vector>

#include "layout/messages.hpp"
#include "layout/slices.hpp"

namespace switchyard::switching {

/// A slice of a tensor (index within its unit).
struct TensorSlice {
  int tensor = 0;
  layout::Slice slice;
};

/// A box in a bundle and the number of elements before it.
struct Piece {
  int tensor = 0;
  layout::Box box;
  i64 start = 0;
};

struct Bundle {
  std::vector<int> holders, partials, takers;  // same as in layout::Slice
  std::vector<Piece> pieces{};
  i64 elements = 0;
};

/// Elements [begin, end) of a bundle on their way.
struct BundleRange {
  int src = 0, dst = 0;
  const Bundle* bundle = nullptr;
  i64 begin = 0, end = 0;
};
using RangeRounds = std::vector<std::vector<BundleRange>>;

/// Joins slices with equal holders, partials and takers, in order of first appearance.
std::vector<Bundle> bundles(std::span<const TensorSlice> slices);

/// Adds a range's messages. Its ends are rounded to rows of the boxes, so that adjacent ranges give adjacent messages.
void add_messages(const BundleRange& range, std::vector<layout::Msg>& messages);

}  // namespace switchyard::switching
