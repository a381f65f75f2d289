#include "train/host_share.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <mutex>
#include <utility>

#include "../message_of.hpp"
#include "../standin/device.hpp"
#include "base/environment.hpp"
#include "base/errors.hpp"
#include "train/ranks.hpp"

namespace switchyard::train {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

HostView view(int first_core, int cores, int gpus = 0, const std::string& visible = "") {
  HostView made;
  for (int core = first_core; core < first_core + cores; ++core) made.cores.set(static_cast<size_t>(core));
  made.gpus = gpus;
  visible.copy(made.visible_gpus.data(), made.visible_gpus.size() - 1);
  return made;
}

std::vector<int> threads_of(const std::vector<HostView>& all, const std::vector<int>& host) {
  std::vector<int> threads;
  for (size_t rank = 0; rank < all.size(); ++rank) threads.push_back(threads_for(static_cast<int>(rank), all, host));
  return threads;
}

TEST(HostShare, CoresOfAHostAreSharedByItsOwnRanks) {
  EXPECT_EQ(threads_of(std::vector(4, view(0, 16)), {0, 0, 1, 1}), (std::vector{8, 8, 8, 8}));
  EXPECT_EQ(threads_of({view(0, 16), view(0, 16), view(0, 16), view(0, 8)}, {0, 0, 0, 1}), (std::vector{5, 5, 5, 8}));
  EXPECT_EQ(threads_of(std::vector(3, view(0, 3)), {0, 0, 0}), (std::vector{1, 1, 1}));
  EXPECT_EQ(threads_of(std::vector(4, view(0, 2)), {0, 0, 0, 0}), (std::vector{1, 1, 1, 1}));
}

TEST(HostShare, ARankThatIsBoundKeepsTheCoresThatItIsBoundTo) {
  EXPECT_EQ(threads_of({view(0, 8), view(8, 8)}, {0, 0}), (std::vector{8, 8}));
  EXPECT_EQ(threads_of({view(0, 4), view(0, 16)}, {0, 0}), (std::vector{2, 14}));
}

std::vector<int> gpus_of(const std::vector<HostView>& all, const std::vector<int>& host, bool threads = false) {
  std::vector<int> gpus;
  for (size_t rank = 0; rank < all.size(); ++rank) gpus.push_back(gpu_for(static_cast<int>(rank), all, host, threads));
  return gpus;
}

TEST(HostShare, RanksOfAHostTakeItsDevicesInTurn) {
  EXPECT_EQ(gpus_of(std::vector(4, view(0, 1, 2)), {0, 0, 1, 1}), (std::vector{0, 1, 0, 1}));
  EXPECT_EQ(gpus_of(std::vector(4, view(0, 1, 2)), {0, 1, 0, 1}), (std::vector{0, 0, 1, 1}));
  EXPECT_EQ(gpus_of({view(0, 1, 1, "2"), view(0, 1, 1, "5")}, {0, 0}),
            (std::vector{0, 0}));  // a launcher showed each its own
}

// Slurm's cgroups and containers number what they show each process from 0.
TEST(HostShare, ProcessesThatCallDifferentDevicesByOneNumberHaveDifferentOnes) {
  const auto of = [](std::vector<std::string> identities) {
    const int gpus = static_cast<int>(identities.size());
    return view(0, 1, gpus, visible_gpus(identities, "0"));
  };
  EXPECT_EQ(gpus_of({of({"uuid a"}), of({"uuid b"})}, {0, 0}), (std::vector{0, 0}));
  EXPECT_EQ(gpus_of(std::vector(2, of({"uuid a", "uuid b"})), {0, 0}), (std::vector{0, 1}));
  EXPECT_THROW(gpus_of(std::vector(2, of({"uuid a"})), {0, 0}), UserError);
  EXPECT_EQ(visible_gpus({"", ""}, "2,3"), "2,3") << "what they are is not known";
  EXPECT_EQ(visible_gpus({}, "2,3"), "2,3");
}

TEST(HostShare, MoreProcessesThanDevicesAreRefusedAndThreadsShare) {
  const std::vector<HostView> four(4, view(0, 1, 2));
  EXPECT_EQ(gpus_of(four, {0, 0, 0, 0}, true), (std::vector{0, 1, 0, 1}));
  try {
    gpu_for(3, four, {1, 0, 0, 0}, false);
    ADD_FAILURE() << "three processes on two devices";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "run.device = \"cuda\": rank 3 shares 2 CUDA devices with 2 other ranks of its host. Start as many "
                 "ranks on a host as it "
                 "has devices.");
  }
  EXPECT_THROW(gpu_for(0, {view(0, 1)}, {0}, true), UserError);
}

