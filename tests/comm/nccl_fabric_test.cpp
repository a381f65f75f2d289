#include "comm/nccl_fabric.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/errors.hpp"
#include "fabric_suite.hpp"
#include "nccl_ranks.hpp"
#include "ops.hpp"

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kHasty = 1s;

// One float of each rank on its device, sent from the first rank to the second.
void pass_on(Fabric& fabric, const StreamDevice& device, float& x, const std::string& name, i64 number = 1,
             int channel = 1) {
  const Block block = device.block(&x, sizeof x);
  Transaction t{name, number, {}};
  if (fabric.rank() == 0) t.ops = {send(1, block)};
  if (fabric.rank() == 1) t.ops = {recv(0, block)};
  fabric.run(everyone(fabric, channel), t);
}
// Calls until one throws: what happens on a device ends a later call.
void pass_on_until_it_fails(Fabric& fabric, const StreamDevice& device, const std::string& name) {
  const auto x = device.freed_in_order(std::make_unique<float>());
  pass_on(fabric, device, *x, name);
  for (const auto start = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - start < 60s;) {
    fabric.run(everyone(fabric, 2), {"later", 1, {}});
    if (fabric.failure()) fabric.run(everyone(fabric, 1), {"last", 2, {}});
    std::this_thread::sleep_for(5ms);
  }
}

TEST(NcclFabric, RandomTransactionsOnFiveConcurrentChannelsGiveWhatPlainLoopsGive) {
  for (const int ranks : {1, 2, 3, 4})
    for (const bool strict : {false, true})
      EXPECT_THAT(run_nccl(ranks, standin(120s, strict),
                           [](Fabric& fabric, const StreamDevice& device) {
                             OnDevice on_device(fabric, device);
                             suite::concurrent_channels(on_device, 25, 7, 0);
                           }),
                  Each(""))
          << ranks << " ranks";
}

TEST(NcclFabric, CollectivesGiveWhatPlainLoopsGive) {
  EXPECT_THAT(run_nccl(3, standin(120s, true),
                       [](Fabric& fabric, const StreamDevice& device) {
                         OnDevice on_device(fabric, device);
                         suite::collectives(on_device, 1, 11, 1);
                       }),
              Each(""));
}

TEST(NcclFabric, EncodedMessagesOfHostsAreDecodedInTheirTurnBetweenOperationsOfDevices) {
  for (const bool strict : {false, true})
    EXPECT_THAT(run_nccl(3, standin(120s, strict),
                         [](Fabric& fabric, const StreamDevice& device) {
                           OnDevice on_device(fabric, device);
                           suite::encoded_messages(on_device, 1, 1);
                         }),
                Each(""));
}

TEST(NcclFabric, AnEncodedMessageIsNoLongerThanItMayBe) {
  EXPECT_THAT(run_nccl(2, standin(120s, true),
                       [](Fabric& fabric, const StreamDevice&) { suite::too_long_message(fabric, 1, 1); })[1],
              HasSubstr("expects transaction 1, 100 bytes, u8 from rank 0, which sends transaction 1, 101 bytes, u8"));
}

// Hosts' and devices' messages between the same two ranks, and sums whose order shows.
TEST(NcclFabric, ATransactionMayMoveMemoryOfHostsAndOfDevices) {
  for (const bool strict : {false, true}) {
    std::vector<float> on_device(1, 1e8F), on_host(2);
    EXPECT_THAT(run_nccl(2, standin(120s, strict),
                         [&](Fabric& fabric, const StreamDevice& device) {
                           std::vector<float> one{1}, minus{-1e8F}, pair{3, 4};
                           Transaction t{"both", 1, {}};
                           const Block sum = device.block(on_device.data(), 4);
                           if (fabric.rank() == 0)
                             t.ops = {send(1, device.block(one.data(), 4)), send(1, contiguous(pair.data(), 8)),
                                      send(1, device.block(minus.data(), 4)), send(1, device.block(one.data(), 4))};
                           else
                             t.ops = {recv(0, sum, true), recv(0, contiguous(on_host.data(), 8)), recv(0, sum, true),
                                      recv(0, sum, true)};
                           fabric.run(everyone(fabric, 1), t);
                           device.synchronise();
                         }),
                Each(""));
    EXPECT_EQ(on_device[0], 1);  // ((1e8 + 1) - 1e8) + 1
    EXPECT_EQ(on_host, (std::vector<float>{3, 4}));
  }
}

