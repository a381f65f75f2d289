#include "base/sha256.hpp"

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/errors.hpp"

namespace switchyard {
namespace {

constexpr size_t kBlock = 64;

// The first 32 bits of the fractions of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> kRound{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// The first 32 bits of the fractions of the square roots of the first 8 primes.
using State = std::array<std::uint32_t, 8>;
constexpr State kStart{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

void take_block(State& state, const std::byte* block) {
  std::array<std::uint32_t, 64> w{};
  for (size_t i = 0; i < 64; ++i) w[i / 4] = w[i / 4] << 8 | std::to_integer<std::uint32_t>(block[i]);
  for (size_t i = 16; i < 64; ++i) {
    const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25), choice = (e & f) ^ (~e & g);
    const std::uint32_t t1 = h + s1 + choice + kRound[i] + w[i];
    const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22),
                        majority = (a & b) ^ (a & c) ^ (b & c);
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + s0 + majority;
  }
  const State step{a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += step[i];
}

}  // namespace

Digest sha256(std::span<const std::byte> bytes) {
  State state = kStart;
  const size_t whole = bytes.size() / kBlock * kBlock;
  for (size_t at = 0; at < whole; at += kBlock) take_block(state, bytes.data() + at);
  std::vector<std::byte> rest(bytes.begin() + static_cast<std::ptrdiff_t>(whole), bytes.end());
  rest.push_back(std::byte{0x80});
  while (rest.size() % kBlock != kBlock - 8) rest.push_back(std::byte{0});
  for (int shift = 56; shift >= 0; shift -= 8)
    rest.push_back(static_cast<std::byte>((std::uint64_t{bytes.size()} * 8) >> shift));
  for (size_t at = 0; at < rest.size(); at += kBlock) take_block(state, rest.data() + at);
  Digest digest{};
  for (size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<std::byte>(state[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

Digest sha256(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  std::array<std::byte, kBlock> padded{};
  if (key.size() > kBlock) {
    const Digest shorter = sha256(key);
    std::ranges::copy(shorter, padded.begin());
  } else {
    std::ranges::copy(key, padded.begin());
  }
  const auto hashed = [&](std::byte pad, std::span<const std::byte> text) {
    std::vector<std::byte> all;
    for (const std::byte b : padded) all.push_back(b ^ pad);
    all.insert(all.end(), text.begin(), text.end());
    return sha256(all);
  };
  return hashed(std::byte{0x5c}, hashed(std::byte{0x36}, message));
}

bool equal_in_constant_time(const Digest& a, const Digest& b) {
  volatile unsigned differs = 0;  // volatile: the compiler may not stop at the first difference
  for (size_t i = 0; i < a.size(); ++i) differs = differs | std::to_integer<unsigned>(a[i] ^ b[i]);
  return differs == 0;
}

Digest random_digest() {
  Digest digest{};
  check(::getrandom(digest.data(), digest.size(), 0) == static_cast<ssize_t>(digest.size()),
        "getrandom gave too few bytes");
  return digest;
}

}  // namespace switchyard
