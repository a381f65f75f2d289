// A number by which ranks and runs recognize the same data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.hpp"

namespace switchyard {

/// FNV-1a of 64 bits over all that is added, in order. Source: draft-eastlake-fnv.
class Fingerprint {
 public:
  /// Closed by a zero byte, so that texts can't run together.
  void add(std::string_view text) {
    for (const char c : text) add_byte(static_cast<unsigned char>(c));
    add_byte(0);
  }
  /// Eight bytes, the lowest first.
  void add(i64 number) {
    for (int byte = 0; byte < 8; ++byte)
      add_byte(static_cast<unsigned char>(static_cast<std::uint64_t>(number) >> (8 * byte)));
  }
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) add_byte(static_cast<unsigned char>(byte));
  }
  std::uint64_t value() const { return value_; }

 private:
  void add_byte(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001b3u; }

  std::uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace switchyard
