// Tuples as keys of unordered maps.
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>

namespace switchyard {

/// Hash of integers, enumerations and pointers.
struct TupleHash {
  template <class... Parts>
  size_t operator()(const std::tuple<Parts...>& key) const {
    std::uint64_t hash = 0;
    const auto mix = [&](auto part) {
      if constexpr (std::is_pointer_v<decltype(part)>)
        hash ^= reinterpret_cast<std::uintptr_t>(part);
      else
        hash ^= static_cast<std::uint64_t>(part);
      hash = (hash ^ hash >> 29) * 0x9e3779b97f4a7c15U;  // 2^64 divided by the golden ratio
    };
    std::apply([&](const Parts&... parts) { (mix(parts), ...); }, key);
    return static_cast<size_t>(hash ^ hash >> 32);
  }
};

}  // namespace switchyard
