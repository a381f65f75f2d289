#include "kernels/cross_entropy.hpp"

#include "base/errors.hpp"
#include "oracle.hpp"

namespace switchyard::kernels {
namespace {

using namespace oracle;

constexpr i64 kT = 7, kV = 1301;
const std::vector<i64> kLabels = {0, 1300, 650, -100, 433, 1000, 3};

Doubles weights() { return {0.5, 1, 0.25, 1, 0, 2, 1}; }

at::Tensor tensor_of(const Doubles& v, at::ScalarType type) {
  const auto x = hole({static_cast<i64>(v.size())}, type);
  for (std::size_t i = 0; i < v.size(); ++i) x[static_cast<i64>(i)].fill_(v[i]);
  return x;
}

struct Reference {
  Doubles loss = Doubles(kT), gradient = Doubles(kT * kV);
};

Reference reference(const Doubles& logits) {
  Reference r;
  const auto weight = weights();
  for (i64 t = 0; t < kT; ++t) {
    if (kLabels[t] < 0 || weight[t] == 0) continue;
    double top = logits[t * kV], sum = 0;
    for (i64 j = 0; j < kV; ++j) top = std::max(top, logits[t * kV + j]);
    for (i64 j = 0; j < kV; ++j) sum += std::exp(logits[t * kV + j] - top);
    r.loss[t] = weight[t] * (std::log(sum) + top - logits[t * kV + kLabels[t]]);
    for (i64 j = 0; j < kV; ++j) {
      r.gradient[t * kV + j] = weight[t] * (std::exp(logits[t * kV + j] - top) / sum - (j == kLabels[t] ? 1 : 0));
    }
  }
  return r;
}

/// Runs the three passes over the parts of the vocabulary between `cuts`, with the all-reduces. Returns the loss and
/// the concatenated gradient.
std::pair<at::Tensor, at::Tensor> run_in_parts(const at::Tensor& logits, const std::vector<i64>& cuts) {
  const auto state = state_of(logits.scalar_type());
  std::vector<at::Tensor> parts, tops, sums;
  for (std::size_t p = 0; p + 1 < cuts.size(); ++p) {
    parts.push_back(hole({kT, cuts[p + 1] - cuts[p]}, logits.scalar_type(), 4));
    parts.back().copy_(logits.narrow(1, cuts[p], cuts[p + 1] - cuts[p]));
    tops.push_back(hole({kT}, state));
    xent_max(tops.back(), parts.back());
  }
  at::Tensor top = tops[0].clone();
  for (const auto& other : tops) top.copy_(top.maximum(other));
  at::Tensor total = filled({2, kT}, state, 0);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    sums.push_back(hole({2, kT}, state));
    xent_sums(sums.back(), parts[p], top, integers(kLabels), cuts[p]);
    total.add_(sums.back());
  }
  at::Tensor gradient = hole({kT, kV}, logits.scalar_type()), loss;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    auto part_loss = hole({kT}, state);
    xent_grad(parts[p], part_loss, top, total, integers(kLabels), tensor_of(weights(), state), cuts[p]);
    gradient.narrow(1, cuts[p], cuts[p + 1] - cuts[p]).copy_(parts[p]);
    if (p > 0) expect_same_bits(part_loss, loss, "every part knows the loss");
    loss = part_loss;
  }
  return {loss, gradient};
}

TEST(CrossEntropy, LossAndGradientFollowTheFormulaHoweverTheVocabularyIsCut) {
  for (const auto type : kTypes) {
    const auto logits = random({kT, kV}, type, 1);
    const auto expected = reference(values(logits));
    for (const auto& cuts : {std::vector<i64>{0, kV}, std::vector<i64>{0, 600, 600, 1300, kV}}) {
      const auto [loss, gradient] = run_in_parts(logits, cuts);
      expect_close(loss, expected.loss, tolerance_of(state_of(type)), "loss");
      expect_close(gradient, expected.gradient, tolerance_of(type), "gradient");
    }
  }
}

TEST(CrossEntropy, LargeLogitsDontOverflow) {
  for (const auto type : kTypes) {
    const auto logits = random({kT, kV}, type, 2).mul_(300);
    const auto expected = reference(values(logits));
    const auto [loss, gradient] = run_in_parts(logits, {0, kV});
    expect_close(loss, expected.loss, tolerance_of(state_of(type)), "loss");
    expect_close(gradient, expected.gradient, tolerance_of(type), "gradient");
  }
}

