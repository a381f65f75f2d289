#include "comm/block.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "../message_of.hpp"
#include "base/errors.hpp"
#include "fabric_suite.hpp"

namespace switchyard::comm {
namespace {

using ::testing::HasSubstr;

template <class T>
Block rows_of(std::vector<T>& values, i64 rows, i64 row, i64 stride, i64 offset = 0) {
  const i64 size = static_cast<i64>(sizeof(T));
  return {reinterpret_cast<std::byte*>(values.data() + offset), rows, row * size, stride * size};
}

TEST(Block, CopiesBetweenDifferentGeometriesInRowOrder) {
  std::vector<int> from{1, 2, 0, 3, 4, 0, 5, 6}, to(8, 9);
  copy_block(rows_of(to, 2, 3, 4, 1), rows_of(from, 3, 2, 3));
  EXPECT_EQ(to, (std::vector<int>{9, 1, 2, 3, 9, 4, 5, 6}));
}

TEST(Block, LargeCopiesBringEveryByteWhateverTheAlignment) {
  constexpr i64 kRow = 1027, kRows = 1200;  // 1.2 MB
  std::mt19937_64 random(11);
  std::vector<std::uint8_t> from(static_cast<size_t>(2 * kRow * kRows + 64));
  for (auto& byte : from) byte = static_cast<std::uint8_t>(random() % 255);
  for (const i64 gap : {0, 1, 37, 64})
    for (const i64 shift : {0, 1, 16, 63}) {
      std::vector<std::uint8_t> to(static_cast<size_t>((kRow + gap) * kRows + 64), 255), expected = to;
      for (i64 i = 0; i < kRow * kRows; ++i)
        expected[static_cast<size_t>(shift + i / kRow * (kRow + gap) + i % kRow)] =
            from[static_cast<size_t>(5 + i / 600 * 700 + i % 600)];
      copy_block(rows_of(to, kRows, kRow, kRow + gap, shift), rows_of(from, kRows * kRow / 600, 600, 700, 5));
      EXPECT_EQ(to, expected) << gap << " " << shift;
    }
}

TEST(Block, AddsBetweenDifferentGeometriesInEveryType) {
  std::mt19937_64 random(3);
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::i64, DType::i32})
    for (const i64 elements : {0, 1, 31, 32, 33, 500}) {
      const i64 size = size_of(dtype);
      suite::Memory to = suite::random_world(1, elements, dtype, random)[0],
                    from = suite::random_world(1, elements * 2, dtype, random)[0];
      suite::Memory expected = to;
      for (i64 i = 0; i < elements; ++i)
        suite::add_element(expected.data() + i * size, from.data() + 2 * i * size, dtype);
      add_block(contiguous(to.data(), elements * size), {from.data(), elements, size, 2 * size}, dtype);
      EXPECT_EQ(to, expected) << name_of(dtype) << " " << elements;
    }
}

TEST(Block, Bf16RoundsToNearestEvenAndKeepsInfinityAndNaN) {
  const auto sum = [](std::uint16_t a, std::uint16_t b) {
    std::vector<std::uint16_t> x{a}, y{b};
    add_block(contiguous(x.data(), 2), contiguous(y.data(), 2), DType::bf16);
    return x[0];
  };
  EXPECT_EQ(sum(0x3F80, 0x3F80), 0x4000);  // 1 + 1
  EXPECT_EQ(sum(0x3F80, 0x3B80), 0x3F80);  // 1 + 2^-8: halfway, down to even
  EXPECT_EQ(sum(0x3F81, 0x3B80), 0x3F82);  // odd: up to even
  EXPECT_EQ(sum(0x7F7F, 0x7F7F), 0x7F80);  // overflows to infinity
  EXPECT_TRUE(std::isnan(suite::from_bf16(sum(0x7F80, 0xFF80))));
  EXPECT_TRUE(std::isnan(suite::from_bf16(sum(0x7F81, 0x3F80))));
}

TEST(Block, Bf16SumsOfManyAreRoundedOnce) {
  // 256 + 1 + 1: rounding after each addition would lose both ones.
  const std::vector<std::uint16_t> big{0x4380}, one{0x3F80};
  std::uint16_t result = 0;
  const std::byte* partials[] = {reinterpret_cast<const std::byte*>(big.data()),
                                 reinterpret_cast<const std::byte*>(one.data()),
                                 reinterpret_cast<const std::byte*>(one.data())};
  sum_bf16(reinterpret_cast<std::byte*>(&result), partials, 1);
  EXPECT_EQ(suite::from_bf16(result), 258.0f);
}

TEST(Block, DifferentSizesAndTornElementsAreRefused) {
  std::vector<float> x(8), y(8);
  EXPECT_EQ(message_of<InternalError>([&] { copy_block(rows_of(x, 2, 3, 4), rows_of(y, 1, 5, 5)); }),
            "block of 2 rows x 12 bytes against 1 rows x 20 bytes");
  EXPECT_EQ(message_of<InternalError>([&] { add_block(contiguous(x.data(), 6), contiguous(y.data(), 6), DType::f32); }),
            "rows of 6 bytes, 6 apart, don't hold whole aligned elements of f32");
  EXPECT_THAT(message_of<InternalError>([&] {
                add_block(contiguous(reinterpret_cast<std::byte*>(x.data()) + 1, 4), contiguous(y.data(), 4),
                          DType::f32);
              }),
              HasSubstr("whole aligned elements"));
}

TEST(Block, FillsItsBytesAndNoOthers) {
  std::vector<std::uint8_t> x(8, 1);
  fill_block(rows_of(x, 2, 2, 4, 1), 0xFF);
  EXPECT_EQ(x, (std::vector<std::uint8_t>{1, 255, 255, 1, 1, 255, 255, 1}));
}

TEST(Block, OverlapIsExactlyASharedByte) {
  std::mt19937_64 random(5);
  std::vector<std::uint8_t> memory(200);
  const auto draw = [&] {
    const i64 rows = static_cast<i64>(random() % 5), row = static_cast<i64>(random() % 6),
              gap = static_cast<i64>(random() % 10);
    return rows_of(memory, rows, row, row + gap, static_cast<i64>(random() % 120));
  };
  int shared = 0;
  for (int i = 0; i < 20000; ++i) {
    const Block a = draw(), b = draw();
    std::fill(memory.begin(), memory.end(), std::uint8_t{0});
    fill_block(a, 1);
    bool expected = false;
    for (i64 r = 0; r < b.rows; ++r)
      for (i64 c = 0; c < b.row_bytes; ++c) expected |= b.data[r * b.stride + c] == std::byte{1};
    ASSERT_EQ(overlap(a, b), expected);
    shared += expected;
  }
  EXPECT_GT(shared, 1000);
}

}  // namespace
}  // namespace switchyard::comm
