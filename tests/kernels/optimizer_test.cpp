#include "kernels/optimizer.hpp"

#include <limits>

#include "base/errors.hpp"
#include "oracle.hpp"

namespace switchyard::kernels {
namespace {

using namespace oracle;

constexpr i64 kN = 40001;  // more than two chunks, and not a multiple of a vector

TEST(Optimizer, ThreeUpdatesFollowTheFormula) {
  for (const auto state : {at::kDouble, at::kFloat}) {
    for (const auto compute_copy_type : kTypes) {
      auto p = random({kN}, state, 1), m = filled({kN}, state, 0), v = filled({kN}, state, 0),
           compute_copy = hole({kN}, compute_copy_type);
      Doubles p_ = values(p), m_(kN), v_(kN);
      AdamW s{3e-3, 0.9, 0.95, 1e-8, 0.1, 1};
      const double clip = 0.7;
      for (s.step = 1; s.step <= 3; ++s.step) {
        const auto grad = random({kN}, state, static_cast<unsigned>(10 + s.step));
        const auto g_ = values(grad);
        for (std::size_t i = 0; i < kN; ++i) {
          const double g = g_[i] * clip;
          p_[i] *= 1 - s.lr * s.weight_decay;
          m_[i] = s.beta1 * m_[i] + (1 - s.beta1) * g;
          v_[i] = s.beta2 * v_[i] + (1 - s.beta2) * g * g;
          const double m_hat = m_[i] / (1 - std::pow(s.beta1, s.step)), v_hat = v_[i] / (1 - std::pow(s.beta2, s.step));
          p_[i] -= s.lr * m_hat / (std::sqrt(v_hat) + s.eps);
        }
        adamw(p, m, v, compute_copy, grad, s, clip);
      }
      expect_close(p, p_, tolerance_of(state), "p");
      expect_close(m, m_, tolerance_of(state), "m");
      expect_close(v, v_, tolerance_of(state), "v");
      expect_same_bits(compute_copy, p.to(compute_copy_type), "compute copy");
    }
  }
}

TEST(Optimizer, ASmallDecayIsNotRoundedAway) {
  if (!standin::test_device().is_cpu()) GTEST_SKIP() << "libtorch's update rounds the decay by itself";
  const auto start = random({5000}, at::kFloat, 1).abs_(), noise = random({50, 5000}, at::kFloat, 2);
  const auto lost_with = [&](double weight_decay) {
    auto p = start.clone(), m = filled({5000}, at::kFloat, 0), v = filled({5000}, at::kFloat, 0);
    at::Tensor none;
    AdamW s{.lr = 2e-6, .weight_decay = weight_decay};
    for (s.step = 1; s.step <= 50; ++s.step)  // the noise rounds up and down
      adamw(p, m, v, none, noise.select(0, s.step - 1).clone(), s, 1);
    return start.sub(p).to(at::kDouble).sum().item<double>();
  };
  const double sum = start.to(at::kDouble).sum().item<double>(), without = lost_with(0);
  for (const double weight_decay : {0.01, 0.1}) {
    const double decay = 50 * 2e-6 * weight_decay * sum;
    EXPECT_NEAR(lost_with(weight_decay) - without, decay, 0.15 * decay) << weight_decay;
  }
}

TEST(Optimizer, AnUpdateIsFourOperatorsOnADevice) {
  auto p = random({9}, at::kFloat, 1), m = filled({9}, at::kFloat, 0), v = filled({9}, at::kFloat, 0),
       compute_copy = hole({9}, at::kBFloat16);
  const auto grad = random({9}, at::kFloat, 2);
  EXPECT_LE(operators_of([&] { adamw(p, m, v, compute_copy, grad, {}, 0.5); }), 4)
      << "the gradient is clipped, the step's number made, the update, the copy";
}

TEST(Optimizer, TheComputeCopyMayBeMissingOrTheParametersThemselves) {
  const auto grad = random({100}, at::kFloat, 1);
  at::Tensor p[2], none;
  for (auto& each : p) {
    each = random({100}, at::kFloat, 2);
    auto m = filled({100}, at::kFloat, 0), v = filled({100}, at::kFloat, 0);
    adamw(each, m, v, &each == p ? none : each, grad, {}, 1);
  }
  expect_same_bits(p[0], p[1], "p");
}

TEST(Optimizer, MixedTypesTakeThePathByOperatorsAndAgree) {
  const auto grad = random({100}, at::kFloat, 1);
  auto p = random({100}, at::kDouble, 2), m = filled({100}, at::kDouble, 0), v = filled({100}, at::kDouble, 0);
  auto p2 = p.clone(), m2 = m.clone(), v2 = v.clone(), compute_copy = hole({100}, at::kBFloat16);
  at::Tensor none;
  adamw(p, m, v, none, grad.to(at::kDouble), {}, 0.5);
  adamw(p2, m2, v2, compute_copy, grad, {}, 0.5);
  expect_close(p2, values(p), 1e-6, "p");
  expect_same_bits(compute_copy, p2.to(at::kBFloat16), "compute copy");
}

double sum_of_squares(const at::Tensor& x) {
  auto total = filled({1}, at::kDouble, 0);
  add_sum_of_squares(total, x);
  return total.item<double>();
}

TEST(Optimizer, SumOfSquaresIsExactToFp64) {
  for (const auto type : kTypes) {
    const auto x = random({kN}, type, 1);
    double expected = 0;
    for (const double v : values(x)) expected += v * v;
    EXPECT_NEAR(sum_of_squares(x), expected, 1e-12 * expected) << toString(type);
    EXPECT_EQ(sum_of_squares(hole({0}, type)), 0.0);
  }
}

TEST(Optimizer, SumOfSquaresShowsWhatIsNotFinite) {
  for (const auto type : kTypes) {
    auto x = random({kN}, type, 1);
    x[kN - 1].fill_(NAN);
    EXPECT_TRUE(std::isnan(sum_of_squares(x)));
    x[kN - 1].fill_(INFINITY);
    EXPECT_TRUE(std::isinf(sum_of_squares(x)));
    x[kN - 1].fill_(type == at::kDouble ? 1e30 : 3e38);
    EXPECT_TRUE(std::isfinite(sum_of_squares(x))) << "squares of fp32 must not overflow";
  }
}

TEST(Optimizer, ResultsHaveTheSameBitsForAnyNumberOfThreads) {
  const auto x = random({kN}, at::kFloat, 1), grad = random({kN}, at::kFloat, 2);
  expect_same_for_any_threads([&] { return filled({1}, at::kDouble, sum_of_squares(x)); }, "sum of squares");
  expect_same_for_any_threads(
      [&] {
        auto p = x.clone(), m = filled({kN}, at::kFloat, 0), v = filled({kN}, at::kFloat, 0);
        at::Tensor none;
        adamw(p, m, v, none, grad, {}, 1);
        return p;
      },
      "p");
}

TEST(Optimizer, EmptyRangesAreAccepted) {
  auto none = hole({0}, at::kFloat), m = none.clone(), v = none.clone(), compute_copy = hole({0}, at::kBFloat16);
  adamw(none, m, v, compute_copy, none, {}, 1);
}

TEST(Optimizer, RefusesRangesOfOtherLengths) {
  auto p = hole({4}, at::kFloat), m = hole({4}, at::kFloat), v = hole({5}, at::kFloat);
  at::Tensor none;
  EXPECT_THROW(adamw(p, m, v, none, p, {}, 1), InternalError);
  EXPECT_THROW(sum_of_squares(hole({2, 2}, at::kFloat)), InternalError);
}

}  // namespace
}  // namespace switchyard::kernels
