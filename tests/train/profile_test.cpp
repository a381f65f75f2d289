#include "train/profile.hpp"

#include <gtest/gtest.h>

#include "base/errors.hpp"

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
    EXPECT_GT(table->attention_of(128).per_pair, 0) << name;
  }
  EXPECT_EQ(config::profile_from_json(config::to_json(found), "p").hardware, h);
}

TEST(Profile, of_one_rank_has_links_that_take_nothing) {
  const config::Profile found = quick(1, precision_from("fp64"));
  EXPECT_EQ(found.hardware.intra_host.latency.count, 0);
  EXPECT_NE(found.hardware.device.measured(DType::f64, "linear"), nullptr);
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
