#include "comm/outbox.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace switchyard::comm {
namespace {

using Kind = Frame::Kind;

// A frame as it arrives.
struct Arrived {
  Frame frame;
  std::vector<std::byte> body;
};

// Writes a whole frame, at most `at_once` bytes at a time; `sent`: the message that is sent then.
Arrived write_frame(Outbox& box, i64 at_once, Message** sent = nullptr) {
  std::vector<std::byte> bytes;
  Message* last = nullptr;
  for (i64 size = sizeof(Frame); std::cmp_less(bytes.size(), size);) {
    const Outbox::Bytes next = box.next();
    if (next.count == 0) break;
    const i64 count = std::min(next.count, at_once);
    bytes.insert(bytes.end(), next.from, next.from + count);
    last = box.written(count);
    if (bytes.size() < sizeof(Frame)) continue;
    Frame frame;
    std::memcpy(&frame, bytes.data(), sizeof frame);
    size = static_cast<i64>(sizeof frame) + frame.body;
  }
  if (sent) *sent = last;
  Arrived arrived;
  std::memcpy(&arrived.frame, bytes.data(), sizeof(Frame));
  arrived.body.assign(bytes.begin() + sizeof(Frame), bytes.end());
  return arrived;
}

// A message of bytes that all differ from their neighbours.
struct OwnMessage {
  explicit OwnMessage(i64 size) : bytes(static_cast<size_t>(size)) {
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
    message.send = true;
    message.envelope.bytes = size;
    message.data = bytes.data();
  }
  std::vector<std::byte> bytes;
  Message message{};
};

TEST(Outbox, SendsAOwnMessageInPartsThatMakeUpTheWhole) {
  OwnMessage large(2 * kPartBytes + 5);
  Outbox box;
  EXPECT_TRUE(box.empty());
  box.add_parts(9, large.message);
  std::vector<std::byte> whole;
  for (const i64 size : {kPartBytes, kPartBytes, i64{5}}) {
    EXPECT_FALSE(box.empty());
    Message* sent = nullptr;
    const Arrived part = write_frame(box, 1000, &sent);
    EXPECT_EQ(part.frame.kind, Kind::part);
    EXPECT_EQ(part.frame.id, 9u);
    EXPECT_EQ(part.frame.body, size);
    EXPECT_EQ(sent, size == 5 ? &large.message : nullptr) << "sent with the last part";
    whole.insert(whole.end(), part.body.begin(), part.body.end());
  }
  EXPECT_EQ(whole, large.bytes);
  EXPECT_TRUE(box.empty());
  EXPECT_EQ(box.next().count, 0);
}

// Else the peer could send nothing before this rank has sent all.
TEST(Outbox, AGrantDoesNotWaitForAOwnMessageThatIsOnItsWay) {
  OwnMessage first(3 * kPartBytes), second(kPartBytes);
  Outbox box;
  box.add_parts(1, first.message);
  box.add_parts(2, second.message);
  box.written(std::min<i64>(box.next().count, 10));
  box.add({.kind = Kind::grant, .id = 5});
  const Outbox::Bytes rest = box.next();
  EXPECT_EQ(rest.count, static_cast<i64>(sizeof(Frame)) - 10) << "a frame that was begun is completed";
  EXPECT_TRUE(rest.more);
  EXPECT_TRUE(box.in_part());
  box.written(rest.count);
  box.written(box.next().count);
  box.next();
  EXPECT_FALSE(box.in_part());
  EXPECT_EQ(write_frame(box, 1 << 20).frame.kind, Kind::grant);
  for (const std::uint64_t id : {1, 1, 2}) EXPECT_EQ(write_frame(box, 1 << 20).frame.id, id) << "one after the other";
  EXPECT_TRUE(box.empty());
}

TEST(Outbox, SmallMessagesAndQuestionsKeepTheirOrder) {
  OwnMessage small(100), empty(0);
  Outbox box;
  box.add({.kind = Kind::ask, .id = 1});
  box.add({.kind = Kind::eager, .body = 100}, small.message);
  box.add({.kind = Kind::eager, .body = 0}, empty.message);
  box.add({.kind = Kind::ask, .id = 2});
  EXPECT_EQ(write_frame(box, 7).frame.id, 1u);
  Message* sent = nullptr;
  EXPECT_EQ(write_frame(box, 7, &sent).body, small.bytes);
  EXPECT_EQ(sent, &small.message);
  EXPECT_TRUE(write_frame(box, 7, &sent).body.empty());
  EXPECT_EQ(sent, &empty.message);
  EXPECT_EQ(write_frame(box, 7).frame.id, 2u);
}

TEST(Outbox, WhatIsDroppedMayNotEndAFrameThatWasBegun) {
  OwnMessage large(kPartBytes);
  Outbox box;
  box.add({.kind = Kind::ask});
  box.add_parts(1, large.message);
  box.next();  // not a byte of it is written
  box.clear();
  EXPECT_TRUE(box.empty());
  box.add_parts(1, large.message);
  box.next();
  box.written(1);
  box.clear();
  EXPECT_FALSE(box.empty());
  box.add({.kind = Kind::reason}, std::string("gone"));
  while (box.next().more) box.written(box.next().count);
  box.written(box.next().count);
  const Arrived reason = write_frame(box, 3);
  EXPECT_EQ(reason.frame.kind, Kind::reason);
  EXPECT_EQ(std::memcmp(reason.body.data(), "gone", 4), 0);
  EXPECT_TRUE(box.empty());
}

}  // namespace
}  // namespace switchyard::comm
