#include "comm/thread_fabric.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "fabric_suite.hpp"
#include "fake_device.hpp"
#include "ops.hpp"
#include "rank_threads.hpp"

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::HasSubstr;

const FabricOptions kStrict{20s, true};
const FabricOptions kHasty{200ms, false};

TEST(ThreadFabric, RandomTransactionsOnFiveConcurrentChannelsGiveWhatPlainLoopsGive) {
  for (const int ranks : {1, 2, 3, 4, 8})
    for (const bool strict : {false, true})
      EXPECT_THAT(
          run_ranks(ranks, {120s, strict}, [](Fabric& fabric) { suite::concurrent_channels(fabric, 25, 7, 0); }),
          Each(""))
          << ranks << " ranks";
}

TEST(ThreadFabric, EncodedMessagesAreDecodedInTheirTurn) {
  for (const bool strict : {false, true})
    EXPECT_THAT(run_ranks(3, {120s, strict}, [](Fabric& fabric) { suite::encoded_messages(fabric, 0, 1); }), Each(""));
}

TEST(ThreadFabric, AnEncodedMessageIsNoLongerThanItMayBe) {
  EXPECT_THAT(run_ranks(2, {120s, true}, [](Fabric& fabric) { suite::too_long_message(fabric, 0, 1); })[1],
              HasSubstr("expects transaction 1, 100 bytes, u8 from rank 0, which sends transaction 1, 101 bytes, u8"));
}

