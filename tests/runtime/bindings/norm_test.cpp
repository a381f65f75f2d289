#include "ir/operators/norm.hpp"

#include <gtest/gtest.h>

#include "one_call.hpp"

namespace switchyard::runtime {
namespace {

constexpr i64 kT = 3, kH = 4;
const at::Tensor kX = wave({kT, kH}, 1), kW = wave({kH}, 2), kB = wave({kH}, 3), kDy = wave({kT, kH}, 4),
                 kResidual = wave({kT, kH}, 5);

at::Tensor mean_of(const at::Tensor& x) { return x.mean(at::IntArrayRef{1}, true); }

// Output and statistics.
std::vector<at::Tensor> rms(const at::Tensor& x) {
  OneCall call(std::make_shared<ir::RmsNorm>(0.5, 0));
  call.in = {x, kW};
  call.out = {nothing({kT, kH}), nothing({kT, 1})};
  call.run();
  return call.out;
}
std::vector<at::Tensor> layer(const at::Tensor& x) {
  OneCall call(std::make_shared<ir::LayerNorm>(0.5));
  call.in = {x, kW, kB};
  call.out = {nothing({kT, kH}), nothing({kT, 1}), nothing({kT, 1})};
  call.run();
  return call.out;
}

double slope(std::vector<at::Tensor> (*norm)(const at::Tensor&)) {
  const at::Tensor step = wave({kT, kH}, 6).mul(1e-5);
  return norm(kX.add(step))[0].sub(norm(kX.sub(step))[0]).mul(kDy).sum().item<double>() / 2e-5;
}

TEST(NormBinding, RmsNormTakesEpsilonFromTheOperator) {
  const auto out = rms(kX);
  const at::Tensor rstd = mean_of(kX.square()).add(0.5).rsqrt();
  EXPECT_LT(gap(out[0], kX.mul(rstd).mul(kW)), 1e-15);
  EXPECT_LT(gap(out[1], rstd), 1e-15);
}

TEST(NormBinding, RmsNormDxAddsTheResidualWhereThereIsOne) {
  const auto saved = rms(kX);
  std::vector<at::Tensor> dx;
  for (const bool residual : {false, true}) {
    OneCall call(std::make_shared<ir::RmsNormDx>(false, residual));
    call.in = {kDy, kX, kW, saved[1]};
    if (residual) call.in.push_back(kResidual);
    call.out = {nothing({kT, kH})};
    call.run();
    dx.push_back(call.out[0]);
  }
  EXPECT_NEAR(dx[0].mul(wave({kT, kH}, 6)).sum().item<double>(), slope(rms), 1e-8);
  EXPECT_LT(gap(dx[1], dx[0].add(kResidual)), 1e-14);
}

TEST(NormBinding, RmsNormDwIsAdded) {
  OneCall call(std::make_shared<ir::RmsNormDw>(false));
  const at::Tensor rstd = rms(kX)[1];
  call.in = {kDy, kX, rstd};
  call.out = {kB.clone()};
  call.run();
  EXPECT_LT(gap(call.out[0], kDy.mul(kX).mul(rstd).sum(at::IntArrayRef{0}).add(kB)), 1e-14);
}

TEST(NormBinding, LayerNormGivesMeanAndDeviation) {
  const auto out = layer(kX);
  const at::Tensor mean = mean_of(kX), rstd = mean_of(kX.sub(mean).square()).add(0.5).rsqrt();
  EXPECT_LT(gap(out[0], kX.sub(mean).mul(rstd).mul(kW).add(kB)), 1e-15);
  EXPECT_LT(gap(out[1], mean), 1e-15);
  EXPECT_LT(gap(out[2], rstd), 1e-15);
}

TEST(NormBinding, LayerNormGradients) {
  const auto saved = layer(kX);
  std::vector<at::Tensor> dx;
  for (const bool residual : {false, true}) {
    OneCall call(std::make_shared<ir::LayerNormDx>(residual));
    call.in = {kDy, kX, kW, saved[1], saved[2]};
    if (residual) call.in.push_back(kResidual);
    call.out = {nothing({kT, kH})};
    call.run();
    dx.push_back(call.out[0]);
  }
  EXPECT_NEAR(dx[0].mul(wave({kT, kH}, 6)).sum().item<double>(), slope(layer), 1e-8);
  EXPECT_LT(gap(dx[1], dx[0].add(kResidual)), 1e-14);
  OneCall call(std::make_shared<ir::LayerNormDw>());
  call.in = {kDy, kX, saved[1], saved[2]};
  call.out = {kW.clone(), kB.clone()};
  call.run();
  EXPECT_LT(gap(call.out[0], kDy.mul(kX.sub(saved[1]).mul(saved[2])).sum(at::IntArrayRef{0}).add(kW)), 1e-14);
  EXPECT_LT(gap(call.out[1], kDy.sum(at::IntArrayRef{0}).add(kB)), 1e-14);
}

}  // namespace
}  // namespace switchyard::runtime
