#include "ir/operators/linear.hpp"

#include <gtest/gtest.h>

#include "one_call.hpp"

namespace switchyard::runtime {
namespace {

constexpr i64 kT = 5, kI = 3;

// Two matrices, the rows of one after those of the other in one allocation, or each in its own.
std::vector<at::Tensor> rows(bool adjacent) {
  const at::Tensor both = wave({6, kI}, 2);
  const std::vector<at::Tensor> views = {both.narrow(0, 0, 4), both.narrow(0, 4, 2)};
  return adjacent ? views : std::vector<at::Tensor>{views[0].clone(), views[1].clone()};
}
std::vector<at::Tensor> columns(bool adjacent) {
  const at::Tensor both = wave({kT, 6}, 3);
  const std::vector<at::Tensor> views = {both.narrow(1, 0, 4), both.narrow(1, 4, 2)};
  return adjacent ? views : std::vector<at::Tensor>{views[0].clone(), views[1].clone()};
}

const at::Tensor kX = wave({kT, kI}, 1);

class LinearBinding : public testing::TestWithParam<bool> {};

TEST_P(LinearBinding, ForwardAddsTheBiasOnTheFirstPartialOnly) {
  for (const int position : {0, 1}) {
    OneCall call(std::make_shared<ir::Linear>(2, true));
    call.position = position;
    const auto w = rows(GetParam());
    const std::vector<at::Tensor> b = {wave({4}, 7), wave({2}, 8)};
    call.in = {kX, w[0], w[1], b[0], b[1]};
    call.out = columns(GetParam());
    call.run();
    for (size_t k = 0; k < 2; ++k) {
      const at::Tensor y = kX.mm(w[k].t());
      EXPECT_LT(gap(call.out[k], position == 0 ? y.add(b[k]) : y), 1e-14);
    }
  }
}

TEST_P(LinearBinding, InputGradientsAreSummedOverTheWeights) {
  OneCall call(std::make_shared<ir::LinearDx>(2));
  const auto dy = columns(GetParam()), w = rows(GetParam());
  call.in = {dy[0], dy[1], w[0], w[1]};
  call.out = {wave({kT, kI}, 9)};
  call.run();
  EXPECT_LT(gap(call.out[0], dy[0].mm(w[0]).add(dy[1].mm(w[1]))), 1e-14);
}

TEST_P(LinearBinding, WeightGradientsAreAddedToWhatIsThere) {
  OneCall call(std::make_shared<ir::LinearDw>(2));
  const auto dy = columns(GetParam());
  call.in = {dy[0], dy[1], kX};
  call.out = rows(GetParam());
  const std::vector<at::Tensor> before = {call.out[0].clone(), call.out[1].clone()};
  call.run();
  for (size_t k = 0; k < 2; ++k) EXPECT_LT(gap(call.out[k], before[k].add(dy[k].t().mm(kX))), 1e-14);
}

INSTANTIATE_TEST_SUITE_P(Memory, LinearBinding, testing::Bool(),
                         [](const auto& adjacent) { return adjacent.param ? "Fused" : "Separate"; });

TEST(LinearBindingOfMembersInAnotherOrder, IsNotFused) {
  OneCall call(std::make_shared<ir::LinearDx>(2));
  const auto w = rows(true), dy = columns(true);
  call.in = {dy[1], dy[0], w[1], w[0]};
  call.out = {nothing({kT, kI})};
  call.run();
  EXPECT_LT(gap(call.out[0], dy[0].mm(w[0]).add(dy[1].mm(w[1]))), 1e-14);
}

TEST(BiasBinding, GradientIsTheSumOverTokens) {
  OneCall call(std::make_shared<ir::BiasDw>());
  call.in = {wave({kT, 4}, 1)};
  call.out = {nothing({4}).add(2)};
  call.run();
  EXPECT_LT(gap(call.out[0], call.in[0].sum(at::IntArrayRef{0}).add(2)), 1e-14);
}

}  // namespace
}  // namespace switchyard::runtime
