#include "simulator/task_work.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "simple_steps.hpp"

namespace switchyard::simulator {
namespace {

// Two hosts of two devices: 1 GB/s of memory, so that arithmetic takes no time.
class TaskWorkTest : public testing::Test {
 protected:
  TaskWorkTest() : plans_(plans_under({"4,1,1"}, 2, 2)), step_(plans_, 4), hardware_(arithmetic_only(2, 2)) {
    for (auto& [type, rates] : hardware_.device.rates) rates = {{kEndless}, {1e9}, {}};
    hardware_.intra_host.latency = {1e-4};
    hardware_.inter_host->latency = {1e-3};
  }
  const ir::Task& first(ir::TaskKind kind) const {
    return *std::ranges::find(step_.program.tasks, kind, &ir::Task::kind);
  }
  // Largest number of elements of a unit on any rank; -1: of all units.
  double most_elements(const std::vector<layout::ShardMap>& maps, int unit) const {
    std::map<int, i64> elements;
    for (size_t u = 0; u < plans_.units().size(); ++u)
      for (const int tensor : plans_.units()[u].tensors)
        for (const layout::Shard& shard : maps[static_cast<size_t>(tensor)].shards)
          if (unit < 0 || static_cast<int>(u) == unit) elements[shard.rank] += shard.box.elements();
    return static_cast<double>(
        std::ranges::max_element(elements, {}, [](const auto& entry) { return entry.second; })->second);
  }

  const compiler::Plans plans_;
  const Step step_;
  cluster::Hardware hardware_;
  KnownSegments known_;
};

TEST_F(TaskWorkTest, resources_are_ranks_ports_and_hosts) {
  const std::vector<int> kinds = TaskWork(step_.plan, plans_, hardware_, known_).kinds_of_resources();
  ASSERT_EQ(kinds.size(), 4u + 4 * 4 + 2);
  EXPECT_EQ(std::set<int>(kinds.begin(), kinds.end()).size(), 1u + 4 + 1);
  EXPECT_EQ(std::set<int>(kinds.begin(), kinds.begin() + 4).size(), 1u);
  EXPECT_EQ(kinds[4], kinds[8]) << "the same port of another device";
}

TEST_F(TaskWorkTest, an_update_moves_eight_numbers_of_the_state_and_one_to_compute_with) {
  TaskWork work(step_.plan, plans_, hardware_, known_);
  const ir::Task& update = first(ir::TaskKind::update);
  const PlacedWork& taken = work.work(update);
  EXPECT_NEAR(taken.seconds, (8 * 4 + 2) * most_elements(plans_.home(), update.unit) / 1e9, 1e-12);
  ASSERT_EQ(taken.claims.size(), update.ranks.size());
  for (const Claim& claim : taken.claims) EXPECT_EQ(claim.share, 1) << "all of its devices";
}

TEST_F(TaskWorkTest, the_norm_reads_the_gradients_and_is_agreed_by_halves) {
  TaskWork work(step_.plan, plans_, hardware_, known_);
  EXPECT_NEAR(work.work(first(ir::TaskKind::norm)).seconds, 4 * most_elements(plans_.owners(), -1) / 1e9 + 2 * 2 * 1e-3,
              1e-12);
}

TEST_F(TaskWorkTest, accumulators_are_zeroed_as_they_lie) {
  const TaskWork work(step_.plan, plans_, hardware_, known_);
  i64 elements = 0;
  for (const ir::Param& param : plans_.graph().params()) elements += ir::elements({DType::f32, param.shape}, {});
  EXPECT_NEAR(work.zeroing(first(ir::TaskKind::run)), 4 * static_cast<double>(elements) / 1e9, 1e-12);
}

TEST_F(TaskWorkTest, a_reduce_takes_devices_and_their_ports) {
  hardware_.inter_host->bandwidth = {1e6};
  TaskWork work(step_.plan, plans_, hardware_, known_);
  const PlacedWork& reduce = work.work(first(ir::TaskKind::reduce));
  std::set<int> resources;
  for (const Claim& claim : reduce.claims) {
    EXPECT_TRUE(resources.insert(claim.resource).second) << "each once";
    EXPECT_GE(claim.share, 0);
    EXPECT_LE(claim.share, 1);
  }
  EXPECT_GT(*resources.rbegin(), 3) << "ports come after the ranks";
  EXPECT_LT(*resources.rbegin(), 4 + 4 * 4) << "and before the hosts";
}

TEST_F(TaskWorkTest, replicas_with_equal_batches_and_host_patterns_share_their_times) {
  TaskWork work(step_.plan, plans_, hardware_, known_);
  std::set<const SegmentTimes*> times;
  std::set<int> devices;
  for (const ir::Task& task : step_.program.tasks)
    if (task.kind == ir::TaskKind::run && task.forward()) {
      const ReplicaSegment& segment = work.segment(task);
      times.insert(segment.times);
      devices.insert(segment.computing[0].resource);
    }
  EXPECT_EQ(devices, (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(times.size(), 2u) << "one for each place on a host";
}

}  // namespace
}  // namespace switchyard::simulator
