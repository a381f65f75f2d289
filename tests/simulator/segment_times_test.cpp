#include "simulator/segment_times.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "simple_steps.hpp"

namespace switchyard::simulator {
namespace {

TEST(SegmentTimes, of_collectives_are_those_of_the_ring) {
  const compiler::Plans plans = plans_under({"1,4,1"}, 1, 4);
  const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
  cluster::Hardware hardware = arithmetic_only(1, 4);
  hardware.intra_host = {{1e-3}, {1e6}, 1, {}};
  int gathers = 0;
  const std::vector<int> ranks = {0, 1, 2, 3};
  for (const ir::Instr& instr : stage.forward.code) {
    if (instr.op) continue;
    const ir::Buffer &from = stage.buffers[static_cast<size_t>(instr.in[0])], &to = stage.buffers[static_cast<size_t>(instr.out[0])];
    if (from.kind == ir::ValueKind::feed || layout::classify(stage.lane, from.layout, to.layout) != layout::Pattern::all_gather) continue;
    ir::Segment alone{ir::Phase::F, {instr}, {}, {}};
    const SegmentTimes times = segment_times(stage, alone, 32, ranks, hardware, plans.cluster());
    const double bytes = 32.0 * static_cast<double>(from.type.shape.size[1]) * static_cast<double>(size_of(from.type.dtype));
    ASSERT_EQ(times.pieces.size(), 1u);
    EXPECT_EQ(times.pieces[0].what, Activity::communication);
    EXPECT_NEAR(times.pieces[0].fixed, 3 * 1e-3 + 0.75 * bytes / 1e6, 1e-12);
    ++gathers;
  }
  EXPECT_GT(gathers, 2);
}

TEST(SegmentTimes, of_an_operator_are_the_longer_of_arithmetic_and_memory) {
  const compiler::Plans plans = plans_under({"1,1,1"}, 1, 1);
  const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
  cluster::Hardware hardware = arithmetic_only(1, 1);
  for (auto& [type, rates] : hardware.device.rates) rates.memory = {1e9};
  hardware.device.launch = {1e-6};
  for (const ir::Instr& instr : stage.forward.code) {
    if (!instr.op || instr.op->name() == "attention") continue;
    const ir::Cost cost = ir::local_cost(stage, instr, 0);
    const double flops = cost.flops_per_token * 32, bytes = cost.bytes_per_token * 32 + cost.bytes_fixed;
    ir::Segment alone{ir::Phase::F, {instr}, {}, {}};
    EXPECT_NEAR(segment_times(stage, alone, 32, {0}, hardware, plans.cluster()).pieces[0].fixed, 1e-6 + std::max(flops, bytes) / 1e9, 1e-12)
        << instr.op->name();
  }
}

}  // namespace
}  // namespace switchyard::simulator
