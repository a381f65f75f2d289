#include "comm/nccl_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "fake_device.hpp"
#include "nccl_ranks.hpp"
#include "rank_threads.hpp"

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

const Channel kSeven{7, {}};

struct OneRank {
  explicit OneRank(std::chrono::milliseconds timeout) : watch(*fabrics[0], device, timeout) {
    nccl::UniqueId id{};
    library.GetUniqueId(&id);
    const auto communicator = std::make_shared<NcclCommunicator>(library, 1, id, 0, 4);
    while (!communicator->ready()) std::this_thread::yield();
    watch.add(kSeven, communicator);
  }
  NcclLibrary library{STANDIN_NCCL};
  FakeDevice device;
  std::vector<std::unique_ptr<Fabric>> fabrics = thread_fabrics(1, two_hosts(1));
  NcclWatch watch;
};

TEST(NcclWatch, WaitsAtTheEndForWhatIsUnderWay) {
  OneRank rank(60s);
  rank.device.set_reached(false);
  rank.watch.add(kSeven, {"slow", {3}, rank.device.mark(), rank.device.mark()});
  std::thread device([&] {
    std::this_thread::sleep_for(100ms);
    rank.device.set_reached(true);
  });
  rank.watch.close();
  EXPECT_TRUE(rank.device.reached({}));
  device.join();
  EXPECT_EQ(rank.fabrics[0]->failure(), std::nullopt);
  EXPECT_EQ(rank.watch.of({7, {0, 1}}), nullptr);
}

TEST(NcclWatch, SilenceCountsFromWhenTheDeviceBeginsTheMessages) {
  OneRank rank(100ms);
  rank.device.set_reached(false);
  const BlockDevice::Mark begun = rank.device.mark();
  rank.watch.add(kSeven, {"layer12.qkv", {1, 3}, begun, rank.device.mark()});
  std::this_thread::sleep_for(400ms);
  EXPECT_EQ(rank.fabrics[0]->failure(), std::nullopt) << "the stream has work before them";
  rank.device.reach(begun);
  rank.watch.close();
  EXPECT_EQ(rank.fabrics[0]->failure(),
            "rank 0 (host a): \"layer12.qkv\" has exchanged nothing with ranks 1, 3 for 0.1 s. See their logs, or "
            "raise fabric.timeout.");
}

TEST(NcclWatch, WhileAnyRankWorksNoneIsSilent) {
  OneRank rank(1s);
  rank.device.set_reached(false);
  const BlockDevice::Mark begun = rank.device.mark(), done = rank.device.mark();
  rank.device.reach(begun);
  rank.watch.add(kSeven, {"from a stage before", {3}, begun, done});
  for (int sign = 0; sign < 250; ++sign) {
    rank.fabrics[0]->works();
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(rank.fabrics[0]->failure(), std::nullopt);
  rank.watch.close();
  EXPECT_EQ(rank.fabrics[0]->failure(),
            "rank 0 (host a): \"from a stage before\" has exchanged nothing with rank 3 for 1 s. See its log, or raise "
            "fabric.timeout.");
}

// Else it would work with the first device, and take memory there for a context.
TEST(NcclWatch, ItsThreadWorksWithTheDevice) {
  OneRank rank(60s);
  rank.watch.add(kSeven, {"gather", {1}, rank.device.mark(), rank.device.mark()});
  rank.watch.close();
  EXPECT_GT(rank.device.questions(), 0);
  EXPECT_TRUE(rank.device.only_adopted_asked());
}

// The watch may look between a call and the caller's own question.
TEST(NcclWatch, NamesWhatIsBeingGivenToAStream) {
  OneRank rank(60s);
  const NcclFault fault("async", 0);
  rank.watch.add(kSeven, {.name = "unlucky", .peers = {3}, .begun = rank.device.mark(), .done = {}});
  std::byte x{};
  const NcclMessage message{.send = true, .peer = 0, .data = &x, .bytes = 1};
  rank.watch.of(kSeven)->issue(std::span(&message, 1), &x);
  while (!rank.fabrics[0]->failure()) std::this_thread::sleep_for(1ms);
  EXPECT_THAT(*rank.fabrics[0]->failure(), HasSubstr("\"unlucky\" with rank 3 failed on the device: asynchronous"));
  rank.watch.close();
}

TEST(NcclWatch, KnowsCommunicatorsOfGroupsByChannelAndRanks) {
  EXPECT_EQ(name_of_queue(kSeven), "channel 7");
  EXPECT_EQ(name_of_queue({7, {0, 1}}), "channel 7 of ranks 0, 1");
  OneRank rank(100ms);
  rank.device.set_reached(true);
  rank.watch.add({7, {0}}, rank.watch.of(kSeven));
  EXPECT_EQ(rank.watch.of({7, {0}}), rank.watch.of(kSeven));
  rank.device.set_reached(false);
  const BlockDevice::Mark begun = rank.device.mark();
  rank.device.reach(begun);
  rank.watch.add({7, {0}}, {"gather", {1}, begun, rank.device.mark()});
  rank.watch.close();
  EXPECT_EQ(rank.fabrics[0]->failure(),
            "rank 0 (host a): \"gather\" has exchanged nothing with rank 1 for 0.1 s. See its log, or raise "
            "fabric.timeout.");
}

TEST(NcclWatch, AFailureOfTheHostEndsCommunicators) {
  OneRank rank(60s);
  rank.device.set_reached(false);
  rank.watch.add(kSeven, {"stuck", {3}, rank.device.mark(), rank.device.mark()});
  rank.fabrics[0]->abort("disk full");
  rank.watch.close();
  EXPECT_THROW(rank.watch.of(kSeven)->ready(), NcclError);
  EXPECT_THROW(rank.watch.stop_if_failed("next"), ClusterError);
}

TEST(NcclWatch, AbortedCommunicatorsAreNoneWhenTheCallReturns) {
  OneRank rank(60s);
  rank.fabrics[0]->abort("disk full");
  rank.watch.abort_all();
  EXPECT_THROW(rank.watch.of(kSeven)->ready(), NcclError);
}

}  // namespace
}  // namespace switchyard::comm
