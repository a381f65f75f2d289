// Random numbers as a function of where they are used, so that every rank computes the same ones.
#pragma once

#include <cstdint>

namespace switchyard {

/// 2^64 over the golden ratio, odd: multiples of it lie far apart.
inline constexpr std::uint64_t kGoldenRatio = 0x9e3779b97f4a7c15u;

/// SplitMix64's step and finaliser (Steele, Lea, Flood 2014): a bijection in which every input bit flips every output
/// bit with probability near 1/2.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += kGoldenRatio;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace switchyard