// Each rank writes its block, sends it around the ring, adds what comes to a sum, and overwrites what it sent.
TEST(ThreadFabric, StreamsOfADeviceWaitForEachOtherAroundAMessage) {
  constexpr i64 kBytes = 4 * sizeof(float);
  const FakeDevice device;
  std::vector<std::vector<float>> sums(3, std::vector<float>(4)), values = sums;
  const auto ends = run_ranks(3, kStrict, [&](Fabric& fabric) {
    EXPECT_TRUE(fabric.moves_device_memory());
    const auto mine = static_cast<size_t>(fabric.rank());
    const Block value = device.block(values[mine].data(), kBytes), sum = device.block(sums[mine].data(), kBytes);
    for (int round = 0; round < 20; ++round) {
      device.use(value, true);
      values[mine].assign(4, static_cast<float>(100 * round + fabric.rank()));
      fabric.run(everyone(fabric, 1),
                 {"around", round, {send((fabric.rank() + 1) % 3, value), recv((fabric.rank() + 2) % 3, sum, true)}});
    }
  });
  EXPECT_THAT(ends, Each(""));
  for (size_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(sums[rank], std::vector<float>(4, 100 * 190 + 20 * static_cast<float>((rank + 2) % 3)));
}

TEST(ThreadFabric, AMessageFromADeviceToAHostIsRefused) {
  const FakeDevice device;
  std::vector<float> from(4), to(4);
  const auto ends = run_ranks(2, kHasty, [&](Fabric& fabric) {
    const bool sends = fabric.rank() == 0;
    fabric.run(everyone(fabric, 1),
               {"down", 1, {sends ? send(1, device.block(from.data(), 16)) : recv(0, block_of(to))}});
  });
  EXPECT_THAT(ends[1], HasSubstr("a block of 16 bytes on a device and one on the host"));
}

TEST(ThreadFabric, KnowsItsRankAndSize) {
  const auto fabrics = thread_fabrics(3, two_hosts(3));
  EXPECT_EQ(fabrics[2]->rank(), 2);
  EXPECT_EQ(fabrics[2]->size(), 3);
  EXPECT_EQ(fabrics[2]->cluster().names[1], "b");
  EXPECT_FALSE(fabrics[2]->cluster().overlaps_collectives) << "the ranks copy messages themselves";
  EXPECT_THROW(thread_fabrics(4, two_hosts(3)), InternalError);
}

TEST(ThreadFabric, ReceivesAndLocalsTakeEffectInTheOrderOfTheList) {
  std::vector<float> result(1);
  const auto ends = run_ranks(2, kStrict, [&](Fabric& fabric) {
    std::vector<float> big{1e8f}, small{1.0f}, two{2.0f}, minus{-1e8f};
    Transaction t{"order", 1, {}};
    if (fabric.rank() == 0)
      t.ops = {send(1, block_of(big)), send(1, block_of(small)), send(1, block_of(two))};
    else
      t.ops = {recv(0, block_of(result)),
               {Op::Kind::local, -1, block_of(result), block_of(minus), true, DType::f32},
               recv(0, block_of(result), true),
               recv(0, block_of(result), true)};
    fabric.run({0, {0, 1}}, t);
  });
  EXPECT_THAT(ends, Each(""));
  EXPECT_EQ(result[0], 3.0f);  // ((1e8 - 1e8) + 1) + 2; beside 1e8 the small ones would be lost
}

TEST(ThreadFabric, AReceiverThatHearsNothingNamesRankTransactionAndPeer) {
  const auto ends = run_ranks(2, kHasty, [](Fabric& fabric) {
    std::vector<float> x(4);
    if (fabric.rank() == 1) fabric.run({0, {0, 1}}, {"layer12.qkv", 3, {recv(0, block_of(x))}});
  });
  EXPECT_EQ(
      ends[1],
      "rank 1 (host b): \"layer12.qkv\" heard nothing from rank 0 for 0.2 s. See its log, or raise fabric.timeout.");
  EXPECT_EQ(ends[0], "");
}

TEST(ThreadFabric, ARankThatComputesIsNotSilent) {
  EXPECT_THAT(run_ranks(4, {suite::kShortTimeout, true}, [](Fabric& fabric) { suite::late_work(fabric, 0, 1); }),
              Each(""));
}

TEST(ThreadFabric, ASenderWhoseDataNobodyTakesNamesRankTransactionAndPeer) {
  const auto ends = run_ranks(2, kHasty, [](Fabric& fabric) {
    std::vector<float> x(4);
    if (fabric.rank() == 0) fabric.run({0, {0, 1}}, {"layer12.qkv", 3, {send(1, block_of(x))}});
  });
  EXPECT_EQ(ends[0],
            "rank 0 (host a): \"layer12.qkv\" waits for rank 1, which has not taken its data for 0.2 s. See its log, "
            "or raise "
            "fabric.timeout.");
}

TEST(ThreadFabric, AFailedTransactionStopsAllOtherRanksWithItsMessage) {
  const auto start = std::chrono::steady_clock::now();
  const auto ends = run_ranks(3, {20s, false}, [](Fabric& fabric) {
    std::vector<float> x(4), y(5);
    if (fabric.rank() == 0) fabric.run({0, {0, 1, 2}}, {"a", 1, {send(1, block_of(x))}});
    if (fabric.rank() == 1) fabric.run({0, {0, 1, 2}}, {"b", 1, {recv(0, block_of(y))}});
    if (fabric.rank() == 2) fabric.run({0, {0, 1, 2}}, {"c", 1, {recv(1, block_of(x))}});
  });
  const std::string reason =
      "rank 1 (host a): \"b\" expects transaction 1, 20 bytes, f32 from rank 0, which sends transaction 1, 16 bytes, "
      "f32. "
      "Do all ranks run the same job file and program?";
  EXPECT_EQ(ends[1], reason);
  EXPECT_EQ(ends[2], "rank 2 (host b): \"c\" stopped: " + reason);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST(ThreadFabric, RanksThatDisagreeInRowOrTypeSayHow) {
  const auto end_of_receiver = [](i64 number, DType dtype) {
    return run_ranks(2, {20s, false}, [&](Fabric& fabric) {
      std::vector<float> x(4);
      if (fabric.rank() == 0)
        fabric.run({0, {0, 1}}, {"t", 7, {send(1, block_of(x))}});
      else
        fabric.run({0, {0, 1}}, {"t", number, {recv(0, block_of(x), true, dtype)}});
    })[1];
  };
  EXPECT_EQ(end_of_receiver(7, DType::f32), "");
  EXPECT_THAT(end_of_receiver(8, DType::f32),
              HasSubstr("expects transaction 8, 16 bytes, f32 from rank 0, which sends transaction 7, 16 bytes, f32"));
  EXPECT_THAT(end_of_receiver(7, DType::bf16),
              HasSubstr("expects transaction 7, 16 bytes, bf16 from rank 0, which sends transaction 7, 16 bytes, f32"));
}

TEST(ThreadFabric, AbortWakesSendersAndReceiversAndLaterCallsThrowTheFirstReason) {
  const auto start = std::chrono::steady_clock::now();
  const auto fabrics = thread_fabrics(3, two_hosts(3), {20s, false});
  const auto ends = run_ranks(fabrics, [](Fabric& fabric) {
    auto x = std::make_unique<std::vector<float>>(1000);  // freed as the exception passes: nobody may read it after
    const Channel channel{0, {0, 1, 2}};
    if (fabric.rank() == 0) fabric.run(channel, {"send", 1, {send(2, block_of(*x))}});
    if (fabric.rank() == 1) fabric.run(channel, {"recv", 1, {recv(2, block_of(*x))}});
    if (fabric.rank() == 2) {
      std::this_thread::sleep_for(100ms);
      EXPECT_EQ(fabric.failure(), std::nullopt);
      fabric.abort("disk full");
      fabric.abort("later");
      fabric.run(channel, {"late", 1, {}});
    }
  });
  EXPECT_EQ(ends[0], "rank 0 (host a): \"send\" stopped: rank 2 (host b): disk full");
  EXPECT_EQ(ends[1], "rank 1 (host a): \"recv\" stopped: rank 2 (host b): disk full");
  EXPECT_EQ(ends[2], "rank 2 (host b): \"late\" stopped: rank 2 (host b): disk full");
  for (const auto& fabric : fabrics) EXPECT_EQ(fabric->failure(), "rank 2 (host b): disk full");
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST(ThreadFabric, CountsBytesSentByLinkClass) {
  const auto fabrics = thread_fabrics(4, two_hosts(4), kStrict);
  const auto ends = run_ranks(fabrics, [](Fabric& fabric) {
    std::vector<std::byte> memory(400);
    std::vector<Block> pieces;
    for (int r = 0; r < 4; ++r) pieces.push_back(contiguous(memory.data() + 100 * r, 10 * (r + 1)));
    all_gather(fabric, {0, {0, 1, 2, 3}}, "gather", 1, pieces);
  });
  EXPECT_THAT(ends, Each(""));
  for (i64 r = 0; r < 4; ++r)
    EXPECT_EQ(fabrics[static_cast<size_t>(r)]->traffic(), (Traffic{0, 10 * (r + 1), 20 * (r + 1)}));
}

TEST(ThreadFabric, StrictModePoisonsABlockUntilItIsFilled) {
  std::vector<std::uint32_t> x{1, 2, 3, 4}, kept{5, 6};
  const auto ends = run_ranks(2, {200ms, true}, [&](Fabric& fabric) {
    // The second receive adds, so what it adds to must stay.
    if (fabric.rank() == 0)
      fabric.run({0, {0, 1}},
                 {"x", 1, {recv(1, {reinterpret_cast<std::byte*>(x.data()), 2, 4, 8}), recv(1, block_of(kept), true)}});
  });
  EXPECT_THAT(ends[0], HasSubstr("heard nothing from rank 1"));
  EXPECT_EQ(x, (std::vector<std::uint32_t>{0xFFFFFFFF, 2, 0xFFFFFFFF, 4}));
  EXPECT_EQ(kept, (std::vector<std::uint32_t>{5, 6}));
}

TEST(ThreadFabric, StrictModeRefusesFallingRowsAndWrittenSends) {
  std::vector<float> x(4);
  const auto fabric = [] { return std::move(thread_fabrics(2, two_hosts(2), kStrict)[0]); };
  const Channel channel{5, {0, 1}};
  const auto ordered = fabric();
  ordered->run(channel, {"first", 7, {}});
  ordered->run(channel, {"same", 7, {}});
  ordered->run({6, {0, 1}}, {"other channel", 1, {}});
  try {
    ordered->run(channel, {"back", 6, {}});
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "rank 0: \"back\" has number 6 on channel 5 after number 7");
  }
  try {
    fabric()->run(channel, {"swap", 1, {send(1, block_of(x)), recv(1, block_of(x))}});
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "rank 0: \"swap\" writes a block that it sends to rank 1");
  }
}

}  // namespace
}  // namespace switchyard::comm