// Each rank writes its block, sends it around the ring, adds what comes to a sum, and overwrites what it sent. No host
// waits before the end.
TEST(NcclFabric, MessagesTakeTheirPlaceInTheStreamOfTheCallingThread) {
  constexpr i64 kBytes = 4 * sizeof(float);
  std::vector<std::vector<float>> sums(3, std::vector<float>(4)), values = sums;
  EXPECT_THAT(
      run_nccl(3, standin(60s),
               [&](Fabric& fabric, const StreamDevice& device) {
                 EXPECT_TRUE(fabric.moves_device_memory());
                 const auto mine = static_cast<size_t>(fabric.rank());
                 const Block value = device.block(values[mine].data(), kBytes),
                             sum = device.block(sums[mine].data(), kBytes);
                 for (int round = 0; round < 20; ++round) {
                   device.run(
                       [&, mine, round] { values[mine].assign(4, static_cast<float>(100 * round + fabric.rank())); });
                   const int next = (fabric.rank() + 1) % 3, before = (fabric.rank() + 2) % 3;
                   fabric.run(everyone(fabric, 1), {"around", round, {send(next, value), recv(before, sum, true)}});
                 }
                 device.synchronise();
               }),
      Each(""));
  for (size_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(sums[rank], std::vector<float>(4, 100 * 190 + 20 * static_cast<float>((rank + 2) % 3)));
}

TEST(NcclFabric, CountsBytesSentByLinkClass) {
  for (const bool strict : {false, true})
    EXPECT_THAT(run_nccl(4, standin(60s, strict),
                         [](Fabric& fabric, const StreamDevice& device) {
                           OnDevice on_device(fabric, device);
                           std::vector<std::byte> memory(400);
                           std::vector<Block> pieces;
                           for (int r = 0; r < 4; ++r)
                             pieces.push_back(contiguous(memory.data() + 100 * r, 10 * (r + 1)));
                           all_gather(on_device, everyone(fabric, 1), "gather", 1, pieces);
                           const i64 mine = 10 * (fabric.rank() + 1);
                           EXPECT_EQ(fabric.traffic(), (Traffic{0, mine, 2 * mine}));
                         }),
                Each(""));
}

TEST(NcclFabric, APeerThatTakesNoPartEndsTheJobWithRankTransactionAndPeer) {
  const auto start = std::chrono::steady_clock::now();
  const auto ends = run_nccl(3, standin(kHasty), [](Fabric& fabric, const StreamDevice& device) {
    if (fabric.rank() == 0) std::this_thread::sleep_for(2 * kHasty);
    if (fabric.rank() == 1) pass_on_until_it_fails(fabric, device, "layer12.qkv");
    while (!fabric.failure()) std::this_thread::sleep_for(5ms);
    fabric.run(everyone(fabric, 2), {"later", 1, {}});
  });
  const std::string reason =
      "rank 1 (host a): \"layer12.qkv\" has exchanged nothing with rank 0 for 1 s. See its log, or raise "
      "fabric.timeout.";
  EXPECT_THAT(ends[1], HasSubstr("stopped: " + reason));
  EXPECT_EQ(ends[2], "rank 2 (host b): \"later\" stopped: " + reason);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
}

TEST(NcclFabric, MessagesThatHangOnADeviceEndTheJob) {
  const NcclFault fault("hang");
  const auto ends = run_nccl(2, standin(kHasty), [](Fabric& fabric, const StreamDevice& device) {
    pass_on_until_it_fails(fabric, device, "stuck");
  });
  for (const std::string& end : ends)
    EXPECT_THAT(end, ContainsRegex("stopped: rank [01] .host [ab].: \"stuck\" has exchanged nothing with rank [01] "
                                   "for 1 s"));
}

TEST(NcclFabric, MayOpenAsManyFilesAsTheSystemAllows) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit files = before;
  files.rlim_cur = std::min<rlim_t>(512, files.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_THAT(run_nccl(2, standin(60s), [](Fabric&, const StreamDevice&) {}), Each(""));
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_EQ(files.rlim_cur, before.rlim_max);
  setrlimit(RLIMIT_NOFILE, &before);
}

// A communicator that ends gives memory back, for which CUDA waits for all that the device has under way.
TEST(NcclFabric, MessagesThatHangOnTwoChannelsAtOnceEndTheJob) {
  const NcclFault fault("hang");
  const auto ends = run_nccl(2, standin(kHasty), [](Fabric& fabric, const StreamDevice& device) {
    std::thread other([&] {
      const auto x = device.freed_in_order(std::make_unique<float>());
      pass_on(fabric, device, *x, "stuck, too", 1, 3);
    });
    other.join();
    pass_on_until_it_fails(fabric, device, "stuck");
  });
  EXPECT_THAT(ends,
              Each(ContainsRegex("stopped: rank [01] .host [ab].: \"stuck(, too)?\" has exchanged nothing with")));
}

TEST(NcclFabric, AnAsynchronousErrorEndsTheJobOnAllRanks) {
  const NcclFault fault("async", 1);
  const auto ends = run_nccl(3, standin(60s), [](Fabric& fabric, const StreamDevice& device) {
    pass_on_until_it_fails(fabric, device, "unlucky");
  });
  const std::string reason =
      "rank 1 (host a): \"unlucky\" with rank 0 failed on the device: asynchronous error: unhandled system error: "
      "async on purpose. See the logs of all ranks; NCCL_DEBUG=WARN says more.";
  for (const std::string& end : ends) EXPECT_THAT(end, HasSubstr(reason));
}

TEST(NcclFabric, ACallThatTheLibraryRefusesEndsTheJob) {
  const NcclFault fault("send", 0);
  const auto ends = run_nccl(2, standin(60s), [](Fabric& fabric, const StreamDevice& device) {
    pass_on_until_it_fails(fabric, device, "refused");
  });
  const std::string reason =
      "rank 0 (host a): \"refused\" with rank 1 failed on the device: ncclSend: invalid argument: send on purpose";
  EXPECT_THAT(ends[0], StartsWith(reason));
  EXPECT_THAT(ends[1], HasSubstr("stopped: " + reason));
}

TEST(NcclFabric, AbortOfARankEndsWhatOthersHaveUnderWayAndLaterCallsThrowTheFirstReason) {
  const auto ends = run_nccl(3, standin(60s), [](Fabric& fabric, const StreamDevice& device) {
    if (fabric.rank() == 2) {
      std::this_thread::sleep_for(100ms);
      fabric.abort("disk full");
      fabric.abort("later");
      fabric.run(everyone(fabric, 1), {"late", 1, {}});
    }
    if (fabric.rank() == 1) pass_on_until_it_fails(fabric, device, "x");
    while (!fabric.failure()) std::this_thread::sleep_for(5ms);
    fabric.run(everyone(fabric, 1), {"next", 1, {}});
  });
  EXPECT_EQ(ends[0], "rank 0 (host a): \"next\" stopped: rank 2 (host b): disk full");
  EXPECT_THAT(ends[1], HasSubstr("stopped: rank 2 (host b): disk full"));
  EXPECT_EQ(ends[2], "rank 2 (host b): \"late\" stopped: rank 2 (host b): disk full");
}

TEST(NcclFabric, ARankThatEndsByAnErrorOfItsOwnEndsTheOthers) {
  const auto ends = run_nccl(2, standin(60s), [](Fabric& fabric, const StreamDevice& device) {
    if (fabric.rank() == 0) throw std::runtime_error("my own");
    pass_on_until_it_fails(fabric, device, "x");
  });
  EXPECT_EQ(ends[0], "my own");
  EXPECT_THAT(ends[1], HasSubstr("stopped: rank 0 (host a) was ended by an error of its own. See its log."));
}

TEST(NcclFabric, StrictRanksThatDisagreeInRowOrTypeSayHow) {
  const auto end_of_receiver = [](i64 number, DType dtype) {
    return run_nccl(2, standin(60s, true), [&](Fabric& fabric, const StreamDevice& device) {
      std::vector<float> x(4);
      if (fabric.rank() == 0)
        fabric.run(everyone(fabric, 1), {"t", 7, {send(1, device.block(x.data(), 16))}});
      else
        fabric.run(everyone(fabric, 1), {"t", number, {recv(0, device.block(x.data(), 16), true, dtype)}});
      device.settle(device.block(x.data(), 16));
    })[1];
  };
  EXPECT_EQ(end_of_receiver(7, DType::f32), "");
  EXPECT_THAT(end_of_receiver(7, DType::bf16),
              HasSubstr("expects transaction 7, 16 bytes, bf16 from rank 0, which sends transaction 7, 16 bytes, f32"));
  EXPECT_THAT(end_of_receiver(8, DType::f32), HasSubstr("expects transaction 8, "));
}

TEST(NcclFabric, RanksThatDisagreeInSizeEndByTheTimeout) {
  std::vector<std::vector<float>> x(2, std::vector<float>(5));
  const auto ends = run_nccl(2, standin(kHasty), [&](Fabric& fabric, const StreamDevice& device) {
    const auto mine = static_cast<size_t>(fabric.rank());
    const Block block = device.block(x[mine].data(), fabric.rank() == 0 ? 16 : 20);
    fabric.run(everyone(fabric, 1), {"t", 1, {fabric.rank() == 0 ? send(1, block) : recv(0, block)}});
    while (!fabric.failure()) std::this_thread::sleep_for(5ms);
    fabric.run(everyone(fabric, 1), {"next", 1, {}});
  });
  EXPECT_THAT(ends, Each(HasSubstr("\"t\" has exchanged nothing with rank")));
}

TEST(NcclFabric, StrictModePoisonsReceivesAndRefusesFallingRowsAndWrittenSends) {
  std::uint32_t x = 7;
  EXPECT_THAT(run_nccl(2, standin(kHasty, true),
                       [&](Fabric& fabric, const StreamDevice& device) {
                         if (fabric.rank() == 0)
                           fabric.run(everyone(fabric, 1), {"x", 1, {recv(1, device.block(&x, 4))}});
                       })[0],
              HasSubstr("heard nothing from rank 1"));
  EXPECT_EQ(x, 0xFFFFFFFF);
  const auto end_of = [](i64 number, bool written) {
    return run_nccl(1, standin(60s, true), [&](Fabric& fabric, const StreamDevice& device) {
      std::vector<float> a(1), b(1);
      const Block to = device.block(a.data(), 4), from = device.block(b.data(), 4);
      const Op local{Op::Kind::local, -1, to, from, false, DType::f32};
      fabric.run(everyone(fabric, 1), {"first", 7, {local}});
      device.synchronise();
      fabric.run({1, {0, 1}}, {"next", number, {local, written ? send(1, to) : local}});
      device.synchronise();
    })[0];
  };
  EXPECT_EQ(end_of(7, false), "");
  EXPECT_EQ(end_of(6, false), "rank 0: \"next\" has number 6 on channel 1 after number 7");
  EXPECT_EQ(end_of(7, true), "rank 0: \"next\" writes a block that it sends to rank 1");
}

TEST(NcclFabric, OnlyChannelsThatHaveACommunicatorMoveMemoryOfDevices) {
  EXPECT_THAT(
      run_nccl(2, standin(60s),
               [](Fabric& fabric, const StreamDevice& device) {
                 float x = 0;
                 const Block block = device.block(&x, 4);
                 fabric.run(everyone(fabric, 9), {"x", 1, {fabric.rank() == 0 ? send(1, block) : recv(0, block)}});
               }),
      Each(HasSubstr("\"x\" moves blocks of devices on channel 9, but only 0, 1, 2, 3, 4 may")));
}

TEST(NcclFabric, RanksThatCannotBeConnectedSaySo) {
  const auto ends = [](const char* fault, int rank, std::chrono::milliseconds timeout = 60s) {
    const NcclFault set(fault, rank);
    return run_nccl(2, standin(timeout), [](Fabric&, const StreamDevice&) {});
  };
  const auto refused = ends("init", 1);
  const std::string reason =
      "rank 1 (host b): \"connecting channel 0\" with rank 0 failed on the device: asynchronous error: unhandled cuda "
      "error: init on purpose.";
  EXPECT_THAT(refused[1], StartsWith(reason));
  EXPECT_THAT(refused[0], HasSubstr("stopped: " + reason));
  EXPECT_THAT(ends("init_hang", 1, kHasty),
              Each(HasSubstr("\"connecting channel 0\" has exchanged nothing with rank")));
  EXPECT_THAT(ends("unique_id", -1)[0],
              "rank 0 (host a): NCCL makes no id for its ranks to meet: unhandled system error: unique_id on purpose. "
              "NCCL_DEBUG=WARN says more.");
}

TEST(NcclFabric, ARankWithoutTheLibraryEndsTheOthers) {
  std::vector<NcclOptions> options(2, standin(60s));
  options[1].library = "/nowhere/libnccl.so.2";
  const auto ends = run_nccl(options, [](Fabric&, const StreamDevice&) {});
  EXPECT_THAT(ends[1], StartsWith("devices need NCCL to exchange data, but it can't be loaded: /nowhere/libnccl.so.2"));
  EXPECT_THAT(ends[0], HasSubstr("stopped: rank 1 (host b): " + ends[1]));
}

TEST(NcclFabric, RanksHaveTheSameChannels) {
  std::vector<NcclOptions> options(2, standin(60s));
  options[1].channels.pop_back();
  const auto ends = run_nccl(options, [](Fabric&, const StreamDevice&) {});
  EXPECT_EQ(ends[1],
            "rank 1 (host b): there are 4 channels and groups of devices here, and 5 at rank 0. Do all ranks run the "
            "same job file?");
  EXPECT_THAT(ends[0], HasSubstr("there are 4 channels and groups of devices"));
}

}  // namespace
}  // namespace switchyard::comm
