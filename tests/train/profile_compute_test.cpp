#include "train/profile_compute.hpp"

#include <gtest/gtest.h>

#include "train/ranks.hpp"

namespace switchyard::train {
namespace {

OperatorProfile measured(std::vector<double>* told = nullptr) {
  OperatorProfile profile;
  kernels::install_rank_allocator();
  on_ranks(1, {}, cluster::uniform(1, 1), {}, [&](comm::Fabric& fabric) {
    kernels::RankMemory memory(kernels::machine_memory());
    const kernels::MemoryScope scope(&memory);
    RankSettings settings;
    settings.memory = &memory;
    MeasurementBarrier barrier(fabric);
    profile = profile_operators(barrier, {}, settings, wall_seconds, 24, true, [&](double share) {
      if (told) told->push_back(share);
    });
  });
  return profile;
}

TEST(ProfileOperators, more_work_takes_longer_and_progress_ends_at_all_of_it) {
  std::vector<double> told;
  const OperatorProfile profile = measured(&told);
  const cluster::OperatorTable& linear = profile.tables.at("linear");
  const double work = 2 * 128 * 384;
  EXPECT_LT(2 * linear.seconds(64, 128, work), linear.seconds(4096, 128, work));
  EXPECT_GT(profile.matmul.count, 1e8);
  EXPECT_EQ(profile.host_launch, Seconds{0}) << "on a CPU it is in the times of the operators";
  EXPECT_TRUE(std::ranges::is_sorted(told));
  EXPECT_DOUBLE_EQ(told.back(), 1);
}

}  // namespace
}  // namespace switchyard::train
