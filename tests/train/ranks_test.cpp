#include "train/ranks.hpp"

#include <gtest/gtest.h>

#include <atomic>

#include "../files/scratch.hpp"
#include "base/errors.hpp"

namespace switchyard::train {
namespace {

using files::message_of;

TEST(Ranks, EveryRankWorksOnceWithItsOwnNumber) {
  std::atomic<int> seen = 0;
  on_ranks(3, {}, cluster::uniform(1, 3), {}, [&](comm::Fabric& fabric) {
    EXPECT_EQ(fabric.size(), 3);
    seen += 1 << (4 * fabric.rank());
  });
  EXPECT_EQ(seen, 0x111);
}

TEST(Ranks, TheFirstErrorIsRethrownAndEndsTheWaitingOfTheOthers) {
  std::atomic<int> stopped = 0;
  const auto work = [&](comm::Fabric& fabric) {
    if (fabric.rank() == 2) user_error("rank two is unwell");
    double value = 0;
    try {
      fabric.run({1, {fabric.rank(), 2}}, {"wait", 1, {{comm::Op::Kind::recv, 2, comm::contiguous(&value, 8), {}, false, DType::f64}}});
    } catch (const ClusterError&) {
      ++stopped;
      throw;
    }
  };
  EXPECT_EQ(message_of<UserError>([&] { on_ranks(3, {}, cluster::uniform(1, 3), {}, work); }), "rank two is unwell");
  EXPECT_EQ(stopped, 2);
}

TEST(Ranks, ALaunchOfAnotherSizeThanTheJobIsRefused) {
  comm::Launch launch;
  launch.distributed = true;
  launch.size = 3;
  EXPECT_EQ(message_of<UserError>([&] { on_ranks(4, launch, cluster::uniform(1, 4), {}, [](comm::Fabric&) {}); }),
            "the job is for 4 ranks, but 3 were launched. Launch 4, or change run.ranks.");
}

}  // namespace
}  // namespace switchyard::train
