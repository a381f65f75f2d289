// Quantities with a kind. Bytes, Elements, Flops are exact counts, Seconds a measured or predicted time; kinds don't
// mix: Bytes{4} + Elements{1} doesn't compile, Bytes / BytesPerSecond is Seconds.
#pragma once

#include <compare>
#include <string>
#include <string_view>

#include "base/dtype.hpp"

namespace switchyard {

/// A number of one kind. Sums and differences stay in the kind, a ratio of two of one kind is a plain double.
template <class Kind, class Number>
struct Quantity {
  Number count{};

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity& operator+=(Quantity other) {
    count += other.count;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    count -= other.count;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return {a.count + b.count}; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return {a.count - b.count}; }
  friend constexpr Quantity operator*(Quantity a, Number factor) { return {a.count * factor}; }
  friend constexpr Quantity operator*(Number factor, Quantity a) { return {factor * a.count}; }
  friend constexpr double operator/(Quantity a, Quantity b) {
    return static_cast<double>(a.count) / static_cast<double>(b.count);
  }
};

using Bytes = Quantity<struct BytesKind, i64>;
using Elements = Quantity<struct ElementsKind, i64>;
using Flops = Quantity<struct FlopsKind, i64>;
using Seconds = Quantity<struct SecondsKind, double>;
using BytesPerSecond = Quantity<struct BytesPerSecondKind, double>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondKind, double>;

constexpr Seconds operator/(Bytes amount, BytesPerSecond rate) {
  return {static_cast<double>(amount.count) / rate.count};
}
constexpr Seconds operator/(Flops amount, FlopsPerSecond rate) {
  return {static_cast<double>(amount.count) / rate.count};
}
constexpr BytesPerSecond operator/(Bytes amount, Seconds time) {
  return {static_cast<double>(amount.count) / time.count};
}
constexpr FlopsPerSecond operator/(Flops amount, Seconds time) {
  return {static_cast<double>(amount.count) / time.count};
}

/// Bytes that `elements` of `type` take.
Bytes bytes_of(Elements elements, DType type);

/// "16 GiB", "1.5GB", "4096": a number, then B, KiB, MiB, GiB, TiB (powers of 1024) or kB, MB, GB, TB (powers of 1000),
/// upper or lower case. Fractions are rounded to the nearest byte. UserError names the text and the units.
Bytes parse_bytes(std::string_view text);
/// For people, three digits: "512 B", "1.5 KiB", "16 GiB", "-2 MiB".
std::string format_bytes(Bytes bytes);

/// "300 GB/s", "16 GiB/s", or bits for networks: "200 Gbit/s"; a bare number is bytes per second. UserError names the
/// text and the units.
BytesPerSecond parse_bandwidth(std::string_view text);
/// "312 TFLOP/s", "50 GFLOP/s", from MFLOP/s to PFLOP/s; a bare number is operations per second. UserError names the
/// text and the units.
FlopsPerSecond parse_flop_rate(std::string_view text);

/// "30 s", "500 ms", "2.5 min", "1 h", "250 us", "10 ns"; a bare number is seconds. UserError names the text and the
/// units.
Seconds parse_duration(std::string_view text);
/// For people, three digits up to a minute: "450 us", "3.25 s"; then "2 min 05 s", "3 h 07 min".
std::string format_duration(Seconds time);

}  // namespace switchyard