TEST(HostShare, EveryRankGetsThreadsAndThoseThatAreGivenStay) {
  int cores = 0;  // one rank has them all
  on_ranks(1, {}, cluster::uniform(1, 1), {}, [&](comm::Fabric& fabric) {
    cores = with_host_share({.threads = 0}, fabric, cluster::DeviceType::cpu, true).threads;
  });
  EXPECT_GE(cores, 1);
  for (const auto& [hosts, ranks] : {std::pair{1, 4}, std::pair{2, 2}}) {
    std::mutex mutex;
    std::vector<int> threads;
    on_ranks(hosts * ranks, {}, cluster::uniform(hosts, ranks), {}, [&, ranks = ranks](comm::Fabric& fabric) {
      const int shared = with_host_share({.threads = 0}, fabric, cluster::DeviceType::cpu, true).threads;
      const std::lock_guard lock(mutex);
      threads.push_back(shared);
    });
    EXPECT_THAT(threads, Each(std::max(1, cores / ranks)));
  }
  on_ranks(2, {}, cluster::uniform(1, 2), {}, [](comm::Fabric& fabric) {
    EXPECT_EQ(with_host_share({.threads = 3}, fabric, cluster::DeviceType::cpu, true).threads, 3);
  });
}

// NCCL and other libraries take the device that is current for the calling thread: else the first one, for all ranks.
TEST(HostShare, ARankWorksWithItsDevice) {
  const at::DeviceType before = std::exchange(gpu_type(), standin::device().type());
  on_ranks(2, {}, cluster::uniform(1, 2), {}, [](comm::Fabric& fabric) {
    EXPECT_FALSE(standin::is_chosen());
    with_host_share({.threads = 1}, fabric, cluster::DeviceType::cuda, true);
    EXPECT_TRUE(standin::is_chosen());
  });
  gpu_type() = before;
}

TEST(HostShare, ADeviceHasAQueueForEachStreamUnlessTheUserSaysHowMany) {
  constexpr const char* kName = "CUDA_DEVICE_MAX_CONNECTIONS";
  const at::DeviceType before = std::exchange(gpu_type(), standin::device().type());
  unsetenv(kName);
  require_device(cluster::DeviceType::cpu);
  EXPECT_EQ(environment(kName), std::nullopt);
  require_device(cluster::DeviceType::cuda);
  EXPECT_EQ(environment(kName), "32");
  setenv(kName, "8", 1);
  require_device(cluster::DeviceType::cuda);
  EXPECT_EQ(environment(kName), "8");
  unsetenv(kName);
  gpu_type() = before;
}

TEST(HostShare, AJobThatNamesNoDeviceTakesCudaWhereThereIsOne) {
  const at::DeviceType before = std::exchange(gpu_type(), standin::device().type());
  EXPECT_EQ(device_type(), cluster::DeviceType::cuda);
  EXPECT_EQ(environment("CUDA_DEVICE_MAX_CONNECTIONS"), "32") << "said before CUDA is asked";
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  gpu_type() = before;
  EXPECT_EQ(device_type(), gpu_count() > 0 ? cluster::DeviceType::cuda : cluster::DeviceType::cpu);
}

TEST(HostShare, RanksWithAndWithoutADeviceAreRefusedOnAllOfThem) {
  std::vector<HostView> all(4, view(0, 2));
  require_one_type(all);
  all[2].device = cluster::DeviceType::cuda;
  EXPECT_THAT(message_of([&] { require_one_type(all); }), HasSubstr("rank 2 has a CUDA device, rank 0 has none"));
  for (const size_t rank : {0, 1}) all[rank].device = cluster::DeviceType::cuda;
  EXPECT_THAT(message_of([&] { require_one_type(all); }), HasSubstr("rank 0 has a CUDA device, rank 3 has none"));
  const at::DeviceType before = std::exchange(gpu_type(), standin::device().type());
  on_ranks(2, {}, cluster::uniform(2, 1), {}, [](comm::Fabric& fabric) {
    const auto device = fabric.rank() == 0 ? cluster::DeviceType::cpu : cluster::DeviceType::cuda;
    EXPECT_THROW(with_host_share({.threads = 1}, fabric, device, true), UserError);
  });
  gpu_type() = before;
}

TEST(HostShare, ACudaDeviceIsRequiredBeforeAnythingStarts) {
  EXPECT_NO_THROW(require_device(cluster::DeviceType::cpu));
  try {
    require_device(cluster::DeviceType::cuda);
    GTEST_SKIP() << "this host has a CUDA device";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("run.device = \"cuda\": this process has no CUDA device"));
  }
}

}  // namespace
}  // namespace switchyard::train