TEST(CrossEntropy, UnusedRowsGiveZeroEvenWhereTheLogitsAreNotNumbers) {
  for (const auto type : kTypes) {
    auto logits = filled({2, 9}, type, NAN), loss = hole({2}, state_of(type));
    xent_grad(logits, loss, filled({2}, state_of(type), 0), filled({2, 2}, state_of(type), NAN), integers({-1, 4}),
              filled({2}, state_of(type), 0), 0);
    expect_close(logits, Doubles(18, 0.0), 0, "gradient");
    expect_close(loss, Doubles(2, 0.0), 0, "loss");
  }
}

TEST(CrossEntropy, APartWithoutColumnsAddsNothing) {
  for (const auto type : kTypes) {
    auto empty = hole({3, 0}, type), top = hole({3}, state_of(type)), sums = hole({2, 3}, state_of(type)),
         loss = hole({3}, state_of(type));
    const auto labels = integers({0, 1, 2});
    xent_max(top, empty);
    expect_close(top, Doubles(3, -INFINITY), 0, "top");
    xent_sums(sums, empty, top, labels, 5);
    expect_close(sums, Doubles(6, 0.0), 0, "sums");
    auto total = filled({2, 3}, state_of(type), 1);
    xent_grad(empty, loss, top, total, labels, filled({3}, state_of(type), 1), 5);
    expect_close(loss, Doubles(3, -1.0), 1e-7, "loss");
    auto none = hole({0, 9}, type), no_rows = hole({0}, state_of(type)), no_sums = hole({2, 0}, state_of(type));
    xent_max(no_rows, none);
    xent_sums(no_sums, none, no_rows, integers({}), 0);
    xent_grad(none, no_rows, no_rows, no_sums, integers({}), no_rows, 0);
  }
}

TEST(CrossEntropy, GradientHasTheSameBitsForAnyNumberOfThreads) {
  const auto logits = random({kT, kV}, at::kFloat, 3);
  expect_same_for_any_threads([&] { return run_in_parts(logits, {0, kV}).second; }, "gradient");
}

TEST(CrossEntropy, RefusesStatisticsOfAnotherLength) {
  auto logits = hole({3, 4}, at::kFloat), top = hole({2}, at::kFloat), sums = hole({2, 2}, at::kFloat);
  const auto labels = integers({1, 2, 3});
  EXPECT_THROW(xent_max(top, logits), InternalError);
  EXPECT_THROW(xent_sums(sums, logits, top, labels, 0), InternalError);
  EXPECT_THROW(xent_grad(logits, top, top, sums, labels, top, 0), InternalError);
}

// Operators copy logits to fp32, of some rows at a time.
TEST(CrossEntropy, GivesTheSameOfManyRowsAsOfSome) {
  const i64 rows = 1100, width = 9, some = 100;
  const at::Tensor values = random({rows, width}, at::kBFloat16, 1), weight = filled({rows}, at::kFloat, 0.5);
  std::vector<i64> columns;
  for (i64 t = 0; t < rows; ++t) columns.push_back(t % (width + 1) - 1);
  const at::Tensor labels = integers(columns);
  struct Pass {
    at::Tensor logits, top, sums, loss;
  };
  const auto run = [&](i64 begin, i64 count) {
    Pass pass{hole({count, width}, at::kBFloat16), hole({count}, at::kFloat), hole({2, count}, at::kFloat),
              hole({count}, at::kFloat)};
    pass.logits.copy_(values.narrow(0, begin, count));
    const at::Tensor label = labels.narrow(0, begin, count);
    xent_max(pass.top, pass.logits);
    xent_sums(pass.sums, pass.logits, pass.top, label, 0);
    xent_grad(pass.logits, pass.loss, pass.top, pass.sums, label, weight.narrow(0, begin, count), 0);
    return pass;
  };
  const Pass whole = run(0, rows);
  for (i64 begin = 0; begin < rows; begin += some) {
    const Pass part = run(begin, some);
    expect_close(whole.logits.narrow(0, begin, some), oracle::values(part.logits), 1e-6, "gradient");
    expect_close(whole.sums.narrow(1, begin, some).contiguous(), oracle::values(part.sums), 1e-6, "sums");
    expect_close(whole.loss.narrow(0, begin, some), oracle::values(part.loss), 1e-6, "loss");
  }
}

}  // namespace
}  // namespace switchyard::kernels
