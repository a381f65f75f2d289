// Numbers for the tests of codecs, and messages of them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "codecs/codec.hpp"

namespace switchyard::codecs {

/// Numbers of many magnitudes.
inline std::vector<float> random_numbers(i64 n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) value = normal(random) * std::exp(2 * normal(random));
  return x;
}

/// Blocks that codecs find hard: one huge element, powers of two, alternating signs, ties, denormals, zeros.
inline std::vector<std::vector<float>> hard_blocks() {
  std::vector<std::vector<float>> all;
  for (int kind = 0; kind < 8; ++kind) {
    std::vector<float> x(64);
    for (int i = 0; i < 64; ++i) {
      const std::vector<float> kinds = {i == 17 ? 1e30F : 1e-20F,
                                        std::ldexp(1.0F, i - 32),
                                        i % 2 ? 1.0F : -1.0F,
                                        static_cast<float>(i - 32) / 254,
                                        std::ldexp(static_cast<float>(i), -149),
                                        0.0F,
                                        std::numeric_limits<float>::max() / 8 * (i % 3 ? 1.0F : -1.0F),
                                        std::nextafter(1.0F, i % 2 ? 2.0F : 0.0F)};
      x[static_cast<size_t>(i)] = kinds[static_cast<size_t>(kind)];
    }
    all.push_back(std::move(x));
  }
  for (unsigned seed = 0; seed < 200; ++seed) all.push_back(random_numbers(64, seed));
  return all;
}

template <class T>
Elements matrix(std::vector<T>& x, DType type = DType::f32) {
  return {.data = reinterpret_cast<std::byte*>(x.data()), .type = type, .columns = static_cast<i64>(x.size())};
}

inline std::vector<std::byte> encoded(Codec codec, const Elements& from) {
  std::vector<std::byte> message(static_cast<size_t>(encoded_bytes(codec, from.type, from.count())));
  message.resize(static_cast<size_t>(encode(codec, from, message)));
  return message;
}

inline std::vector<float> there_and_back(Codec codec, std::vector<float> x) {
  std::vector<float> back(x.size());
  decode(codec, encoded(codec, matrix(x)), matrix(back), false);
  return back;
}

inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

inline float largest_of(const std::vector<float>& x) {
  float most = 0;
  for (const float value : x) most = std::max(most, std::fabs(value));
  return most;
}

}  // namespace switchyard::codecs
