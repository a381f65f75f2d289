#include "comm/testing_fabric.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "comm/collectives.hpp"
#include "rank_threads.hpp"

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Three all-reduces (two transactions each) by two ranks, the second of which is faulty; then each rank's failure
// aborts.
std::vector<std::string> run_with(FaultyFabric::Fault fault, i64 nth) {
  auto fabrics = thread_fabrics(2, two_hosts(2), {300ms, true});
  fabrics[1] = std::make_unique<FaultyFabric>(std::move(fabrics[1]), nth, fault);
  return run_ranks(fabrics, [](Fabric& fabric) {
    try {
      for (i64 number = 0; number < 3; ++number) {
        std::vector<float> x(10, 1.0f);
        all_reduce(fabric, {0, {0, 1}}, fmt::format("reduce {}", number), number, x.data(), 10, DType::f32);
        EXPECT_EQ(x, std::vector<float>(10, 2.0f));
      }
    } catch (const std::exception& error) {
      fabric.abort(error.what());
      throw;
    }
  });
}

TEST(FaultyFabric, FailsTheNthTransactionAndNoOther) {
  const auto ends = run_with(FaultyFabric::Fault::fail, 3);
  EXPECT_EQ(ends[1], "rank 1 (host b): \"reduce 1\" failed on purpose as transaction 3.");
  EXPECT_EQ(ends[0], "rank 0 (host a): \"reduce 1\" stopped: " + ends[1]);
  EXPECT_EQ(run_with(FaultyFabric::Fault::fail, 7), (std::vector<std::string>{"", ""}));
}

TEST(FaultyFabric, ASilentRankIsFoundByItsPeersTimeoutAndThenStopsToo) {
  const auto ends = run_with(FaultyFabric::Fault::silence, 4);
  EXPECT_EQ(ends[0],
            "rank 0 (host a): \"reduce 1\" heard nothing from rank 1 for 0.3 s. See its log, or raise fabric.timeout.");
  EXPECT_EQ(ends[1], "rank 1 (host b): \"reduce 1\" stopped: " + ends[0]);
}

TEST(FaultyFabric, PassesOnWhatItWraps) {
  FaultyFabric fabric(std::move(thread_fabrics(3, two_hosts(3))[2]), 1, FaultyFabric::Fault::fail);
  EXPECT_EQ(fabric.rank(), 2);
  EXPECT_EQ(fabric.size(), 3);
  EXPECT_EQ(fabric.cluster().hosts(), 2);
  EXPECT_EQ(fabric.traffic(), Traffic{});
  EXPECT_TRUE(fabric.moves_device_memory());
  EXPECT_EQ(fabric.failure(), std::nullopt);
  fabric.abort("on purpose");
  EXPECT_EQ(fabric.failure(), "rank 2 (host b): on purpose");
}

TEST(FakeFabric, CountsTheBytesOfAClusterThatIsNotThere) {
  FakeFabric fabric(5, cluster::uniform(128, 8));
  Channel channel{0, {}};
  for (int r = 0; r < 1024; ++r) channel.ranks.push_back(r);
  std::vector<float> x(1024 * 10, 3.0f);
  all_reduce(fabric, channel, "x", 0, x.data(), static_cast<i64>(x.size()), DType::f32);
  EXPECT_EQ(fabric.traffic(), (Traffic{0, 2 * 7 * 40, 2 * 1016 * 40}));
  EXPECT_EQ(fabric.transactions(), 2);
  EXPECT_EQ(x[7], 3.0f);
}

TEST(FakeFabric, ChecksTransactionsAndRemembersTheFirstAbort) {
  FakeFabric fabric(0, cluster::uniform(1, 2));
  EXPECT_THROW(fabric.run({0, {0, 1}}, {"self", 0, {{Op::Kind::send, 0, {}, {}, false, DType::f32}}}), InternalError);
  EXPECT_THROW(FakeFabric(2, cluster::uniform(1, 2)), InternalError);
  fabric.abort("disk full");
  fabric.abort("later");
  try {
    fabric.run({0, {0, 1}}, {"x", 0, {}});
    FAIL();
  } catch (const ClusterError& error) {
    EXPECT_STREQ(error.what(), "rank 0 (host 0): \"x\" stopped: rank 0 (host 0): disk full");
  }
}

}  // namespace
}  // namespace switchyard::comm
