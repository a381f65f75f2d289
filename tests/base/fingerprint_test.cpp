#include "base/fingerprint.hpp"

#include <gtest/gtest.h>

#include <array>

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

TEST(Fingerprint, bytes_are_added_as_they_are) {
  Fingerprint bytes, number;
  const std::array<std::byte, 8> eight{std::byte{7}};
  bytes.add(eight);
  number.add(i64{7});
  EXPECT_EQ(bytes.value(), number.value());
}

}  // namespace
}  // namespace switchyard
