#include "files/file_dtype.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "base/errors.hpp"
#include "scratch.hpp"

namespace switchyard::files {
namespace {

template <class To, class From>
std::vector<To> converted(FileDType from, const std::vector<From>& in, DType to) {
  std::vector<To> out(in.size());
  convert(from, raw_bytes(in), to, std::as_writable_bytes(std::span(out)), "test");
  return out;
}

TEST(FileDType, knows_size_and_name_of_each_type) {
  EXPECT_EQ(size_of(FileDType::f16), 2);
  EXPECT_EQ(name_of(FileDType::f16), "F16");
  EXPECT_EQ(size_of(FileDType::boolean), 1);
  EXPECT_EQ(file_dtype_from("U16"), FileDType::u16);
  EXPECT_EQ(file_dtype_from("f16"), std::nullopt);
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::i64, DType::i32}) {
    EXPECT_EQ(size_of(stored_as(type)), switchyard::size_of(type));
  }
  EXPECT_EQ(name_of(stored_as(DType::bf16)), "BF16");
}

TEST(FileDType, reads_half_precision_exactly) {
  // 1, -2, the largest, the smallest normal, the smallest subnormal, -0, 1/3 rounded
  const std::vector<std::uint16_t> half{0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001, 0x8000, 0x3555};
  const auto wide = converted<float>(FileDType::f16, half, DType::f32);
  EXPECT_EQ(wide, (std::vector<float>{1, -2, 65504, 0x1p-14f, 0x1p-24f, -0.0f, 0.333251953125f}));
  EXPECT_TRUE(std::signbit(wide[5]));
  const auto odd = converted<float>(FileDType::f16, std::vector<std::uint16_t>{0x7c00, 0xfc00, 0x7e00}, DType::f32);
  EXPECT_EQ(odd[0], INFINITY);
  EXPECT_EQ(odd[1], -INFINITY);
  EXPECT_TRUE(std::isnan(odd[2]));
}

TEST(FileDType, rounds_to_bfloat16_with_ties_to_even) {
  const std::vector<float> wide{1.0f,    1.00390625f /* tie, down */, 1.01171875f /* tie, up */, 1.0040f, -3.4e38f,
                                INFINITY};
  const auto narrow = converted<std::uint16_t>(FileDType::f32, wide, DType::bf16);
  EXPECT_EQ(narrow, (std::vector<std::uint16_t>{0x3f80, 0x3f80, 0x3f82, 0x3f81, 0xff80, 0x7f80}));
  const auto nan = converted<std::uint16_t>(FileDType::f32, std::vector<float>{NAN, -NAN}, DType::bf16);
  const auto back = converted<double>(FileDType::bf16, nan, DType::f64);
  EXPECT_TRUE(std::isnan(back[0]) && std::isnan(back[1]));
}

TEST(FileDType, widens_bfloat16_and_narrows_doubles) {
  EXPECT_EQ(converted<float>(FileDType::bf16, std::vector<std::uint16_t>{0x3f80, 0xc040}, DType::f32),
            (std::vector<float>{1, -3}));
  EXPECT_EQ(converted<float>(FileDType::f64, std::vector<double>{0.1}, DType::f32), (std::vector<float>{0.1f}));
  EXPECT_EQ(converted<double>(FileDType::f32, std::vector<float>{0.1f}, DType::f64),
            (std::vector<double>{static_cast<double>(0.1f)}));
}

TEST(FileDType, copies_equal_types) {
  const std::vector<std::int64_t> numbers{1, -5, std::numeric_limits<std::int64_t>::max()};
  EXPECT_EQ(converted<std::int64_t>(FileDType::i64, numbers, DType::i64), numbers);
}

TEST(FileDType, refuses_to_turn_integers_into_floats) {
  const std::string message =
      message_of<UserError>([] { converted<double>(FileDType::i64, std::vector<std::int64_t>{1}, DType::f64); });
  EXPECT_THAT(message, testing::HasSubstr("test holds I64, where f64 is needed."));
  EXPECT_THAT(message_of<UserError>([] { converted<std::int32_t>(FileDType::f32, std::vector<float>{1}, DType::i32); }),
              testing::HasSubstr("test holds F32, where i32 is needed."));
}

TEST(FileDType, refuses_sizes_that_do_not_fit) {
  std::vector<std::byte> out(7);
  EXPECT_THAT(message_of<InternalError>([&] {
                convert(FileDType::f32, raw_bytes(std::vector<float>{1, 2}), DType::f32, out, "x");
              }),
              testing::HasSubstr("convert x: 8 bytes of F32 do not fill 7 bytes of f32"));
}

}  // namespace
}  // namespace switchyard::files
