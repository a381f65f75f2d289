// The codecs of blocks of fp32 numbers, one struct each:
//   kBlock        elements of a block
//   bytes(n)      of an encoded block of n elements, n <= kBlock
//   encode(x, to) x has kBlock numbers, of which those from n on are 0
//   decode(from, n, x) x has room for kBlock numbers, of which the first n are written; a damaged message of top-k may
//                      write others
#pragma once

#include <cstddef>
#include <cstdint>

#include "codecs/codec.hpp"

namespace switchyard::codecs {

struct Bf16Block {
  static constexpr i64 kBlock = 64;
  static i64 bytes(i64 n) { return 2 * n; }
  static void encode(const float* x, i64 n, std::byte* to);
  static void decode(const std::byte* from, i64 n, float* x);
};

struct Fp8Block {
  static constexpr i64 kBlock = 64;
  static i64 bytes(i64 n) { return 2 + n; }
  static void encode(const float* x, i64 n, std::byte* to);
  static void decode(const std::byte* from, i64 n, float* x);
};

struct Int8Block {
  static constexpr i64 kBlock = 64;
  static i64 bytes(i64 n) { return 2 + n; }
  static void encode(const float* x, i64 n, std::byte* to);
  static void decode(const std::byte* from, i64 n, float* x);
};

struct Int4Block {
  static constexpr i64 kBlock = 64;
  static i64 bytes(i64 n) { return 2 + (n + 1) / 2; }
  static void encode(const float* x, i64 n, std::byte* to);
  static void decode(const std::byte* from, i64 n, float* x);
};

/// Bits: an element, 8 or 16. The stream of a block is libzfp's, for zfp_encode_block_float_1 at this rate; one with a
/// NaN or an infinity has the exponent 0, which libzfp does not write.
template <int Bits>
struct ZfpBlock {
  static constexpr i64 kBlock = 4;
  static i64 bytes(i64) { return Bits / 2; }
  static void encode(const float* x, i64 n, std::byte* to);
  static void decode(const std::byte* from, i64 n, float* x);
};

/// Keeps n / OneOf of n elements, rounded up: those with the largest magnitudes, of equal ones the earlier. A block has
/// their places in rising order, a byte each, then their values as bf16. A NaN counts as the largest. OneOf: 32 or 128.
template <int OneOf>
struct TopBlock {
  static constexpr i64 kBlock = 256;
  static i64 kept(i64 n) { return (n + OneOf - 1) / OneOf; }
  static i64 bytes(i64 n) { return 3 * kept(n); }
  static void encode(const float* x, i64 n, std::byte* to);
  static void decode(const std::byte* from, i64 n, float* x);
};

}  // namespace switchyard::codecs
