// Codecs in the planner's model of transfers.
#pragma once

#include <optional>

#include "cluster/hardware.hpp"
#include "config/strategy.hpp"

namespace switchyard::planner {

/// What a codec makes of a message: bytes that travel for each byte of its elements, and seconds of encoding and
/// decoding that byte.
struct Coding {
  double size = 1, seconds = 0;
};
/// The codings of messages of one role, inside hosts and between them; nothing: the messages travel as they are.
struct Codings {
  std::optional<Coding> inside, across;
};

/// A codec on the links that the policy has, where it gains at their bandwidth: the bytes that it saves take a link
/// longer than encoding and decoding take the devices that share it. Lossless messages, whose size their elements
/// decide, are left to the simulator, and so are messages that are too small.
Codings codings_of(codecs::Codec codec, DType type, const config::Compression& policy,
                   const cluster::Hardware& hardware);

/// The compression that a job allows, without what gains nowhere: roles, and links inside hosts; the default if nothing
/// is left. Keys and switches have no codec.
config::Compression worthwhile(const config::Compression& allowed, const Precision& precision,
                               const cluster::Hardware& hardware);

}  // namespace switchyard::planner
