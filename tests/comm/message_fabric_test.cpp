#include "comm/message_fabric.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/errors.hpp"
#include "rank_threads.hpp"

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// The peer is a script: sends end at once, receives are filled with `byte` unless `silent`.
struct Script {
  std::vector<size_t> posts;  // number of messages of each
  std::vector<std::byte*> places;
  std::string reason;
  bool silent = false;
  unsigned char byte = 1;
};

class ScriptedTransport final : public Transport {
 public:
  ScriptedTransport(std::shared_ptr<Arrivals> arrivals, Script& script)
      : arrivals_(std::move(arrivals)), script_(script) {}
  int rank() const override { return 0; }
  const cluster::Cluster& cluster() const override { return cluster_; }
  void post(std::span<Message* const> messages) override {
    script_.posts.push_back(messages.size());
    for (Message* message : messages) {
      script_.places.push_back(message->data);
      if (script_.silent) continue;
      if (!message->send) std::memset(message->data, script_.byte++, static_cast<size_t>(message->envelope.bytes));
      message->theirs = message->envelope;
      arrivals_->finish(*message);
    }
  }
  void works() override {}
  void stop(const std::string& reason) override { script_.reason = reason; }

 private:
  std::shared_ptr<Arrivals> arrivals_;
  Script& script_;
  cluster::Cluster cluster_ = two_hosts(2);
};

std::unique_ptr<MessageFabric> fabric_with(Script& script, FabricOptions options) {
  auto arrivals = std::make_shared<Arrivals>();
  auto transport = std::make_unique<ScriptedTransport>(arrivals, script);
  return std::make_unique<MessageFabric>(options, std::move(arrivals), std::move(transport));
}

Op recv(std::vector<std::uint8_t>& x, i64 rows, i64 row, i64 stride, bool add = false, DType dtype = DType::i32) {
  return {Op::Kind::recv, 1, {reinterpret_cast<std::byte*>(x.data()), rows, row, stride}, {}, add, dtype};
}

TEST(MessageFabric, OnlyStridedAndAddedBlocksAreStaged) {
  Script script;
  std::vector<std::uint8_t> plain(8), strided(8, 9);
  std::vector<std::uint8_t> added(4, 1);
  fabric_with(script, {1s, true})
      ->run({0, {0, 1}}, {"x", 0, {recv(plain, 1, 8, 8), recv(strided, 2, 2, 4), recv(added, 1, 4, 4, true)}});
  EXPECT_EQ(plain, std::vector<std::uint8_t>(8, 1));
  EXPECT_EQ(strided, (std::vector<std::uint8_t>{2, 2, 9, 9, 2, 2, 9, 9}));
  EXPECT_EQ(added, std::vector<std::uint8_t>(4, 4));
  ASSERT_EQ(script.places.size(), 3u);
  EXPECT_EQ(script.places[0], reinterpret_cast<std::byte*>(plain.data()));
  EXPECT_NE(script.places[1], reinterpret_cast<std::byte*>(strided.data()));
  EXPECT_NE(script.places[2], reinterpret_cast<std::byte*>(added.data()));
}

// Else the peer could get the sends and not begin with its own.
TEST(MessageFabric, ReceivesArePostedWithTheSendsAndNotAfterLocalCopies) {
  Script script;
  std::vector<std::uint8_t> from(4, 7), copy(4), first(4), second(4);
  const Op local{Op::Kind::local, -1, contiguous(copy.data(), 4), contiguous(from.data(), 4), false, DType::i32};
  const Op send{Op::Kind::send, 1, contiguous(from.data(), 4), {}, false, DType::i32};
  fabric_with(script, {1s, true})
      ->run({0, {0, 1}}, {"x", 0, {local, recv(first, 1, 4, 4), send, recv(second, 1, 4, 4)}});
  EXPECT_EQ(script.posts, std::vector<size_t>{3});
  EXPECT_EQ(script.places[0], reinterpret_cast<std::byte*>(from.data())) << "sends come first";
  EXPECT_EQ(copy, from);
  EXPECT_EQ(second, std::vector<std::uint8_t>(4, 2));
}

