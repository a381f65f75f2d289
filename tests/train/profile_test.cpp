#include "train/profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "../message_of.hpp"
#include "../standin/device.hpp"
#include "base/errors.hpp"
#include "config/emulated_cluster.hpp"
#include "train/host_share.hpp"

namespace switchyard::train {
namespace {

config::Profile quick(int ranks, Precision precision = {}) {
  return profile({.ranks = ranks, .threads = 1, .precisions = {precision}, .quick = true}, {});
}

TEST(Profile, has_what_a_simulation_asks_for) {
  const config::Profile found = quick(2);
  const cluster::Hardware& h = found.hardware;
  EXPECT_EQ(h.ranks(), 2);
  EXPECT_EQ(found.machine.ranks, 2);
  EXPECT_EQ(found.machine.threads, 1);
  EXPECT_GT(h.device.rates_of(DType::f32).matmul.count, 1e8);
  EXPECT_GT(h.intra_host.bandwidth.count, 1e6);
  EXPECT_GT(h.intra_host.latency.count, 0);
  EXPECT_EQ(h.intra_host.curve.error(), "");
  EXPECT_GE(h.intra_host.overlap_slowdown, 1);
  for (const char* name : {"linear", "linear_dx", "linear_dw", "head_loss", "rms_norm", "swiglu", "rope", "embedding",
                           "adamw", "zero", "copy", "add"}) {
    const cluster::OperatorTable* table = h.device.measured(DType::f32, name);
    ASSERT_NE(table, nullptr) << name;
    EXPECT_FALSE(table->calls.empty()) << name;
    for (const cluster::MeasuredCall& call : table->calls) EXPECT_GT(call.seconds, 0) << name;
  }
  for (const char* name : {"attention", "attention_dx"}) {
    const cluster::OperatorTable* table = h.device.measured(DType::f32, name);
    ASSERT_NE(table, nullptr) << name;
    const cluster::MeasuredAttention one = table->attention_of(128, 64);
    EXPECT_GT(one.per_row + one.per_pair, 0) << name;  // on a busy machine either may come out as nothing
    for (const double head_dim : {64, 16})
      EXPECT_TRUE(std::ranges::count(table->attention, head_dim, &cluster::MeasuredAttention::head_dim) > 0)
          << name << " " << head_dim;
  }
  EXPECT_GT(h.device.codecs.at("int8").encode.count, 0);
  EXPECT_EQ(config::profile_from_json(config::to_json(found), "p").hardware, h);
}

TEST(Profile, measures_the_precisions_of_updates_too) {
  const Precision bf16{DType::bf16, DType::f32}, fp32{DType::f32, DType::f32}, fp64{DType::f64, DType::f64};
  EXPECT_EQ(with_states({bf16}), (std::vector{bf16, fp32}));
  EXPECT_EQ(with_states({fp32, bf16, fp64}), (std::vector{fp32, bf16, fp64}));
}

TEST(Profile, of_one_rank_has_links_that_take_nothing) {
  const config::Profile found = quick(1, precision_from("fp64"));
  EXPECT_EQ(found.hardware.intra_host.latency.count, 0);
  EXPECT_NE(found.hardware.device.measured(DType::f64, "linear"), nullptr);
}

TEST(Profile, of_an_emulated_cluster_has_its_links_and_the_processor_time_of_cores) {
  const cluster::Hardware two = config::emulated_hardware("2x3:1Mbit/s,1GB/s,1GiB");
  const config::Profile found = profile({.precisions = {Precision{}}, .quick = true, .emulated = two}, {});
  EXPECT_EQ(found.machine.fabric, config::kEmulatedFabric);
  EXPECT_EQ(found.machine.threads, 1);
  EXPECT_EQ(found.hardware.ranks(), 6);
  EXPECT_EQ(found.hardware.inter_host, two.inter_host);
  EXPECT_EQ(found.hardware.device.memory, two.device.memory);
  EXPECT_TRUE(found.hardware.device.lockstep_curve.points.empty());
  EXPECT_EQ(found.hardware.device.alone_speedup, 1);
  EXPECT_GT(found.hardware.device.codecs.at("int8").encode.count, 0);
  ASSERT_NE(found.hardware.device.measured(DType::f32, "linear"), nullptr);
  EXPECT_EQ(config::profile_from_json(config::to_json(found), "p").hardware, found.hardware);
}

TEST(Profile, of_an_emulated_cluster_is_not_measured_by_several_processes) {
  comm::Launch launch;
  launch.distributed = true;
  launch.size = 2;
  EXPECT_THAT(message_of([&] { profile({.emulated = config::emulated_hardware("1x2:1GB/s,1GiB")}, launch); }),
              testing::HasSubstr("not by 2 launched processes. Start one process."));
}

TEST(Profile, has_a_rank_for_each_device) {
  const at::DeviceType before = std::exchange(gpu_type(), standin::device().type());
  EXPECT_EQ(gpu_count(), 1);
  EXPECT_EQ(this_machine({.device = cluster::DeviceType::cuda}, {}).ranks, 1);
  EXPECT_EQ(this_machine({.ranks = 3, .device = cluster::DeviceType::cuda}, {}).ranks, 3);
  comm::Launch launch;
  launch.distributed = true;
  launch.size = 4;
  EXPECT_EQ(this_machine({.device = cluster::DeviceType::cuda}, launch).ranks, 4);
  gpu_type() = before;
}

TEST(Profile, describes_this_machine_by_what_distinguishes_it) {
  const config::Machine here = this_machine({.ranks = 2, .threads = 1}, {});
  EXPECT_NE(here.processor, "");
  EXPECT_GT(here.cores, 0);
  EXPECT_EQ(here.fabric, "threads");
  EXPECT_EQ(config::difference(here, here), "");
}

}  // namespace
}  // namespace switchyard::train
