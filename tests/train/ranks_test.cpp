#include "train/ranks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "../comm/tcp_ranks.hpp"
#include "../files/scratch.hpp"
#include "../standin/device.hpp"
#include "base/errors.hpp"

namespace switchyard::train {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

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
      fabric.run({1, {fabric.rank(), 2}},
                 {"wait", 1, {{comm::Op::Kind::recv, 2, comm::contiguous(&value, 8), {}, false, DType::f64}}});
    } catch (const ClusterError&) {
      ++stopped;
      throw;
    }
  };
  EXPECT_EQ(message_of<UserError>([&] { on_ranks(3, {}, cluster::uniform(1, 3), {}, work); }), "rank two is unwell");
  EXPECT_EQ(stopped, 2);
}

// A rank may be the last to end, as it waits for its own threads, while the others have heard of its error.
TEST(Ranks, TheErrorThatEndedTheJobIsRethrownThoughOthersThatFollowItComeFirst) {
  std::atomic<int> stopped = 0;
  const auto work = [&](comm::Fabric& fabric) {
    const comm::Channel all{1, {0, 1, 2}};
    double value = 0;
    if (fabric.rank() != 2) {
      try {
        fabric.run(all, {"wait", 1, {{comm::Op::Kind::recv, 2, comm::contiguous(&value, 8), {}, false, DType::f64}}});
      } catch (const ClusterError& error) {
        EXPECT_THAT(error.what(), HasSubstr("\"wait\" stopped: rank 2 (host 0): it is unwell"));
        ++stopped;
        throw;
      }
    }
    fabric.abort("it is unwell");
    while (stopped < 2) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    user_error("it is unwell");
  };
  EXPECT_EQ(message_of<UserError>([&] { on_ranks(3, {}, cluster::uniform(1, 3), {}, work); }), "it is unwell");
}

TEST(Ranks, ADeviceWithoutMemoryIsToldWithTheRank) {
  const auto work = [](comm::Fabric& fabric) {
    if (fabric.rank() == 1) C10_THROW_ERROR(OutOfMemoryError, "64 GiB were asked for");
  };
  EXPECT_THAT(message_of<UserError>([&] { on_ranks(2, {}, cluster::uniform(1, 2), {}, work); }),
              testing::StartsWith("rank 1: its device has no memory left for its part of the model: 64 GiB were asked "
                                  "for. Set a smaller micro_batch_tokens"));
}

TEST(Ranks, ALaunchOfAnotherSizeThanTheJobIsRefused) {
  comm::Launch launch;
  launch.distributed = true;
  launch.size = 3;
  EXPECT_EQ(message_of<UserError>([&] { on_ranks(4, launch, cluster::uniform(1, 4), {}, [](comm::Fabric&) {}); }),
            "the job is for 4 ranks, but 3 were launched. Launch 4, or change run.ranks.");
}

TEST(Ranks, more_threads_than_a_machine_has_are_refused) {
  check_threads(1024, 0);
  check_threads(2, 512);
  EXPECT_EQ(message_of<UserError>([] { check_threads(0, 1); }), "there can't be 0 ranks. Use 1 or more.");
  EXPECT_EQ(message_of<UserError>([] { check_threads(1, -1); }),
            "a rank can't compute with -1 threads. Use 1 or more.");
  for (const auto& [ranks, threads] :
       {std::pair<i64, i64>(1025, 0), {1, 1025}, {2, 513}, {i64{1} << 62, 4}, {4, i64{1} << 62}})
    EXPECT_NE(message_of<UserError>([&, r = ranks, t = threads] {
                check_threads(r, t);
              }).find("would start more than 1024 threads"),
              std::string::npos);
}

TEST(Ranks, NcclJoinsDevicesThatTheHostsFabricDoesNot) {
  const at::Device device = standin::device();
  const auto joined = [&](int ranks, const at::Device& where, bool nccl, bool by_threads) {
    std::atomic<int> by_nccl = 0;
    const auto work = [&](comm::Fabric& host) {
      config::FabricSettings settings;
      settings.nccl = nccl;
      const auto by = [&](comm::Fabric& fabric) {
        by_nccl += fabric.moves_device_memory() && !host.moves_device_memory();
      };
      on_devices(
          host, where,
          [] {
            return DeviceChannels{{5, 7}};
          },
          settings, by);
    };
    if (by_threads)
      on_ranks(ranks, {}, cluster::uniform(1, ranks), {}, work);
    else
      EXPECT_THAT(comm::run_tcp(ranks, {}, work), Each(""));
    return by_nccl == ranks;
  };
  setenv("SWITCHYARD_NCCL", STANDIN_NCCL, 1);
  EXPECT_TRUE(joined(2, device, true, false));
  EXPECT_FALSE(joined(1, device, true, false)) << "there is nobody to talk to";
  EXPECT_FALSE(joined(2, device, false, false));
  EXPECT_FALSE(joined(2, at::kCPU, true, false));
  EXPECT_FALSE(joined(2, device, true, true)) << "threads copy from device to device";
  unsetenv("SWITCHYARD_NCCL");
}

TEST(Ranks, SumsOfALibraryAreForJobsThatMayHaveAnyOrder) {
  setenv("SWITCHYARD_NCCL", STANDIN_NCCL, 1);
  for (const bool deterministic : {true, false}) {
    const auto work = [&](comm::Fabric& host) {
      config::FabricSettings settings;
      settings.deterministic = deterministic;
      const std::vector<int> group{1, 0};
      on_devices(
          host, standin::device(),
          [&] {
            return DeviceChannels{{5}, {{5, group}}};
          },
          settings,
          [&](comm::Fabric& fabric) {
            EXPECT_TRUE(fabric.serves(5, GroupCall::all_gather, group));
            EXPECT_EQ(fabric.serves(5, GroupCall::reduce_scatter, group), !deterministic);
          });
    };
    EXPECT_THAT(comm::run_tcp(2, {}, work), Each(""));
  }
  unsetenv("SWITCHYARD_NCCL");
}

TEST(Ranks, ARankGivesASignOfWorkOnceMoreWhenItsDeviceGetsThere) {
  on_ranks(2, {}, cluster::uniform(1, 2), {}, [](comm::Fabric& host) {
    on_devices(
        host, standin::device(), [] { return DeviceChannels{}; }, {},
        [&](comm::Fabric& fabric) {
          if (fabric.rank() == 0) fabric.works();
          while (host.work_heard() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
  });
}

TEST(Ranks, TheOthersHearWhyARankOnADeviceFailed) {
  setenv("SWITCHYARD_NCCL", STANDIN_NCCL, 1);
  const auto ends = comm::run_tcp(2, {}, [&](comm::Fabric& host) {
    const auto channels = [] { return DeviceChannels{{5}}; };
    on_devices(host, standin::device(), channels, {}, [&](comm::Fabric& fabric) {
      if (fabric.rank() == 1) user_error("rank one is unwell");
      double value = 0;
      fabric.run({1, {0, 1}},
                 {"wait", 1, {{comm::Op::Kind::recv, 1, comm::contiguous(&value, 8), {}, false, DType::f64}}});
    });
  });
  unsetenv("SWITCHYARD_NCCL");
  EXPECT_THAT(ends, ElementsAre(HasSubstr("rank one is unwell"), "rank one is unwell"));
}

}  // namespace
}  // namespace switchyard::train
