// The size from which on a message is worth encoding.
#pragma once

#include <optional>

#include "cluster/hardware.hpp"
#include "codecs/codec.hpp"

namespace switchyard::simulator {

/// Bytes, of elements as they lie in memory, from which on messages over the link gain: the bytes that encoding saves
/// take the link longer than encoding and then decoding take the device. A power of two from 256 B to 64 MiB; nothing
/// where not even the last one gains, or for lossless messages, whose size their elements decide.
std::optional<i64> break_even(codecs::Codec codec, DType type, const cluster::Hardware& hardware, cluster::Link link);

}  // namespace switchyard::simulator