TEST(MessageFabric, AReceiveThatOverwritesAnEarlierOneWaitsForItsTurn) {
  Script script;
  std::vector<std::uint8_t> x(4), copy(4);
  const Block block = contiguous(x.data(), 4);
  const Op keep{Op::Kind::local, -1, contiguous(copy.data(), 4), block, false, DType::f32};
  fabric_with(script, {1s, true})->run({0, {0, 1}}, {"x", 0, {recv(x, 1, 4, 4), keep, recv(x, 1, 4, 4)}});
  EXPECT_EQ(copy, std::vector<std::uint8_t>(4, 1));
  EXPECT_EQ(x, std::vector<std::uint8_t>(4, 2));
}

TEST(MessageFabric, TimeoutsStopTheTransportWithTheirMessage) {
  Script script{{}, {}, "", true, 1};
  std::vector<std::uint8_t> x(4);
  const auto fabric = fabric_with(script, {100ms, false});
  const Op send{Op::Kind::send, 1, contiguous(x.data(), 4), {}, false, DType::f32};
  EXPECT_THROW(fabric->run({0, {0, 1}}, {"layer12.qkv", 0, {send}}), ClusterError);
  EXPECT_EQ(script.reason,
            "rank 0 (host a): \"layer12.qkv\" waits for rank 1, which has not taken its data for 0.1 s. See its log, "
            "or raise fabric.timeout.");
  try {
    fabric->run({0, {0, 1}}, {"next", 1, {}});
    FAIL();
  } catch (const ClusterError& error) {
    EXPECT_EQ(error.what(), "rank 0 (host a): \"next\" stopped: " + script.reason);
  }
}

// A large message on a slow link is no silence, nor is one that waits behind it.
TEST(Arrivals, AMessageIsLateOnceNothingHasMovedInItsDirectionForTheTimeout) {
  Arrivals arrivals;
  Message waiting{.send = false, .peer = 1};
  std::atomic<bool> ended = false;
  std::thread slow([&] {
    for (const auto until = std::chrono::steady_clock::now() + 3s; std::chrono::steady_clock::now() < until;) {
      arrivals.moved(1, false);
      std::this_thread::yield();
    }
    arrivals.finish(waiting);
  });
  std::thread others([&] {  // another peer, and the other direction
    for (; !ended; std::this_thread::yield()) {
      arrivals.moved(2, false);
      arrivals.moved(1, true);
    }
  });
  EXPECT_EQ(arrivals.wait(waiting, 1s), Arrivals::Outcome::done);
  slow.join();
  EXPECT_EQ(arrivals.wait(Message{.send = false, .peer = 1}, 100ms), Arrivals::Outcome::late);
  ended = true;
  others.join();
}

TEST(MessageFabric, AnExceptionThatDestroysItTellsTheOthers) {
  Script script;
  fabric_with(script, {1s, false}).reset();
  EXPECT_EQ(script.reason, "");
  try {
    const auto fabric = fabric_with(script, {1s, false});
    throw std::runtime_error("out of memory");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(script.reason, "rank 0 (host a) was ended by an error of its own. See its log.");
}

TEST(StagingPool, HandsOutTheSmallestBufferThatFitsAndKeepsAtMost256MiB) {
  StagingPool pool;
  auto small = pool.take(100), large = pool.take(1000);
  const std::byte *small_at = small.memory.get(), *large_at = large.memory.get();
  pool.give(std::move(large));
  pool.give(std::move(small));
  EXPECT_EQ(pool.bytes_kept(), 1100);
  const auto again = pool.take(50), big = pool.take(500);
  EXPECT_EQ(again.memory.get(), small_at);
  EXPECT_EQ(big.memory.get(), large_at);
  EXPECT_EQ(pool.bytes_kept(), 0);
  for (int i = 0; i < 3; ++i) pool.give({std::make_unique<std::byte[]>(1), i64{100} << 20});
  EXPECT_EQ(pool.bytes_kept(), i64{200} << 20);
}

}  // namespace
}  // namespace switchyard::comm
