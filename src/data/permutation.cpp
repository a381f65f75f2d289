#include "data/permutation.hpp"

#include <bit>

#include "base/errors.hpp"
#include "base/random.hpp"

namespace switchyard::data {
Permutation::Permutation(i64 size, std::uint64_t seed, std::uint64_t stream)
    : size_(size), half_bits_((static_cast<int>(std::bit_width(static_cast<std::uint64_t>(size) - 1)) + 1) / 2) {
  check(size >= 1 && size <= i64{1} << 60, "a permutation of {}", size);
  std::uint64_t key = mix(mix(seed) ^ stream);
  for (std::uint64_t& round : keys_) round = key = mix(key);
}

i64 Permutation::operator[](i64 place) const {
  check(place >= 0 && place < size_, "place {} of {}", place, size_);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  auto x = static_cast<std::uint64_t>(place);
  do {
    std::uint64_t left = x >> half_bits_, right = x & mask;
    for (const std::uint64_t key : keys_) {
      const std::uint64_t next = left ^ (mix(right ^ key) & mask);
      left = right;
      right = next;
    }
    x = left << half_bits_ | right;
  } while (x >= static_cast<std::uint64_t>(size_));
  return static_cast<i64>(x);
}

}  // namespace switchyard::data
