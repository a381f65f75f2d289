#include "base/fingerprint.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace switchyard {
namespace {

constexpr std::uint64_t kPrime = 0x100000001b3u;

template <class... Parts>
std::uint64_t fingerprint_of(const Parts&... parts) {
  Fingerprint made;
  (made.add(parts), ...);
  return made.value();
}

TEST(Fingerprint, is_the_published_hash_of_the_text_and_a_zero_byte) {
  // Published: "a" and "foobar". A zero byte only multiplies.
  EXPECT_EQ(fingerprint_of("a"), 0xaf63dc4c8601ec8cu * kPrime);
  EXPECT_EQ(fingerprint_of("foobar"), 0x85944171f73967e8u * kPrime);
}

TEST(Fingerprint, pieces_of_text_do_not_run_together) {
  EXPECT_NE(fingerprint_of("ab", "c"), fingerprint_of("a", "bc"));
}

TEST(Fingerprint, a_number_is_its_eight_bytes) {
  EXPECT_EQ(fingerprint_of(i64{'a'}),
            0xaf63dc4c8601ec8cu * kPrime * kPrime * kPrime * kPrime * kPrime * kPrime * kPrime);
  EXPECT_NE(fingerprint_of(i64{1} << 56), fingerprint_of(i64{0}));
  EXPECT_NE(fingerprint_of(i64{1}, i64{2}), fingerprint_of(i64{2}, i64{1}));
}

std::uint64_t sample_of(const std::vector<std::byte>& bytes) {
  Fingerprint made;
  made.add_sample(bytes);
  return made.value();
}

TEST(Fingerprint, a_sample_has_the_size_both_ends_and_all_of_a_short_text) {
  for (const size_t size : {1u, 65536u, 65537u, 10'000'000u}) {
    std::vector<std::byte> bytes(size);
    const std::uint64_t zeros = sample_of(bytes);
    for (const size_t at : {size_t{0}, size - 1, std::min<size_t>(size - 1, 40'000)}) {
      if (at == 40'000 && size > 65536) continue;
      bytes[at] = std::byte{1};
      EXPECT_NE(sample_of(bytes), zeros) << size << " bytes, changed at " << at;
      bytes[at] = std::byte{0};
    }
    bytes.push_back(std::byte{0});
    EXPECT_NE(sample_of(bytes), zeros) << size;
  }
}

TEST(Fingerprint, a_sample_of_a_long_text_has_pieces_that_are_evenly_spread) {
  constexpr size_t kSize = 10'000'000, kEveryAt = kSize / 50;
  std::vector<std::byte> bytes(kSize);
  const std::uint64_t zeros = sample_of(bytes);
  for (size_t first = 0; first < kSize; first += kEveryAt) {
    std::vector<std::byte> other = bytes;
    std::fill_n(other.begin() + static_cast<std::ptrdiff_t>(first), kEveryAt, std::byte{1});
    EXPECT_NE(sample_of(other), zeros) << "changed from " << first << " on";
  }
}

}  // namespace
}  // namespace switchyard
