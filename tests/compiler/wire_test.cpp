#include "compiler/wire.hpp"

#include <gtest/gtest.h>

#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

using codecs::Codec;

// Rank 0 sends to rank 1 on its host and to rank 2 on another one, and keeps a part.
ir::Task transfer(codecs::Rule rule) {
  const auto box = [](i64 n) { return layout::whole(std::vector<i64>{n}); };
  const std::vector<layout::Msg> messages = {{0, 0, 0, box(1000)}, {0, 1, 0, box(640)}, {0, 2, 0, box(64)}};
  ir::Task task{.what = ir::Reduce{}, .queue = ir::Queue::bulk, .ranks = {0, 1, 2}};
  task.messages = messages;
  task.encoding = rule;
  return task;
}

TEST(Wire, BytesAreThoseOfTheCodecOfEachMessage) {
  const cluster::Cluster cluster = cluster::uniform(2, 2);
  EXPECT_EQ(wire_bytes(transfer({}), DType::f32, cluster), 640 * 4 + 64 * 4);
  EXPECT_EQ(wire_bytes(transfer({.codec = Codec::int8}), DType::f32, cluster), 660 + 66);
  EXPECT_EQ(wire_bytes(transfer({.codec = Codec::int8, .smallest = 1000}), DType::f32, cluster), 660 + 64 * 4);
  EXPECT_EQ(wire_bytes(transfer({.codec = Codec::int8, .between_hosts = true}), DType::f32, cluster), 640 * 4 + 66);
}

TEST(Wire, WhatARankKeepsIsNotEncoded) {
  const ir::Task task = transfer({.codec = Codec::int8});
  EXPECT_EQ(codec_of(task, *task.messages.begin(), DType::f32, cluster::uniform(2, 2)), Codec::none);
}

// Ring rank 1 of ranks 4, 5 and 6 sends 3 rows to 0 and 10 in one round and 5 to 2 in the next; what came from 0 goes
// back as gradients.
TEST(Wire, RoomForKeysIsThatOfTheFullestRound) {
  const cluster::Cluster cluster = cluster::uniform(1, 7);
  const std::vector<int> ranks = {4, 5, 6};
  const batch::KeyExchange exchange{.seen = {},
                                    .rounds = {{{.from = 1, .to = 0, .count = 3}, {.from = 0, .to = 1, .count = 7}},
                                               {{.from = 1, .to = 2, .count = 5}}},
                                    .returns = {{{.from = 0, .to = 1, .count = 7}}}};
  const ir::KeyBytes keys{
      .values = 2 * 64 * 2, .gradients = 2 * 64 * 4, .columns = 64, .type = DType::bf16, .gradient_type = DType::f32};
  const codecs::Rule rule{.codec = Codec::int8};
  const KeyRooms rooms = key_rooms(rule, keys, exchange, 1, ranks, cluster);
  EXPECT_EQ(rooms.values, 2 * 5 * 66);
  EXPECT_EQ(rooms.gradients, 2 * 7 * 66);
  EXPECT_EQ(key_wire_bytes(rule, DType::bf16, 5, 64, 5, 6, cluster), rooms.values);
  EXPECT_EQ(key_wire_bytes({}, DType::bf16, 5, 64, 5, 6, cluster), 2 * 5 * 64 * 2);
  const KeyRooms forward =
      key_rooms(rule, {.values = 256, .columns = 64, .type = DType::bf16}, exchange, 1, ranks, cluster);
  EXPECT_EQ(forward.values, rooms.values);
  EXPECT_EQ(forward.gradients, 0);
  EXPECT_EQ(key_rooms({}, keys, exchange, 1, ranks, cluster).values, 0);
  EXPECT_EQ(key_rooms({.codec = Codec::bf16}, keys, exchange, 1, ranks, cluster).values, 0) << "not shorter";
}

}  // namespace
}  // namespace switchyard::compiler
