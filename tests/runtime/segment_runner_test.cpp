#include "runtime/segment_runner.hpp"

#include <gmock/gmock.h>

#include "../standin/device.hpp"
#include "base/errors.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

using testing::ElementsAre;

class SegmentRunnerOnOneRank : public testing::Test {
 protected:
  explicit SegmentRunnerOnOneRank(at::Device device = at::kCPU)
      : store_(plans_, 0, device), runner_(plans_.graph(), stage_, 0, DType::f64, device) {
    store_.home.initialize(tiny_values(plans_.graph()));
    for (int unit = 0; unit < static_cast<int>(plans_.units().size()); ++unit)
      store_.working.allocate(phase_, {}, unit);
    state_.feeds = feeds_of({{5}, {{{0, 0, 4, 1}, {-1, 0, 1, 1}}}}, {{1, 2, 3, 4}}, {}, 3,
                            {.state = DType::f64, .device = device});
    runner_.make_room(state_);
    hooks_.await = [this](int unit) { awaited_.push_back(unit); };
    hooks_.release = [this](int unit) { released_.push_back(unit); };
  }
  void run(const ir::Segment& segment) {
    runner_.run(segment, ir::kWhole, state_, store_.working, {phase_}, {}, rope_, hooks_);
  }
  double loss() const { return state_.slots[static_cast<size_t>(stage_.loss)].sum().item<double>(); }

  const compiler::Plans plans_ = tiny_plans({"1,1,1"}, 1);
  const ir::StageCode& stage_ = plans_.strategies()[0].groups[0].stages[0];
  const PhaseKey phase_{0, 0};
  Store store_;
  SegmentRunner runner_;
  MicroBatchState state_;
  RopeTables rope_{10000, {}};
  RunHooks hooks_;
  std::vector<int> awaited_, released_;
};

TEST_F(SegmentRunnerOnOneRank, AwaitsUnitsInOrderOfUseAndReleasesThemBackwards) {
  run(stage_.forward);
  EXPECT_EQ(awaited_.front(), 0);
  EXPECT_TRUE(std::is_sorted(awaited_.begin(), awaited_.end()));
  EXPECT_TRUE(released_.empty());
  run(stage_.backward);
  EXPECT_THAT(released_, ElementsAre(3, 2, 1, 0));
}

TEST_F(SegmentRunnerOnOneRank, KeepsBetweenTheSegmentsWhatIsStashedOnly) {
  run(stage_.forward);
  for (int b = 0; b < static_cast<int>(stage_.buffers.size()); ++b) {
    const ir::Buffer& buffer = stage_.buffers[static_cast<size_t>(b)];
    if (buffer.kind != ir::ValueKind::activation) continue;
    const bool stashed = std::find(stage_.stash.begin(), stage_.stash.end(), b) != stage_.stash.end();
    if (!stashed) {
      EXPECT_FALSE(state_.slots[static_cast<size_t>(b)].defined()) << buffer.name;
    }
  }
  EXPECT_FALSE(stage_.stash.empty());
}

TEST_F(SegmentRunnerOnOneRank, AHeadOfZerosLosesTheLogarithmOfTheVocabulary) {
  for (HomeShard& shard : store_.home.units().back().shards)
    if (shard.box.dims == 2) shard.compute_copy.zero_();
  run(stage_.forward);
  run(stage_.backward);
  EXPECT_NEAR(loss(), std::log(40.0), 1e-12);
}

// d loss / d w along a direction, against central differences.
TEST_F(SegmentRunnerOnOneRank, GradientsAreTheSlopesOfTheLoss) {
  const auto loss_now = [&] {
    runner_.make_room(state_);
    run(stage_.forward);
    run(stage_.backward);
    return loss();
  };
  loss_now();
  std::vector<at::Tensor> gradients;
  for (size_t p = 0; p < plans_.graph().params().size(); ++p)
    gradients.push_back(store_.working.gradient(phase_, static_cast<int>(p)).clone());
  for (HomeUnit& unit : store_.home.units())
    for (HomeShard& shard : unit.shards) {
      const at::Tensor direction = wave({shard.compute_copy.sizes().begin(), shard.compute_copy.sizes().end()}, 0.4);
      const double h = 1e-6, slope = gradients[static_cast<size_t>(shard.param)].mul(direction).sum().item<double>();
      shard.compute_copy.add_(direction, h);
      const double up = loss_now();
      shard.compute_copy.sub_(direction, 2 * h);
      const double down = loss_now();
      shard.compute_copy.add_(direction, h);
      EXPECT_NEAR(slope, (up - down) / (2 * h), 2e-6) << plans_.graph().param(shard.param).name;
    }
}

class SegmentRunnerOnADevice : public SegmentRunnerOnOneRank {
 protected:
  SegmentRunnerOnADevice() : SegmentRunnerOnOneRank(standin::test_device()) {}
};

// A device is given all operators before the host waits for their times.
TEST_F(SegmentRunnerOnADevice, TimesEachOperatorOfARun) {
  run(stage_.forward);
  runner_.make_room(state_);
  std::vector<int> timed, operators;
  for (size_t i = 0; i < stage_.forward.code.size(); ++i)
    if (stage_.forward.code[i].op) operators.push_back(static_cast<int>(i));
  double sum = 0;
  int head_starts = 0;
  hooks_.head_start = [&] { ++head_starts; };
  hooks_.timed = [&](int instr, Seconds time, Seconds issue) {
    EXPECT_EQ(head_starts, 1);
    EXPECT_GE(time.count, 0);
    EXPECT_EQ(issue.count > 0, !standin::test_device().is_cpu()) << "the host's part";
    sum += time.count;
    timed.push_back(instr);
  };
  const i64 before = standin::host_synchronizations();
  run(stage_.forward);
  EXPECT_EQ(timed, operators);
  EXPECT_GT(sum, 0);
  EXPECT_LE(standin::host_synchronizations() - before, 1);
}

TEST_F(SegmentRunnerOnOneRank, AValueThatNothingMadeIsNamed) {
  try {
    run(stage_.backward);
    ADD_FAILURE() << "nothing thrown";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(" is read before it is made"));
  }
}

}  // namespace
}  // namespace switchyard::runtime
