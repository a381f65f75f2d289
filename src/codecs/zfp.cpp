// ZFP's fixed-rate mode for blocks of four fp32 numbers, bit for bit as libzfp 1.0 writes it (Lindstrom, "Fixed-Rate
// Compressed Floating-Point Arrays", 2014; Diffenderfer et al., "Error Analysis of ZFP Compression", 2019). Written out
// here because a job must mean the same on every machine, and not every machine has that library.

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "codecs/block_codecs.hpp"

namespace switchyard::codecs {
namespace {

constexpr int kSize = 4, kPrecision = 32, kExponentBits = 8, kExponentBias = 127;
constexpr std::uint32_t kNegabinary = 0xaaaaaaaa;

// Bits of a block of at most 64, the first ones lowest.
struct Bits {
  std::uint64_t word = 0;
  int at = 0;

  void write(std::uint64_t bits, int n) {
    word |= bits << at;
    at += n;
  }
  bool write_bit(bool bit) {
    write(bit, 1);
    return bit;
  }
  std::uint64_t read(int n) {
    const std::uint64_t bits = word >> at & ((std::uint64_t{1} << n) - 1);
    at += n;
    return bits;
  }
  bool read_bit() { return read(1) != 0; }
};

// Sums and differences wrap, as libzfp's do on the machines that it runs on.
std::int32_t plus(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}
std::int32_t minus(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) - static_cast<std::uint32_t>(b));
}
std::int32_t twice(std::int32_t a) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) << 1); }

using Integers = std::array<std::int32_t, kSize>;
using Planes = std::array<std::uint32_t, kSize>;

// Nearly orthogonal transform; its inverse below.
Planes transformed(const Integers& v) {
  auto [x, y, z, w] = v;
  x = plus(x, w), x >>= 1, w = minus(w, x);
  z = plus(z, y), z >>= 1, y = minus(y, z);
  x = plus(x, z), x >>= 1, z = minus(z, x);
  w = plus(w, y), w >>= 1, y = minus(y, w);
  w = plus(w, y >> 1), y = minus(y, w >> 1);
  Planes planes;
  const Integers out{x, y, z, w};
  for (size_t i = 0; i < kSize; ++i) planes[i] = (static_cast<std::uint32_t>(out[i]) + kNegabinary) ^ kNegabinary;
  return planes;
}

Integers restored(const Planes& planes) {
  Integers v;
  for (size_t i = 0; i < kSize; ++i) v[i] = static_cast<std::int32_t>((planes[i] ^ kNegabinary) - kNegabinary);
  auto [x, y, z, w] = v;
  y = plus(y, w >> 1), w = minus(w, y >> 1);
  y = plus(y, w), w = twice(w), w = minus(w, y);
  z = plus(z, x), x = twice(x), x = minus(x, z);
  y = plus(y, z), z = twice(z), z = minus(z, y);
  w = plus(w, x), x = twice(x), x = minus(x, w);
  return {x, y, z, w};
}

// Bit planes from the highest on, until the budget is spent. Of a plane the bits of the n values that are known to be
// significant come as they are, those of the others after group tests.
void write_planes(Bits& to, const Planes& planes, int budget) {
  int n = 0;
  for (int k = kPrecision; budget > 0 && k-- > 0;) {
    std::uint64_t plane = 0;
    for (size_t i = 0; i < kSize; ++i) plane |= static_cast<std::uint64_t>(planes[i] >> k & 1U) << i;
    const int known = std::min(n, budget);
    budget -= known;
    to.write(plane & ((std::uint64_t{1} << known) - 1), known);
    plane >>= known;
    for (; budget > 0 && n < kSize; plane >>= 1, ++n) {
      --budget;
      if (!to.write_bit(plane != 0)) break;
      for (; budget > 0 && n < kSize - 1; plane >>= 1, ++n) {
        --budget;
        if (to.write_bit(plane & 1U)) break;
      }
    }
  }
}

Planes read_planes(Bits& from, int budget) {
  Planes planes{};
  int n = 0;
  for (int k = kPrecision; budget > 0 && k-- > 0;) {
    const int known = std::min(n, budget);
    budget -= known;
    std::uint64_t plane = from.read(known);
    for (; budget > 0 && n < kSize; plane += std::uint64_t{1} << n++) {
      --budget;
      if (!from.read_bit()) break;
      for (; budget > 0 && n < kSize - 1; ++n) {
        --budget;
        if (from.read_bit()) break;
      }
    }
    for (size_t i = 0; i < kSize; ++i) planes[i] |= static_cast<std::uint32_t>(plane >> i & 1U) << k;
  }
  return planes;
}

}  // namespace

template <int Bits_>
void ZfpBlock<Bits_>::encode(const float* x, i64, std::byte* to) {
  constexpr int kBits = Bits_ * kSize;
  float largest = 0;
  bool finite = true;
  for (size_t i = 0; i < kSize; ++i) {
    finite = finite && std::isfinite(x[i]);
    largest = std::max(largest, std::fabs(x[i]));
  }
  Bits bits;
  if (!finite) {
    bits.write(1, 1 + kExponentBits);
  } else if (largest > 0) {
    int exponent = 0;
    std::frexp(largest, &exponent);
    exponent = std::max(exponent, 1 - kExponentBias);
    bits.write(static_cast<std::uint64_t>(2 * (exponent + kExponentBias) + 1), 1 + kExponentBits);
    Integers integers;
    const float scale = std::ldexp(1.0F, std::min(kPrecision - 2 - exponent, 127));
    const float rest = std::ldexp(1.0F, std::max(kPrecision - 2 - exponent - 127, 0));
    for (size_t i = 0; i < kSize; ++i) integers[i] = static_cast<std::int32_t>(x[i] * scale * rest);
    write_planes(bits, transformed(integers), kBits - 1 - kExponentBits);
  }
  std::memcpy(to, &bits.word, kBits / 8);
}

template <int Bits_>
void ZfpBlock<Bits_>::decode(const std::byte* from, i64, float* x) {
  constexpr int kBits = Bits_ * kSize;
  Bits bits;
  std::memcpy(&bits.word, from, kBits / 8);
  const auto exponent = static_cast<int>(bits.read_bit() ? bits.read(kExponentBits) : 256);
  if (exponent == 0 || exponent == 256) {
    for (size_t i = 0; i < kSize; ++i) x[i] = exponent == 0 ? std::nanf("") : 0;
    return;
  }
  const Integers integers = restored(read_planes(bits, kBits - 1 - kExponentBits));
  for (size_t i = 0; i < kSize; ++i)
    x[i] = std::ldexp(static_cast<float>(integers[i]), exponent - kExponentBias - (kPrecision - 2));
}

template struct ZfpBlock<8>;
template struct ZfpBlock<16>;

}  // namespace switchyard::codecs
