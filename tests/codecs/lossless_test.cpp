#include "codecs/lossless.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/errors.hpp"
#include "test_numbers.hpp"

namespace switchyard::codecs {
namespace {

using ::testing::HasSubstr;

template <class T>
void expect_same_bits(std::vector<T> x, DType type) {
  std::vector<T> back(x.size());
  decode(Codec::lossless, encoded(Codec::lossless, matrix(x, type)), matrix(back, type), false);
  EXPECT_EQ(std::memcmp(x.data(), back.data(), x.size() * sizeof(T)), 0);
}

TEST(Lossless, every_bit_comes_back) {
  std::vector<float> odd = {0.0F,
                            -0.0F,
                            1e-45F,
                            -1e-40F,
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::max()};
  for (const std::uint32_t nan : {0x7fc00000U, 0x7f800001U, 0xffc12345U, 0xffffffffU})
    odd.push_back(std::bit_cast<float>(nan));
  expect_same_bits(odd, DType::f32);
  std::vector<float> many = random_numbers(200001, 1);
  for (size_t i = 0; i < many.size(); i += 100) many[i] = odd[i / 100 % odd.size()];
  expect_same_bits(many, DType::f32);
}

TEST(Lossless, elements_of_every_type_and_of_any_bits_come_back) {
  std::mt19937_64 random(5);
  std::vector<std::uint64_t> wide(70000);
  for (std::uint64_t& bits : wide) bits = random();
  expect_same_bits(wide, DType::f64);
  std::vector<std::uint16_t> halves(70001);
  for (std::uint16_t& bits : halves) bits = static_cast<std::uint16_t>(random());
  expect_same_bits(halves, DType::bf16);
}

TEST(Lossless, numbers_of_similar_size_take_fewer_bytes_and_noise_takes_none_more_than_the_bound) {
  std::vector<float> x = random_numbers(100000, 2);
  EXPECT_LT(encoded(Codec::lossless, matrix(x)).size(), x.size() * 4 * 94 / 100);
  std::mt19937 random(3);
  for (float& value : x) value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  EXPECT_EQ(static_cast<i64>(encoded(Codec::lossless, matrix(x)).size()), lossless_bound(DType::f32, 100000));
  const std::vector<std::byte> zeros = encoded(Codec::lossless, matrix(x = std::vector<float>(100000)));
  EXPECT_LT(zeros.size(), 1000u);
}

TEST(Lossless, adding_has_the_bits_of_adding_the_elements) {
  std::vector<float> x = random_numbers(1000, 3), sum = random_numbers(1000, 4), expected = sum;
  decode(Codec::lossless, encoded(Codec::lossless, matrix(x)), matrix(sum), true);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(sum[i], expected[i] + x[i]);
}

TEST(Lossless, a_damaged_message_is_refused) {
  std::vector<float> x = random_numbers(1000, 6), back(1000);
  const std::vector<std::byte> message = encoded(Codec::lossless, matrix(x));
  const auto refusal = [&](std::vector<std::byte> damaged) -> std::string {
    try {
      decode(Codec::lossless, damaged, matrix(back), false);
    } catch (const InternalError& error) {
      return error.what();
    }
    return "";
  };
  std::vector<std::byte> damaged = message;
  damaged[1] = std::byte{0xff};
  EXPECT_THAT(refusal(damaged), HasSubstr("ends within element 0"));
  damaged = message;
  damaged[4] = ~damaged[4];
  EXPECT_THAT(refusal(damaged), HasSubstr("can't be decompressed"));
  for (const size_t bytes : {size_t{0}, size_t{3}, message.size() - 1}) {
    damaged = std::vector(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(bytes));
    EXPECT_THAT(refusal(damaged), HasSubstr("ends within element 0")) << bytes;
  }
  damaged = message;
  damaged.push_back(std::byte{0});
  EXPECT_THAT(refusal(damaged), HasSubstr("more than its 1000 elements"));
}

}  // namespace
}  // namespace switchyard::codecs
