#include "codecs/codec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "../message_of.hpp"
#include "base/bfloat16.hpp"
#include "base/errors.hpp"
#include "codecs/block_codecs.hpp"
#include "test_numbers.hpp"

namespace switchyard::codecs {
namespace {

using ::testing::HasSubstr;

const std::vector<i64> kCounts = {0, 1, 2, 3, 4, 5, 31, 63, 64, 65, 127, 255, 256, 257, 1000, 65536, 65537, 131075};

std::vector<Codec> all_codecs() {
  std::vector<Codec> all;
  for (int i = 0; i < kCodecs; ++i) all.push_back(static_cast<Codec>(i));
  return all;
}

TEST(Codec, every_message_of_a_fixed_rate_has_exactly_the_bytes_that_were_said) {
  for (const Codec codec : all_codecs())
    for (const i64 n : kCounts) {
      std::vector<float> x = random_numbers(n, 1);
      std::vector<std::byte> message(static_cast<size_t>(encoded_bytes(codec, DType::f32, n)) + 1, std::byte{0xA5});
      const i64 written = encode(codec, matrix(x), message);
      if (codec == Codec::lossless)
        EXPECT_LE(written + 1, static_cast<i64>(message.size())) << n;
      else
        EXPECT_EQ(written + 1, static_cast<i64>(message.size())) << name_of(codec) << " of " << n;
      EXPECT_EQ(message.back(), std::byte{0xA5}) << name_of(codec) << " writes beyond its bytes";
    }
}

TEST(Codec, sizes_are_those_of_the_format) {
  const auto of_f32 = [](Codec codec, i64 n) { return encoded_bytes(codec, DType::f32, n); };
  EXPECT_EQ(of_f32(Codec::none, 1000), 4000);
  EXPECT_EQ(encoded_bytes(Codec::none, DType::bf16, 1000), 2000);
  EXPECT_EQ(of_f32(Codec::bf16, 1001), 2002);
  EXPECT_EQ(of_f32(Codec::int8, 64), 66);
  EXPECT_EQ(of_f32(Codec::int8, 65), 66 + 3);
  EXPECT_EQ(of_f32(Codec::fp8, 1000), 15 * 66 + 2 + 40);
  EXPECT_EQ(of_f32(Codec::int4, 67), 34 + 2 + 2);
  EXPECT_EQ(of_f32(Codec::zfp16, 10), 3 * 8);
  EXPECT_EQ(of_f32(Codec::zfp8, 10), 3 * 4);
  EXPECT_EQ(of_f32(Codec::top_32, 256), 24);
  EXPECT_EQ(of_f32(Codec::top_32, 257), 24 + 3);
  EXPECT_EQ(of_f32(Codec::top_128, 256), 6);
  EXPECT_EQ(of_f32(Codec::top_128, 256 + 129), 6 + 6);
  EXPECT_EQ(of_f32(Codec::lossless, 65536), 65536 * 4 + 4);
  EXPECT_EQ(of_f32(Codec::lossless, 65537), 65537 * 4 + 2 * 4);
}

TEST(Codec, a_matrix_with_gaps_between_its_rows_makes_the_message_of_its_elements_in_order) {
  for (const Codec codec : all_codecs())
    for (const i64 columns : {1, 3, 64, 100}) {
      const i64 rows = 37, stride = columns + 5;
      std::vector<float> wide = random_numbers(rows * stride, 2), dense;
      for (i64 row = 0; row < rows; ++row)
        dense.insert(dense.end(), wide.begin() + row * stride, wide.begin() + row * stride + columns);
      const auto strided_in = [&](std::vector<float>& all) {
        return Elements{
            .data = reinterpret_cast<std::byte*>(all.data()), .rows = rows, .columns = columns, .stride = stride};
      };
      const Elements strided = strided_in(wide);
      EXPECT_EQ(encoded(codec, strided), encoded(codec, matrix(dense))) << name_of(codec) << ' ' << columns;

      for (const bool summed : {false, true}) {
        std::vector<float> back(wide.size(), 7), flat(dense.size(), 7);
        const std::vector<std::byte> message = encoded(codec, strided);
        decode(codec, message, strided_in(back), summed);
        decode(codec, message, matrix(flat), summed);
        for (i64 row = 0; row < rows; ++row)
          for (i64 column = 0; column < stride; ++column)
            EXPECT_EQ(bits_of(back[static_cast<size_t>(row * stride + column)]),
                      bits_of(column < columns ? flat[static_cast<size_t>(row * columns + column)] : 7.0F))
                << name_of(codec);
      }
    }
}

TEST(Codec, decoding_and_adding_is_decoding_then_adding_in_the_precision_of_the_sum) {
  for (const Codec codec : all_codecs()) {
    std::vector<float> x = random_numbers(1000, 3), decoded(1000), sum = random_numbers(1000, 4), expected = sum;
    const std::vector<std::byte> message = encoded(codec, matrix(x));
    decode(codec, message, matrix(decoded), false);
    decode(codec, message, matrix(sum), true);
    for (size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], expected[i] + decoded[i]) << name_of(codec);
  }
}

TEST(Codec, a_sum_in_bf16_is_made_in_fp32_and_rounded_once) {
  std::vector<float> x = {1 + 0x1p-6F, 1};
  for (const Codec codec : {Codec::int8, Codec::zfp16}) {
    std::vector<std::uint16_t> sum = {bfloat16_bits(256), bfloat16_bits(256)};
    std::vector<float> decoded(2);
    const std::vector<std::byte> message = encoded(codec, matrix(x));
    decode(codec, message, matrix(decoded), false);
    decode(codec, message, matrix(sum, DType::bf16), true);
    for (size_t i = 0; i < 2; ++i)
      EXPECT_EQ(bfloat16_value(sum[i]), bfloat16_value(bfloat16_bits(256 + decoded[i]))) << name_of(codec);
  }
}

TEST(Codec, fp64_elements_travel_as_fp32_numbers_and_their_sum_keeps_its_bits) {
  std::vector<double> x = {0.5, -0.25, 1}, sum(3, 1 + 0x1p-40);
  decode(Codec::int8, encoded(Codec::int8, matrix(x, DType::f64)), matrix(sum, DType::f64), true);
  EXPECT_NEAR(sum[2], 2, 0.01);
  EXPECT_NE(sum[2], static_cast<double>(static_cast<float>(sum[2])));
}

TEST(Codec, bf16_is_exact_for_bf16_elements) {
  std::vector<std::uint16_t> x, back(65536);
  for (int i = 0; i < 65536; ++i) x.push_back(static_cast<std::uint16_t>(i));
  decode(Codec::bf16, encoded(Codec::bf16, matrix(x, DType::bf16)), matrix(back, DType::bf16), false);
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_TRUE(back[i] == x[i] || (std::isnan(bfloat16_value(x[i])) && std::isnan(bfloat16_value(back[i])))) << i;
}

TEST(Codec, exact_are_those_that_change_no_element) {
  EXPECT_TRUE(is_exact(Codec::none, DType::f32));
  EXPECT_TRUE(is_exact(Codec::lossless, DType::f32));
  EXPECT_TRUE(is_exact(Codec::bf16, DType::bf16));
  EXPECT_FALSE(is_exact(Codec::bf16, DType::f32));
  EXPECT_FALSE(is_exact(Codec::int8, DType::bf16));
}

TEST(Codec, what_fills_a_short_block_is_not_seen_in_its_elements) {
  for (const Codec codec : {Codec::fp8, Codec::int8, Codec::int4, Codec::zfp16}) {
    std::vector<float> x = {0x1p-10F}, back(1);
    decode(codec, encoded(codec, matrix(x)), matrix(back), false);
    EXPECT_NEAR(back[0], x[0], 0x1p-15F) << name_of(codec);
  }
}

TEST(Codec, what_is_not_finite_does_not_become_finite) {
  for (const Codec codec : all_codecs())
    for (const float odd : {std::nanf(""), -std::numeric_limits<float>::infinity()})
      for (const size_t at : {size_t{0}, size_t{70}, size_t{99}}) {
        std::vector<float> x = random_numbers(100, 5);
        x[at] = odd;
        std::vector<float> back(x.size());
        decode(codec, encoded(codec, matrix(x)), matrix(back), false);
        EXPECT_FALSE(std::isfinite(back[at])) << name_of(codec) << " at " << at;
      }
}

TEST(Codec, a_residual_gets_what_was_lost_and_gives_it_to_the_next_message) {
  for (const Codec codec : {Codec::int4, Codec::int8, Codec::top_32, Codec::top_128, Codec::zfp8}) {
    const i64 n = 1000;
    std::vector<float> residual(static_cast<size_t>(n)), sum_sent(static_cast<size_t>(n));
    std::vector<double> sum_meant(static_cast<size_t>(n));
    for (unsigned step = 0; step < 8; ++step) {
      std::vector<float> x = random_numbers(n, 100 + step), sent(static_cast<size_t>(n));
      const std::vector<float> before = residual;
      std::vector<std::byte> message(static_cast<size_t>(encoded_bytes(codec, DType::f32, n)));
      const Elements kept = matrix(residual);
      encode(codec, matrix(x), message, &kept);
      decode(codec, message, matrix(sent), false);
      for (size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(residual[i], x[i] + before[i] - sent[i]);
        sum_sent[i] += sent[i];
        sum_meant[i] += x[i];
      }
    }
    for (size_t i = 0; i < sum_sent.size(); ++i) EXPECT_NEAR(sum_sent[i] + residual[i], sum_meant[i], 1e-4);
  }
}

TEST(Codec, a_residual_stays_finite_where_the_message_is_not) {
  std::vector<float> x = random_numbers(64, 6), residual(64, 1);
  x[3] = std::nanf("");
  std::vector<std::byte> message(66);
  const Elements kept = matrix(residual);
  encode(Codec::int8, matrix(x), message, &kept);
  for (const float lost : residual) EXPECT_EQ(lost, 0);
}

TEST(Codec, an_fp64_residual_does_the_same) {
  std::vector<double> x = {1, 0.3, -0.7}, residual(3), back(3);
  std::vector<std::byte> message(5);
  const Elements kept = matrix(residual, DType::f64);
  encode(Codec::int8, matrix(x, DType::f64), message, &kept);
  decode(Codec::int8, message, matrix(back, DType::f64), false);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(residual[i], static_cast<double>(static_cast<float>(x[i])) - back[i]);
}

TEST(Codec, messages_of_another_size_are_refused) {
  std::vector<float> x = random_numbers(100, 7);
  for (const Codec codec : all_codecs()) {
    std::vector<std::byte> message = encoded(codec, matrix(x)), small(message.size() - 1);
    if (codec != Codec::lossless) {
      EXPECT_THROW(encode(codec, matrix(x), small), InternalError) << name_of(codec);
    }
    message.pop_back();
    EXPECT_THROW(decode(codec, message, matrix(x), false), InternalError) << name_of(codec);
    message.resize(message.size() + 2);
    EXPECT_THROW(decode(codec, message, matrix(x), false), InternalError) << name_of(codec);
  }
}

TEST(Codec, rows_of_no_columns_make_a_message_of_no_bytes) {
  const Elements nothing{.data = nullptr, .rows = 3, .columns = 0, .stride = 5};
  for (const Codec codec : all_codecs()) {
    EXPECT_EQ(encode(codec, nothing, {}), 0) << name_of(codec);
    EXPECT_NO_THROW(decode(codec, {}, nothing, false)) << name_of(codec);
  }
}

TEST(Codec, integers_are_no_elements_of_messages) {
  std::vector<float> x(4);
  std::vector<std::byte> message(64);
  try {
    encode(Codec::int8, matrix(x, DType::i32), message);
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("i32 is no type of messages"));
  }
}

