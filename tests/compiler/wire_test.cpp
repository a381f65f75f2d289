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
  task.messages = {std::make_shared<const std::vector<layout::Msg>>(messages), nullptr, nullptr};
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

}  // namespace
}  // namespace switchyard::compiler
