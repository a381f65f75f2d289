#include "base/units.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <concepts>

#include "../message_of.hpp"
#include "base/errors.hpp"

namespace switchyard {
namespace {

template <class A, class B>
concept Addable = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept Divisible = requires(A a, B b) {
  a / b;
};

static_assert(Addable<Bytes, Bytes>);
static_assert(!Addable<Bytes, Elements>, "bytes and elements don't mix");
static_assert(!Addable<Bytes, i64>, "a bare number has no unit");
static_assert(!Addable<Flops, Elements>);
static_assert(!Divisible<Bytes, FlopsPerSecond>);
static_assert(!Divisible<Flops, BytesPerSecond>);
static_assert(!std::convertible_to<Bytes, Elements>);
static_assert(std::same_as<decltype(Bytes{8} / BytesPerSecond{2}), Seconds>);
static_assert(std::same_as<decltype(Flops{8} / FlopsPerSecond{2}), Seconds>);
static_assert(std::same_as<decltype(Bytes{8} / Bytes{2}), double>);
static_assert((Bytes{8} / BytesPerSecond{2}).count == 4);
static_assert((Flops{8} / Seconds{2}).count == 4);
static_assert(Bytes{3} + Bytes{4} * 2 - Bytes{1} == Bytes{10});
static_assert(Bytes{3} < Bytes{4});

TEST(Units, sums_in_place_keep_the_kind) {
  Bytes bytes{5};
  bytes += Bytes{4};
  bytes -= Bytes{2};
  EXPECT_EQ(bytes, Bytes{7});
}

TEST(Units, elements_of_a_dtype_take_its_bytes) {
  EXPECT_EQ(bytes_of(Elements{3}, DType::bf16), Bytes{6});
  EXPECT_EQ(bytes_of(Elements{3}, DType::f64), Bytes{24});
}

TEST(Units, amounts_of_memory_are_read_with_binary_and_decimal_units) {
  EXPECT_EQ(parse_bytes("16 GiB"), Bytes{i64{16} << 30});
  EXPECT_EQ(parse_bytes("16GiB"), Bytes{i64{16} << 30});
  EXPECT_EQ(parse_bytes(" 1.5 mib "), Bytes{3 << 19});
  EXPECT_EQ(parse_bytes("2 KiB"), Bytes{2048});
  EXPECT_EQ(parse_bytes("2 kB"), Bytes{2000});
  EXPECT_EQ(parse_bytes("3 MB"), Bytes{3000000});
  EXPECT_EQ(parse_bytes("1 GB"), Bytes{1000000000});
  EXPECT_EQ(parse_bytes("1 TiB"), Bytes{i64{1} << 40});
  EXPECT_EQ(parse_bytes("4096"), Bytes{4096});
  EXPECT_EQ(parse_bytes("0 B"), Bytes{0});
}

TEST(Units, a_wrong_amount_of_memory_names_the_units) {
  EXPECT_EQ(
      message_of([] { parse_bytes("16 gigs"); }),
      "\"16 gigs\" is not an amount of memory. Write a number and B, KiB, MiB, GiB, TiB (or kB, MB, GB, TB), such as "
      "\"16 GiB\".");
  for (const char* text : {"", "GiB", "-1 GiB", "inf", "nan B", "1e30 GiB", "1 GiB extra"})
    EXPECT_THROW(parse_bytes(text), UserError) << text;
}

TEST(Units, memory_is_shown_with_three_digits) {
  EXPECT_EQ(format_bytes(Bytes{0}), "0 B");
  EXPECT_EQ(format_bytes(Bytes{512}), "512 B");
  EXPECT_EQ(format_bytes(Bytes{1536}), "1.5 KiB");
  EXPECT_EQ(format_bytes(Bytes{i64{16} << 30}), "16 GiB");
  EXPECT_EQ(format_bytes(Bytes{(i64{1} << 30) - 1}), "1 GiB");
  EXPECT_EQ(format_bytes(Bytes{123456789}), "118 MiB");
  EXPECT_EQ(format_bytes(Bytes{-2048}), "-2 KiB");
}

TEST(Units, bandwidths_are_read_in_bytes_and_bits) {
  EXPECT_DOUBLE_EQ(parse_bandwidth("300 GB/s").count, 300e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("3.35TB/s").count, 3.35e12);
  EXPECT_DOUBLE_EQ(parse_bandwidth("2 GiB/s").count, 2.0 * (i64{1} << 30));
  EXPECT_DOUBLE_EQ(parse_bandwidth("200 Gbit/s").count, 25e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("400 Mbit/s").count, 50e6);
  EXPECT_DOUBLE_EQ(parse_bandwidth("1e9").count, 1e9);
  EXPECT_EQ(
      message_of([] { parse_bandwidth("300 GB"); }),
      "\"300 GB\" is not a bandwidth. Write a number and MB/s, GB/s, TB/s (or MiB/s, GiB/s, TiB/s; Mbit/s, Gbit/s, "
      "Tbit/s), such as "
      "\"300 GB/s\".");
}

TEST(Units, compute_rates_are_read) {
  EXPECT_DOUBLE_EQ(parse_flop_rate("312 TFLOP/s").count, 312e12);
  EXPECT_DOUBLE_EQ(parse_flop_rate("19.5 tflop/s").count, 19.5e12);
  EXPECT_DOUBLE_EQ(parse_flop_rate("1 PFLOP/s").count, 1e15);
  EXPECT_DOUBLE_EQ(parse_flop_rate("5e10").count, 5e10);
  EXPECT_EQ(message_of([] { parse_flop_rate("312 TFLOPS"); }),
            "\"312 TFLOPS\" is not a compute rate. Write a number and MFLOP/s, GFLOP/s, TFLOP/s or PFLOP/s, such as "
            "\"312 TFLOP/s\".");
}

TEST(Units, durations_are_read_in_all_units) {
  EXPECT_DOUBLE_EQ(parse_duration("30 s").count, 30);
  EXPECT_DOUBLE_EQ(parse_duration("500ms").count, 0.5);
  EXPECT_DOUBLE_EQ(parse_duration("2.5 min").count, 150);
  EXPECT_DOUBLE_EQ(parse_duration("1 h").count, 3600);
  EXPECT_DOUBLE_EQ(parse_duration("250 us").count, 250e-6);
  EXPECT_DOUBLE_EQ(parse_duration("10 ns").count, 10e-9);
  EXPECT_DOUBLE_EQ(parse_duration("7").count, 7);
}

TEST(Units, a_wrong_duration_names_the_units) {
  EXPECT_EQ(message_of([] { parse_duration("soon"); }),
            "\"soon\" is not a duration. Write a number and ns, us, ms, s, min or h, such as \"30 s\".");
}

TEST(Units, durations_are_shown_by_size) {
  EXPECT_EQ(format_duration({0}), "0 s");
  EXPECT_EQ(format_duration({12e-9}), "12 ns");
  EXPECT_EQ(format_duration({450e-6}), "450 us");
  EXPECT_EQ(format_duration({0.0321}), "32.1 ms");
  EXPECT_EQ(format_duration({3.25}), "3.25 s");
  EXPECT_EQ(format_duration({59.97}), "1 min 00 s");
  EXPECT_EQ(format_duration({125}), "2 min 05 s");
  EXPECT_EQ(format_duration({3600 * 3 + 7 * 60}), "3 h 07 min");
  EXPECT_EQ(format_duration({-2}), "-2 s");
}

}  // namespace
}  // namespace switchyard
