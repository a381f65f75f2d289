#include <gtest/gtest.h>

#include "ir/operators/layer_norm.hpp"
#include "ir/operators/rms_norm.hpp"
#include "one_call.hpp"

namespace switchyard::runtime {
namespace {

constexpr i64 kT = 3, kH = 4;
const at::Tensor kX = wave({kT, kH}, 1), kW = wave({kH}, 2), kB = wave({kH}, 3), kDy = wave({kT, kH}, 4),
                 kResidual = wave({kT, kH}, 5);

at::Tensor mean_of(const at::Tensor& x) { return x.mean(at::IntArrayRef{1}, true); }

// The features of a row that a rank has, and how it reaches the ranks with the others.
struct Part {
  i64 first = 0, count = kH;
  ReplicaLink replica{};
  at::Tensor operator()(const at::Tensor& t) const { return t.narrow(-1, first, count).contiguous(); }
};

OneCall call_of(std::shared_ptr<const ir::Operator> op, std::vector<at::Tensor> in, const Part& part = {}) {
  OneCall call(std::move(op));
  call.in = std::move(in);
  for (const at::Tensor& t : call.in) call.instr.in.push_back(call.buffer(t));
  for (ir::Buffer& buffer : call.stage.buffers) buffer.type.shape.size = {kT, kH};
  if (part.count == kH) return call;
  call.replica = part.replica;
  call.position = part.replica.fabric->rank();
  call.stage.replica = {{{"inner", 2}}, {0, 1}};
  for (ir::Buffer& buffer : call.stage.buffers)
    if (buffer.layout.split.size() == 2) buffer.layout.split[1] = {0};
  return call;
}

// Output and statistics.
std::vector<at::Tensor> rms_on(const at::Tensor& x, const Part& part) {
  OneCall call = call_of(std::make_shared<ir::RmsNorm>(0.5, 0), {part(x), part(kW)}, part);
  call.out = {nothing({kT, part.count}), nothing({kT, 1})};
  call.run();
  return call.out;
}
std::vector<at::Tensor> rms(const at::Tensor& x) { return rms_on(x, {}); }
std::vector<at::Tensor> layer_on(const at::Tensor& x, const Part& part) {
  OneCall call = call_of(std::make_shared<ir::LayerNorm>(0.5), {part(x), part(kW), part(kB)}, part);
  call.out = {nothing({kT, part.count}), nothing({kT, 1}), nothing({kT, 1})};
  call.run();
  return call.out;
}
std::vector<at::Tensor> layer(const at::Tensor& x) { return layer_on(x, {}); }

// The input's gradient; statistics: those of the norm.
at::Tensor rms_dx(const at::Tensor& rstd, bool residual, const Part& part = {}) {
  std::vector<at::Tensor> in = {part(kDy), part(kX), part(kW), rstd};
  if (residual) in.push_back(part(kResidual));
  OneCall call = call_of(std::make_shared<ir::RmsNormDx>(false, residual, kH), in, part);
  call.out = {nothing({kT, part.count})};
  call.run();
  return call.out[0];
}
at::Tensor layer_dx(const at::Tensor& mean, const at::Tensor& rstd, bool residual, const Part& part = {}) {
  std::vector<at::Tensor> in = {part(kDy), part(kX), part(kW), mean, rstd};
  if (residual) in.push_back(part(kResidual));
  OneCall call = call_of(std::make_shared<ir::LayerNormDx>(residual, kH), in, part);
  call.out = {nothing({kT, part.count})};
  call.run();
  return call.out[0];
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
  const std::vector<at::Tensor> dx = {rms_dx(saved[1], false), rms_dx(saved[1], true)};
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
  const std::vector<at::Tensor> dx = {layer_dx(saved[1], saved[2], false), layer_dx(saved[1], saved[2], true)};
  EXPECT_NEAR(dx[0].mul(wave({kT, kH}, 6)).sum().item<double>(), slope(layer), 1e-8);
  EXPECT_LT(gap(dx[1], dx[0].add(kResidual)), 1e-14);
  OneCall call(std::make_shared<ir::LayerNormDw>());
  call.in = {kDy, kX, saved[1], saved[2]};
  call.out = {kW.clone(), kB.clone()};
  call.run();
  EXPECT_LT(gap(call.out[0], kDy.mul(kX.sub(saved[1]).mul(saved[2])).sum(at::IntArrayRef{0}).add(kW)), 1e-14);
  EXPECT_LT(gap(call.out[1], kDy.sum(at::IntArrayRef{0}).add(kB)), 1e-14);
}

// One rank has three of the four features, the other has the last.
TEST(NormBinding, RanksWithSomeFeaturesEachSumTheirStatistics) {
  const auto rms_whole = rms(kX), layer_whole = layer(kX);
  const auto ends = comm::run_ranks(2, {}, [&](comm::Fabric& fabric) {
    i64 number = 0;
    const bool last = fabric.rank() == 1;
    const Part part{last ? 3 : 0, last ? 1 : 3, {&fabric, {7, {0, 1}}, &number}};
    const auto expect_part = [&](const at::Tensor& made, const at::Tensor& whole, const char* what) {
      EXPECT_LT(gap(made, whole), 1e-15) << what << " on rank " << fabric.rank();
    };
    const auto root = rms_on(kX, part), normal = layer_on(kX, part);
    expect_part(root[0], part(rms_whole[0]), "rms");
    expect_part(root[1], rms_whole[1], "its deviation");
    expect_part(normal[0], part(layer_whole[0]), "layer norm");
    expect_part(normal[1], layer_whole[1], "mean");
    expect_part(normal[2], layer_whole[2], "deviation");
    for (const bool residual : {false, true}) {
      expect_part(rms_dx(root[1], residual, part), part(rms_dx(rms_whole[1], residual)), "rms gradient");
      expect_part(layer_dx(normal[1], normal[2], residual, part),
                  part(layer_dx(layer_whole[1], layer_whole[2], residual)), "layer norm gradient");
    }
    EXPECT_EQ(number, 3 + 4) << "sums: of one norm's mean square, the other's mean and variance, and of four gradients";
  });
  EXPECT_EQ(ends, std::vector<std::string>(2));
}

}  // namespace
}  // namespace switchyard::runtime
