// The largest elements of each block.

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/bfloat16.hpp"
#include "codecs/block_codecs.hpp"

namespace switchyard::codecs {

// Sorted by magnitude, then by place: both in one number, so that the order is one of integers.
template <int OneOf>
void TopBlock<OneOf>::encode(const float* x, i64 n, std::byte* to) {
  std::array<std::uint64_t, kBlock> order;
  for (size_t i = 0; i < kBlock; ++i)
    order[i] = static_cast<std::uint64_t>(std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffU) << 8 | (255 - i);
  const auto count = static_cast<std::ptrdiff_t>(kept(n));
  std::nth_element(order.begin(), order.begin() + count - 1, order.begin() + n, std::greater<>());
  std::array<bool, kBlock> chosen{};
  for (std::ptrdiff_t i = 0; i < count; ++i) chosen[255 - (order[static_cast<size_t>(i)] & 255)] = true;
  i64 at = 0;
  for (size_t place = 0; place < kBlock; ++place) {
    if (!chosen[place]) continue;
    const std::uint16_t value = bfloat16_bits(x[place]);
    to[at] = static_cast<std::byte>(place);
    std::memcpy(to + count + 2 * at++, &value, sizeof value);
  }
}

template <int OneOf>
void TopBlock<OneOf>::decode(const std::byte* from, i64 n, float* x) {
  std::fill(x, x + n, 0.0F);
  const i64 count = kept(n);
  for (i64 i = 0; i < count; ++i) {
    std::uint16_t value;
    std::memcpy(&value, from + count + 2 * i, sizeof value);
    x[static_cast<size_t>(from[i])] = bfloat16_value(value);
  }
}

template struct TopBlock<32>;
template struct TopBlock<128>;

}  // namespace switchyard::codecs
