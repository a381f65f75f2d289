// Tuples and lists as keys of unordered maps.
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>

#include "base/random.hpp"

namespace switchyard {

/// Hash of integers, enumerations and pointers, one after the other.
class MixedHash {
 public:
  template <class Part>
  void add(Part part) {
    if constexpr (std::is_pointer_v<Part>)
      hash_ ^= reinterpret_cast<std::uintptr_t>(part);
    else
      hash_ ^= static_cast<std::uint64_t>(part);
    hash_ = (hash_ ^ hash_ >> 29) * kGoldenRatio;
  }
  size_t get() const { return static_cast<size_t>(hash_ ^ hash_ >> 32); }

 private:
  std::uint64_t hash_ = 0;
};

struct TupleHash {
  template <class... Parts>
  size_t operator()(const std::tuple<Parts...>& key) const {
    MixedHash hash;
    std::apply([&](const Parts&... parts) { (hash.add(parts), ...); }, key);
    return hash.get();
  }
};

struct RangeHash {
  size_t operator()(const auto& parts) const {
    MixedHash hash;
    for (const auto part : parts) hash.add(part);
    return hash.get();
  }
};

}  // namespace switchyard
