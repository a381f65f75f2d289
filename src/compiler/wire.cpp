#include "compiler/wire.hpp"

#include <algorithm>

namespace switchyard::compiler {

codecs::Codec codec_of(const codecs::Rule& rule, DType type, i64 elements, int from, int to,
                       const cluster::Cluster& cluster) {
  if (rule.codec == codecs::Codec::none || from == to) return codecs::Codec::none;
  return rule.codec_for(type, elements, cluster.link(from, to) == cluster::Link::inter_host);
}

i64 wire_bytes(const codecs::Rule& rule, DType type, i64 elements, int from, int to, const cluster::Cluster& cluster) {
  return from == to ? 0 : codecs::encoded_bytes(codec_of(rule, type, elements, from, to, cluster), type, elements);
}

codecs::Codec codec_of(const ir::Task& task, const layout::Msg& message, DType type, const cluster::Cluster& cluster) {
  return codec_of(task.encoding, type, message.box.elements(), message.src, message.dst, cluster);
}

i64 wire_bytes(const ir::Task& task, const layout::Msg& message, DType type, const cluster::Cluster& cluster) {
  return wire_bytes(task.encoding, type, message.box.elements(), message.src, message.dst, cluster);
}

i64 wire_bytes(const ir::Task& task, DType type, const cluster::Cluster& cluster) {
  i64 bytes = 0;
  for (const layout::Msg& message : task.messages) bytes += wire_bytes(task, message, type, cluster);
  return bytes;
}

std::map<QueueKey, i64> encoding_rooms(const ir::Program& program, int rank, const Plans& plans) {
  std::map<QueueKey, i64> rooms;
  for (const int id : program.of_rank[static_cast<size_t>(rank)]) {
    const ir::Task& task = program.tasks[static_cast<size_t>(id)];
    if (task.encoding.codec == codecs::Codec::none) continue;
    const DType type = ir::type_of(task.kind(), plans.graph().precision());
    i64 bytes = 0;
    for (const layout::Msg& message : task.messages)
      if (message.src == rank && codec_of(task, message, type, plans.cluster()) != codecs::Codec::none)
        bytes += wire_bytes(task, message, type, plans.cluster());
    if (bytes == 0) continue;
    i64& room = rooms[queue_of(task, rank)];
    room = std::max(room, bytes);
  }
  return rooms;
}

codecs::Rule rule_of(const config::Compression& compression, const ir::Instr& reshard) {
  return compression.rule(reshard.over_ulysses ? compression.ulysses : compression.activations);
}

i64 reshard_room(const codecs::Rule& rule, const ir::StageCode& stage, const ir::Instr& reshard, size_t pattern,
                 int position, i64 tokens, std::span<const int> ranks, const cluster::Cluster& cluster) {
  if (rule.codec == codecs::Codec::none) return 0;
  const ir::Buffer& buffer = stage.buffers[static_cast<size_t>(reshard.in[0])];
  const i64 unit = ir::token_unit(stage.replica, tokens);
  const int own = ranks[static_cast<size_t>(position)];
  i64 most = 0;
  for (const layout::Step& step : reshard.exchanges[pattern]->steps) {
    i64 bytes = 0;
    for (const layout::Piece& piece : step.parts[static_cast<size_t>(position)].sends) {
      const i64 elements = ir::scaled(buffer, piece.box, unit).elements();
      const int to = ranks[static_cast<size_t>(piece.peer)];
      const codecs::Codec codec = codec_of(rule, buffer.type.dtype, elements, own, to, cluster);
      if (codec != codecs::Codec::none) bytes += codecs::encoded_bytes(codec, buffer.type.dtype, elements);
    }
    most = std::max(most, bytes);
  }
  return most;
}

i64 key_wire_bytes(const codecs::Rule& rule, DType type, i64 rows, i64 columns, int from, int to,
                   const cluster::Cluster& cluster) {
  return 2 * wire_bytes(rule, type, rows * columns, from, to, cluster);
}

KeyRooms key_rooms(const codecs::Rule& rule, const ir::KeyBytes& keys, const batch::KeyExchange& exchange,
                   int ring_rank, std::span<const int> ranks, const cluster::Cluster& cluster) {
  KeyRooms rooms;
  if (rule.codec == codecs::Codec::none) return rooms;
  // Gradients go from a message's receiver to its sender.
  const auto most_of = [&](const std::vector<std::vector<batch::KeyMessage>>& rounds, bool back, DType type) {
    i64 most = 0;
    for (const std::vector<batch::KeyMessage>& round : rounds) {
      i64 bytes = 0;
      for (const batch::KeyMessage& message : round) {
        const int sender = back ? message.to : message.from, receiver = back ? message.from : message.to;
        const int from = ranks[static_cast<size_t>(sender)], to = ranks[static_cast<size_t>(receiver)];
        if (sender == ring_rank &&
            codec_of(rule, type, message.count * keys.columns, from, to, cluster) != codecs::Codec::none)
          bytes += key_wire_bytes(rule, type, message.count, keys.columns, from, to, cluster);
      }
      most = std::max(most, bytes);
    }
    return most;
  };
  if (keys.values > 0) rooms.values = most_of(exchange.rounds, false, keys.type);
  if (keys.gradients > 0) rooms.gradients = most_of(exchange.returns, true, keys.gradient_type);
  return rooms;
}

}  // namespace switchyard::compiler
