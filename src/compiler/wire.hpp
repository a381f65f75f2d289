// How the messages of a Program's transfers travel: which are encoded, in how many bytes, and what encoding takes.
#pragma once

#include <map>
#include <span>

#include "batch/key_exchange.hpp"
#include "cluster/cluster.hpp"
#include "compiler/assemble.hpp"
#include "compiler/order.hpp"
#include "ir/code.hpp"
#include "ir/program.hpp"

namespace switchyard::compiler {

/// The codec of a message of so many elements between two ranks. A rank's messages to itself aren't encoded.
codecs::Codec codec_of(const codecs::Rule& rule, DType type, i64 elements, int from, int to,
                       const cluster::Cluster& cluster);
/// The bytes of such a message over the link; 0 to the rank itself; the most that a lossless one may have.
i64 wire_bytes(const codecs::Rule& rule, DType type, i64 elements, int from, int to, const cluster::Cluster& cluster);

/// The same for a message of a task, with elements of `type`.
codecs::Codec codec_of(const ir::Task& task, const layout::Msg& message, DType type, const cluster::Cluster& cluster);
i64 wire_bytes(const ir::Task& task, const layout::Msg& message, DType type, const cluster::Cluster& cluster);
/// The bytes of all messages of a task over their links.
i64 wire_bytes(const ir::Task& task, DType type, const cluster::Cluster& cluster);

/// Memory for what a rank encodes in a step: each queue has as much as any of its transfers needs, for the whole step.
/// Queues that encode nothing are left out.
std::map<QueueKey, i64> encoding_rooms(const ir::Program& program, int rank, const Plans& plans);

/// How the messages of a reshard are encoded.
codecs::Rule rule_of(const config::Compression& compression, const ir::Instr& reshard);
/// Memory for what the rank at a position encodes of a reshard: the most of its steps. ranks: by position.
i64 reshard_room(const codecs::Rule& rule, const ir::StageCode& stage, const ir::Instr& reshard, size_t pattern,
                 int position, i64 tokens, std::span<const int> ranks, const cluster::Cluster& cluster);

/// Bytes of so many rows of keys and values, or of their gradients, over the link; keys and values are a message each.
i64 key_wire_bytes(const codecs::Rule& rule, DType type, i64 rows, i64 columns, int from, int to,
                   const cluster::Cluster& cluster);

/// Memory for what a ring rank encodes in an attention of a run: of keys and values, and of their gradients, each the
/// most of a round. ring_rank: its place among `ranks`, those of its position.
struct KeyRooms {
  i64 values = 0, gradients = 0;
};
KeyRooms key_rooms(const codecs::Rule& rule, const ir::KeyBytes& keys, const batch::KeyExchange& exchange,
                   int ring_rank, std::span<const int> ranks, const cluster::Cluster& cluster);

}  // namespace switchyard::compiler
