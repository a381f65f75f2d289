#include <gtest/gtest.h>

#include "ir/operators/add.hpp"
#include "ir/operators/gelu.hpp"
#include "ir/operators/swiglu.hpp"
#include "one_call.hpp"

namespace switchyard::runtime {
namespace {

TEST(ActivationBinding, SwigluIsSiluOfTheGateTimesUp) {
  OneCall call(std::make_shared<ir::Swiglu>());
  const at::Tensor gate = wave({3, 4}, 1), up = wave({3, 4}, 2);
  call.in = {gate, up};
  call.out = {nothing({3, 4})};
  call.run();
  EXPECT_LT(gap(call.out[0], gate.mul(gate.sigmoid()).mul(up)), 1e-15);
}

TEST(ActivationBinding, SwigluDxGivesGateThenUp) {
  OneCall call(std::make_shared<ir::SwigluDx>());
  const at::Tensor dh = wave({3, 4}, 3), gate = wave({3, 4}, 1), up = wave({3, 4}, 2), s = gate.sigmoid();
  call.in = {dh, gate, up};
  call.out = {nothing({3, 4}), nothing({3, 4})};
  call.run();
  EXPECT_LT(gap(call.out[1], dh.mul(gate).mul(s)), 1e-15);
  EXPECT_LT(gap(call.out[0], dh.mul(up).mul(s.add(gate.mul(s).mul(s.neg().add(1))))), 1e-15);
}

TEST(ActivationBinding, GeluTakesItsFormFromTheOperator) {
  const at::Tensor x = wave({3, 4}, 1).mul(3);
  std::vector<at::Tensor> y;
  for (const bool tanh_form : {true, false}) {
    OneCall call(std::make_shared<ir::Gelu>(tanh_form));
    call.in = {x};
    call.out = {nothing({3, 4})};
    call.run();
    y.push_back(call.out[0]);
  }
  const at::Tensor exact = x.mul(0.5).mul(x.div(std::sqrt(2.0)).erf().add(1));
  EXPECT_LT(gap(y[1], exact), 1e-14);
  EXPECT_GT(gap(y[0], exact), 1e-6);
  EXPECT_LT(gap(y[0], exact), 1e-2);
}

TEST(ActivationBinding, GeluDxIsTheSlope) {
  const at::Tensor x = wave({3, 4}, 1), dy = wave({3, 4}, 2);
  for (const bool tanh_form : {true, false}) {
    const auto gelu = [&](const at::Tensor& at) {
      OneCall call(std::make_shared<ir::Gelu>(tanh_form));
      call.in = {at};
      call.out = {nothing({3, 4})};
      call.run();
      return call.out[0];
    };
    OneCall call(std::make_shared<ir::GeluDx>(tanh_form));
    call.in = {dy, x};
    call.out = {nothing({3, 4})};
    call.run();
    EXPECT_LT(gap(call.out[0], gelu(x.add(1e-5)).sub(gelu(x.sub(1e-5))).div(2e-5).mul(dy)), 1e-9);
  }
}

TEST(ActivationBinding, AddIsTheSum) {
  OneCall call(std::make_shared<ir::Add>());
  call.in = {wave({3, 4}, 1), wave({3, 4}, 2)};
  call.out = {nothing({3, 4})};
  call.run();
  EXPECT_TRUE(call.out[0].equal(call.in[0].add(call.in[1])));
}

}  // namespace
}  // namespace switchyard::runtime
