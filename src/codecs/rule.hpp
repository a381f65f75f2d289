// Which messages of a transfer are encoded, and how.
#pragma once

#include <compare>

#include "codecs/codec.hpp"

namespace switchyard::codecs {

/// smallest: bytes below which a message travels as it is. between_hosts: so do messages inside a host. feedback: what
/// encoding loses is kept and added to what the sender encodes next of the same elements.
struct Rule {
  Codec codec = Codec::none;
  i64 smallest = 0;
  bool between_hosts = false, feedback = false;
  auto operator<=>(const Rule&) const = default;

  /// The codec of a message of so many elements of `type`; none also where encoding would not make it shorter.
  Codec codec_for(DType type, i64 elements, bool crosses_hosts) const;
};

}  // namespace switchyard::codecs
