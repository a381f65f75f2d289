#include <gtest/gtest.h>

#include <array>

#include "test_numbers.hpp"

namespace switchyard::codecs {
namespace {

// zfpy 1.0.1: compress_numpy(x, rate=rate, write_header=False) of these blocks, and decompress_numpy of that.
const std::vector<float> kBlocks = {1,    -2,   3.5F,        0.125F, 0,  0, 0,  0, 1e-3F,      -7e5F,   3e38F, -1e-30F,
                                    0.1F, 0.2F, 0.30000001F, 0.4F,   -1, 1, -1, 1, 123456.78F, -0.001F, 9e-8F, 5e20F};
constexpr std::array<unsigned char, 24> kRate8 = {0x03, 0x89, 0xc8, 0xbe, 0x00, 0x00, 0x00, 0x00,
                                                  0xff, 0x89, 0x56, 0x6d, 0xfd, 0xec, 0x04, 0x49,
                                                  0x01, 0x85, 0x0a, 0x00, 0x89, 0xe9, 0x1e, 0xe9};
constexpr std::array<unsigned char, 48> kRate16 = {
    0x03, 0x89, 0xc8, 0xbe, 0x2d, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0xff, 0x89, 0x56, 0x6d, 0x95, 0x6a, 0xf8, 0xea, 0xfd, 0xec, 0x04, 0x49, 0x90, 0x04, 0x49, 0x90,
    0x01, 0x85, 0x0a, 0x00, 0x00, 0x00, 0x00, 0x00, 0x89, 0xe9, 0x1e, 0xe9, 0xbd, 0x91, 0x1e, 0xe9};

template <size_t N>
std::vector<std::byte> bytes_of(const std::array<unsigned char, N>& stream) {
  std::vector<std::byte> bytes;
  for (const unsigned char byte : stream) bytes.push_back(std::byte{byte});
  return bytes;
}

TEST(Zfp, the_stream_is_libzfps) {
  std::vector<float> x = kBlocks;
  EXPECT_EQ(encoded(Codec::zfp8, matrix(x)), bytes_of(kRate8));
  EXPECT_EQ(encoded(Codec::zfp16, matrix(x)), bytes_of(kRate16));
}

// Bit 0: not all zeros; then 8 bits of the exponent and its bias of 127.
TEST(Zfp, the_exponent_of_a_block_is_at_least_that_of_normal_numbers) {
  std::vector<float> x(4, 1e-40F);
  EXPECT_EQ(std::to_integer<int>(encoded(Codec::zfp8, matrix(x))[0]), 1 + 2 * (-126 + 127));
}

TEST(Zfp, decoding_gives_libzfps_numbers) {
  const std::vector<float> at8 = {
      0x1.ep-1F,    -0x1.08p+1F, 0x1.d8p+1F, 0x1.8p-3F,  0,          0,          0,  0, -0x1p+121F, -0x1.8p+122F,
      0x1.ccp+127F, 0x1p+121F,   0x1.9p-4F,  0x1.98p-3F, 0x1.34p-2F, 0x1.9cp-2F, -1, 1, -1,         1,
      -0x1p+63F,    0x1p+63F,    -0x1p+63F,  0x1.c8p+68F};
  const std::vector<float> at16 = {1,
                                   -2,
                                   3.5F,
                                   0.125F,
                                   0,
                                   0,
                                   0,
                                   0,
                                   -0x1p+113F,
                                   -0x1.cp+115F,
                                   0x1.c36cp+127F,
                                   0x1.4p+115F,
                                   0x1.9996p-4F,
                                   0x1.9999p-3F,
                                   0x1.33338p-2F,
                                   0x1.999a8p-2F,
                                   -1,
                                   1,
                                   -1,
                                   1,
                                   -0x1p+55F,
                                   0x1p+55F,
                                   -0x1p+55F,
                                   0x1.b1c8p+68F};
  EXPECT_EQ(there_and_back(Codec::zfp8, kBlocks), at8);
  EXPECT_EQ(there_and_back(Codec::zfp16, kBlocks), at16);
}

TEST(Zfp, the_error_keeps_to_its_bound) {
  for (const std::vector<float>& x : hard_blocks())
    for (size_t first = 0; first < x.size(); first += 4) {
      const std::vector<float> block(x.begin() + static_cast<std::ptrdiff_t>(first),
                                     x.begin() + static_cast<std::ptrdiff_t>(first) + 4);
      const double a = largest_of(block);
      const std::vector<float> at16 = there_and_back(Codec::zfp16, block), at8 = there_and_back(Codec::zfp8, block);
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_LE(std::fabs(at16[i] - block[i]), a / 64 + 0x1p-149) << block[i];
        EXPECT_LE(std::fabs(at8[i] - block[i]), 4 * a + 0x1p-149) << block[i];
      }
    }
}

TEST(Zfp, smooth_numbers_lose_little) {
  std::vector<float> x;
  for (int i = 0; i < 1024; ++i) x.push_back(std::sin(static_cast<float>(i) / 40));
  const std::vector<float> at16 = there_and_back(Codec::zfp16, x), at8 = there_and_back(Codec::zfp8, x);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(at16[i], x[i], 1e-3);
    EXPECT_NEAR(at8[i], x[i], 0.04);
  }
}

}  // namespace
}  // namespace switchyard::codecs
