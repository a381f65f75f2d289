// Numbers of a few bits with a scale for each block, and bf16.

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/bfloat16.hpp"
#include "codecs/block_codecs.hpp"

namespace switchyard::codecs {
namespace {

constexpr i64 kBlock = 64;
constexpr std::uint32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;

void store16(std::uint16_t value, std::byte* to) { std::memcpy(to, &value, sizeof value); }
std::uint16_t load16(const std::byte* from) {
  std::uint16_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Bits of the largest magnitude. As integers they rise with the number; infinity and NaN are above all numbers.
std::uint32_t largest_bits(const float* x) {
  std::array<std::int32_t, 8> most{};
  for (i64 i = 0; i < kBlock; i += 8)
    for (i64 j = 0; j < 8; ++j) {
      const auto bits = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(x[i + j]) & kMagnitude);
      most[static_cast<size_t>(j)] = bits > most[static_cast<size_t>(j)] ? bits : most[static_cast<size_t>(j)];
    }
  std::int32_t all = 0;
  for (const std::int32_t bits : most) all = bits > all ? bits : all;
  return static_cast<std::uint32_t>(all);
}

// The scale that maps the largest magnitude to at most `levels`: bf16, rounded up, and normal, so that its inverse is
// finite. NaN for a block that isn't finite.
struct Scale {
  std::uint16_t bits = 0;
  float inverse = 0;
};
Scale scale_of(const float* x, float levels) {
  const std::uint32_t largest = largest_bits(x);
  if (largest >= kInfinity) return {0x7fc0, 0};
  if (largest == 0) return {};
  const float exact = std::max(std::bit_cast<float>(largest) / levels, std::numeric_limits<float>::min());
  const auto bits = static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(exact) + 0xffff) >> 16);
  return {bits, 1 / bfloat16_value(bits)};
}

// To the nearest integer, ties to even, for magnitudes below 2^22: adding 1.5 * 2^23 leaves it in the low bits.
std::int32_t rounded(float x) {
  return std::bit_cast<std::int32_t>(x + 12582912.0F) - std::bit_cast<std::int32_t>(12582912.0F);
}

// e4m3 without its sign, of magnitudes up to 464. Normal numbers lose 20 bits of the fraction, rounded to nearest
// even; below 2^-6 a step is 2^-9, which adding 2^14 leaves in the low bits.
std::uint32_t e4m3_bits(float magnitude) {
  const auto bits = std::bit_cast<std::uint32_t>(magnitude);
  const std::uint32_t normal = ((bits + 0x7ffff + ((bits >> 20) & 1)) >> 20) - (120U << 3);
  const std::uint32_t small =
      std::bit_cast<std::uint32_t>(magnitude + 16384.0F) - std::bit_cast<std::uint32_t>(16384.0F);
  return magnitude < 0x1p-6F ? small : normal;
}

constexpr std::array<float, 256> e4m3_values() {
  std::array<float, 256> values{};
  for (size_t code = 0; code < values.size(); ++code) {
    const auto exponent = static_cast<int>((code >> 3) & 15);
    float value = (exponent == 0 ? 0.0F : 8.0F) + static_cast<float>(code & 7);
    for (int e = std::max(exponent, 1); e < 10; ++e) value /= 2;
    for (int e = 10; e < exponent; ++e) value *= 2;
    values[code] = code & 128 ? -value : value;
  }
  return values;
}
constexpr std::array<float, 256> kE4m3 = e4m3_values();

}  // namespace

void Bf16Block::encode(const float* x, i64 n, std::byte* to) {
  std::array<std::uint16_t, kBlock> bits;
  for (size_t i = 0; i < kBlock; ++i) bits[i] = bfloat16_bits(x[i]);
  std::memcpy(to, bits.data(), static_cast<size_t>(2 * n));
}

void Bf16Block::decode(const std::byte* from, i64 n, float* x) {
  std::array<std::uint16_t, kBlock> bits{};
  std::memcpy(bits.data(), from, static_cast<size_t>(2 * n));
  for (size_t i = 0; i < kBlock; ++i) x[i] = bfloat16_value(bits[i]);
}

void Fp8Block::encode(const float* x, i64 n, std::byte* to) {
  const Scale scale = scale_of(x, 448);
  store16(scale.bits, to);
  std::array<std::uint8_t, kBlock> codes;
  for (size_t i = 0; i < kBlock; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(x[i] * scale.inverse);
    codes[i] = static_cast<std::uint8_t>(e4m3_bits(std::bit_cast<float>(bits & kMagnitude)) | (bits >> 31 << 7));
  }
  std::memcpy(to + 2, codes.data(), static_cast<size_t>(n));
}

void Fp8Block::decode(const std::byte* from, i64 n, float* x) {
  const float scale = bfloat16_value(load16(from));
  for (i64 i = 0; i < n; ++i) x[i] = kE4m3[static_cast<size_t>(from[2 + i])] * scale;
}

void Int8Block::encode(const float* x, i64 n, std::byte* to) {
  const Scale scale = scale_of(x, 127);
  store16(scale.bits, to);
  std::array<std::int8_t, kBlock> codes;
  for (size_t i = 0; i < kBlock; ++i) codes[i] = static_cast<std::int8_t>(rounded(x[i] * scale.inverse));
  std::memcpy(to + 2, codes.data(), static_cast<size_t>(n));
}

void Int8Block::decode(const std::byte* from, i64 n, float* x) {
  const float scale = bfloat16_value(load16(from));
  std::array<std::int8_t, kBlock> codes{};
  std::memcpy(codes.data(), from + 2, static_cast<size_t>(n));
  for (size_t i = 0; i < kBlock; ++i) x[i] = static_cast<float>(codes[i]) * scale;
}

// Element 2 i is in the low half of byte i.
void Int4Block::encode(const float* x, i64 n, std::byte* to) {
  const Scale scale = scale_of(x, 7);
  store16(scale.bits, to);
  std::array<std::uint8_t, kBlock / 2> pairs;
  for (size_t i = 0; i < kBlock / 2; ++i) {
    const std::int32_t low = rounded(x[2 * i] * scale.inverse), high = rounded(x[2 * i + 1] * scale.inverse);
    pairs[i] = static_cast<std::uint8_t>((low & 15) | (high & 15) << 4);
  }
  std::memcpy(to + 2, pairs.data(), static_cast<size_t>((n + 1) / 2));
}

void Int4Block::decode(const std::byte* from, i64 n, float* x) {
  const float scale = bfloat16_value(load16(from));
  std::array<std::uint8_t, kBlock / 2> pairs{};
  std::memcpy(pairs.data(), from + 2, static_cast<size_t>((n + 1) / 2));
  for (size_t i = 0; i < kBlock / 2; ++i) {
    x[2 * i] = static_cast<float>(static_cast<std::int8_t>(pairs[i] << 4) >> 4) * scale;
    x[2 * i + 1] = static_cast<float>(static_cast<std::int8_t>(pairs[i]) >> 4) * scale;
  }
}

}  // namespace switchyard::codecs
