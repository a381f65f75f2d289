#include "ir/operators/dropout.hpp"

#include <gtest/gtest.h>

#include "one_call.hpp"

namespace switchyard::runtime {
namespace {

constexpr i64 kT = 512, kH = 64;
constexpr double kP = 0.3;

MicroBatchFeeds feeds(std::uint64_t seed, i64 step) {
  Documents documents(2, std::vector<std::int32_t>(kT / 2, 1));
  return feeds_of({{kT}, {{{0, 0, kT / 2, 1}, {1, 0, kT / 2, 1}}}}, documents, {}, 1,
                  {.state = DType::f64, .seed = DropoutSeed{seed, step}});
}

// y and kept for rows [first, first + rows) and features [column, column + columns).
std::vector<at::Tensor> dropped(const MicroBatchFeeds& feeds, int site, i64 first = 0, i64 rows = kT, i64 column = 0,
                                i64 columns = kH) {
  OneCall call(std::make_shared<ir::Dropout>(kP, site));
  call.feeds = feeds;
  call.stage.replica.ranks.resize(kT);  // so that boxes count single tokens
  call.in = {nothing({rows, columns}).fill_(1)};
  call.out = {nothing({rows, columns}), empty({rows, columns}, DType::u8, at::kCPU)};
  call.instr.out = {call.buffer(call.out[0]), call.buffer(call.out[1])};
  layout::Box& box = call.stage.buffers[0].box[0];
  box = layout::Box{2, {first, column}, {first + rows, column + columns}};
  call.run();
  return call.out;
}

TEST(DropoutBinding, KeepsTheStatedShareAndScalesItUp) {
  const auto out = dropped(feeds(1, 1), 1);
  const at::Tensor kept = out[1].to(at::kDouble);
  EXPECT_NEAR(kept.mean().item<double>(), 1 - kP, 0.01);
  for (const i64 dim : {0, 1})
    EXPECT_LT(kept.mean(dim).sub(1 - kP).abs().max().item<double>(), dim == 0 ? 0.1 : 0.3) << "of each column, row";
  EXPECT_LT(gap(out[0], kept.div(1 - kP)), 1e-15);
}

TEST(DropoutBinding, APartOfATensorIsThatPartOfTheWhole) {
  const auto whole = dropped(feeds(1, 1), 1), part = dropped(feeds(1, 1), 1, 100, 30, 20, 7);
  EXPECT_EQ(gap(part[0], whole[0].narrow(0, 100, 30).narrow(1, 20, 7)), 0);
}

TEST(DropoutBinding, SeedStepSiteDocumentAndPositionChooseApart) {
  const auto of = [](const MicroBatchFeeds& feeds, int site) {
    return dropped(feeds, site)[1].to(at::kDouble).sub_(1 - kP);
  };
  const at::Tensor one = of(feeds(1, 1), 1);
  const double variance = kP * (1 - kP);
  for (const at::Tensor& other : {of(feeds(2, 1), 1), of(feeds(1, 2), 1), of(feeds(1, 1), 2)})
    EXPECT_NEAR(one.mul(other).mean().item<double>() / variance, 0, 0.03);
  const at::Tensor halves = one.narrow(0, 0, kT / 2).mul(one.narrow(0, kT / 2, kT / 2)),
                   next = one.narrow(0, 1, kT - 1).mul(one.narrow(0, 0, kT - 1));
  EXPECT_NEAR(halves.mean().item<double>() / variance, 0, 0.03) << "documents";
  EXPECT_NEAR(next.mean().item<double>() / variance, 0, 0.03) << "positions";
  EXPECT_NEAR(one.narrow(1, 1, kH - 1).mul(one.narrow(1, 0, kH - 1)).mean().item<double>() / variance, 0, 0.03)
      << "features";
}

TEST(DropoutBinding, GradientsPassWhereValuesPassed) {
  const at::Tensor kept = dropped(feeds(1, 1), 1)[1], dy = wave({kT, kH}, 1);
  OneCall call(std::make_shared<ir::DropoutDx>(kP));
  call.in = {dy, kept};
  call.out = {nothing({kT, kH})};
  call.run();
  EXPECT_LT(gap(call.out[0], dy.mul(kept).div(1 - kP)), 1e-15);
}

}  // namespace
}  // namespace switchyard::runtime
