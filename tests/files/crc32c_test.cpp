#include "files/crc32c.hpp"

#include <gtest/gtest.h>

#include <string>

namespace switchyard::files {
namespace {

TEST(Crc32c, gives_the_values_of_rfc_3720) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aa);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43);
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i), falling += static_cast<char>(31 - i);
  EXPECT_EQ(crc32c(rising), 0x46dd794e);
  EXPECT_EQ(crc32c(falling), 0x113fdb5c);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(Crc32c, of_any_length_is_that_of_one_byte_after_the_other) {
  std::string text;
  for (int size = 0; size < 70; ++size) {
    std::uint32_t bits = ~std::uint32_t{0};
    for (const char c : text) {
      bits ^= static_cast<unsigned char>(c);
      for (int bit = 0; bit < 8; ++bit) bits = (bits >> 1) ^ ((bits & 1) != 0 ? 0x82f63b78u : 0u);
    }
    EXPECT_EQ(crc32c(text), ~bits) << size;
    EXPECT_EQ(crc32c_by_table(std::as_bytes(std::span(text))), ~bits) << size;
    text += static_cast<char>(31 * size + 7);
  }
}

TEST(Crc32c, masks_by_a_rotation_of_15_bits_and_a_constant) {
  const std::uint32_t plain = crc32c("foo");
  EXPECT_EQ(masked_crc32c("foo"), ((plain >> 15) | (plain << 17)) + 0xa282ead8u);
  EXPECT_NE(masked_crc32c("foo"), plain);
}

}  // namespace
}  // namespace switchyard::files