TEST(Codec, a_residual_may_have_other_rows_than_the_elements) {
  std::vector<float> x = random_numbers(300, 8), dense(300), wide(10 * 35);
  std::vector<std::byte> message(static_cast<size_t>(encoded_bytes(Codec::top_32, DType::f32, 300)));
  const Elements flat = matrix(dense);
  encode(Codec::top_32, matrix(x), message, &flat);
  const Elements rows{.data = reinterpret_cast<std::byte*>(wide.data()), .rows = 10, .columns = 30, .stride = 35};
  encode(Codec::top_32, matrix(x), message, &rows);
  for (size_t i = 0; i < 300; ++i) EXPECT_EQ(wide[i / 30 * 35 + i % 30], dense[i]);
  std::vector<float> small(299);
  const Elements other = matrix(small);
  EXPECT_THROW(encode(Codec::top_32, matrix(x), message, &other), InternalError);
}

// It has room for fp32, so that only the check notices.
TEST(Codec, a_bf16_residual_is_refused) {
  std::vector<float> x = random_numbers(64, 9), room(64);
  std::vector<std::byte> message(66);
  const Elements kept = matrix(room, DType::bf16);
  EXPECT_EQ(message_of<InternalError>([&] { encode(Codec::int8, matrix(x), message, &kept); }),
            "codecs: a residual of 64 bf16 elements for 64");
}

TEST(Codec, only_top_codecs_send_the_largest_elements_alone) {
  for (int i = 0; i < kCodecs; ++i) {
    const auto codec = static_cast<Codec>(i);
    EXPECT_EQ(keeps_largest(codec), name_of(codec).starts_with("top-")) << name_of(codec);
  }
}

TEST(Codec, elements_of_a_block) {
  EXPECT_EQ(block_elements(Codec::lossless), 1);
  EXPECT_EQ(block_elements(Codec::bf16), 1);
  EXPECT_EQ(block_elements(Codec::int8), 64);
  EXPECT_EQ(block_elements(Codec::zfp8), 4);
  EXPECT_EQ(block_elements(Codec::top_128), 256);
}

}  // namespace
}  // namespace switchyard::codecs
