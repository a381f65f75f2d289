#include "compiler/wire.hpp"

#include <algorithm>

namespace switchyard::compiler {

codecs::Codec codec_of(const ir::Task& task, const layout::Msg& message, DType type, const cluster::Cluster& cluster) {
  if (task.encoding.codec == codecs::Codec::none || message.src == message.dst) return codecs::Codec::none;
  return task.encoding.codec_for(type, message.box.elements(),
                                 cluster.link(message.src, message.dst) == cluster::Link::inter_host);
}

i64 wire_bytes(const ir::Task& task, const layout::Msg& message, DType type, const cluster::Cluster& cluster) {
  if (message.src == message.dst) return 0;
  return codecs::encoded_bytes(codec_of(task, message, type, cluster), type, message.box.elements());
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

}  // namespace switchyard::compiler
