#include "kernels/linear.hpp"

#include "base/errors.hpp"
#include "oracle.hpp"

namespace switchyard::kernels {
namespace {

using namespace oracle;

/// a (m, k) times b (k, n), plus c if given.
Doubles product(const Doubles& a, const Doubles& b, i64 m, i64 k, i64 n, const Doubles& c = {}) {
  Doubles out(static_cast<std::size_t>(m * n));
  for (i64 i = 0; i < m; ++i) {
    for (i64 j = 0; j < n; ++j) {
      double sum = c.empty() ? 0 : c[i * n + j];
      for (i64 l = 0; l < k; ++l) sum += a[i * k + l] * b[l * n + j];
      out[i * n + j] = sum;
    }
  }
  return out;
}

Doubles transposed(const Doubles& a, i64 rows, i64 columns) {
  Doubles out(a.size());
  for (i64 i = 0; i < rows; ++i) {
    for (i64 j = 0; j < columns; ++j) out[j * rows + i] = a[i * columns + j];
  }
  return out;
}

TEST(Linear, GivesTheProductsOfPlainLoopsInEveryTypeAndStride) {
  const i64 T = 37, I = 19, O = 23;
  for (const auto type : kTypes) {
    for (const i64 spare : {0, 6}) {
      const auto x = random({T, I}, type, 1, spare), w = random({O, I}, type, 2, spare),
                 dy = random({T, O}, type, 3, spare);
      const auto bias = random({O}, type, 4);
      const auto x_v = values(x), w_v = values(w), dy_v = values(dy), bias_v = values(bias);
      const double tolerance = tolerance_of(type);

      auto y = hole({T, O}, type, spare);
      linear(y, x, w, {});
      expect_close(y, product(x_v, transposed(w_v, O, I), T, I, O), tolerance, "y");
      linear(y, x, w, bias);
      Doubles rows_of_bias;
      for (i64 t = 0; t < T; ++t) rows_of_bias.insert(rows_of_bias.end(), bias_v.begin(), bias_v.end());
      expect_close(y, product(x_v, transposed(w_v, O, I), T, I, O, rows_of_bias), tolerance, "y with bias");

      auto dx = hole({T, I}, type, spare);
      linear_dx(dx, dy, w, false);
      const auto once = product(dy_v, w_v, T, O, I);
      expect_close(dx, once, tolerance, "dx");
      linear_dx(dx, dy, w, true);
      auto twice = once;
      for (double& v : twice) v *= 2;
      expect_close(dx, twice, tolerance, "dx accumulated");

      auto dw = random({O, I}, state_of(type), 5, spare);
      const auto dw_expected = product(transposed(dy_v, T, O), x_v, O, T, I, values(dw));
      linear_dw(dw, dy, x);
      expect_close(dw, dw_expected, tolerance_of(state_of(type)), "dw");

      auto db = random({O}, state_of(type), 6);
      auto db_expected = values(db);
      for (i64 t = 0; t < T; ++t) {
        for (i64 o = 0; o < O; ++o) db_expected[o] += dy_v[t * O + o];
      }
      bias_dw(db, dy);
      expect_close(db, db_expected, tolerance_of(state_of(type)), "db");
    }
  }
}

TEST(Linear, AWeightsGradientIsOneProductOnADevice) {
  auto dw = filled({5, 3}, at::kFloat, 2);
  const auto dy = random({7, 5}, at::kBFloat16, 1), x = random({7, 3}, at::kBFloat16, 2);
  EXPECT_LE(operators_of([&] { linear_dw(dw, dy, x); }), 1) << "added to the sum in fp32 where it lies";
}

TEST(Linear, WritesOnlyTheColumnsOfItsOutput) {
  auto whole = filled({8, 12}, at::kFloat, 7);
  auto y = whole.narrow(1, 4, 4);
  linear(y, random({8, 5}, at::kFloat, 1), random({4, 5}, at::kFloat, 2), {});
  expect_same_bits(whole.narrow(1, 0, 4), filled({8, 4}, at::kFloat, 7), "left");
  expect_same_bits(whole.narrow(1, 8, 4), filled({8, 4}, at::kFloat, 7), "right");
}

TEST(Linear, EmptyTensorsGiveZeroProducts) {
  for (const auto type : kTypes) {
    auto none = hole({0, 3}, type);
    linear(none, hole({0, 5}, type), random({3, 5}, type, 1), {});
    auto no_columns = hole({4, 0}, type);
    linear(no_columns, random({4, 5}, type, 1), hole({0, 5}, type), {});
    auto dx = hole({4, 5}, type);
    linear_dx(dx, no_columns, hole({0, 5}, type), false);
    expect_close(dx, Doubles(20, 0.0), 0, "dx of no outputs");
    auto kept = filled({4, 5}, type, 2);
    linear_dx(kept, no_columns, hole({0, 5}, type), true);
    expect_close(kept, Doubles(20, 2.0), 0, "dx kept");
    auto dw = filled({3, 5}, state_of(type), 2);
    linear_dw(dw, none, hole({0, 5}, type));
    expect_close(dw, Doubles(15, 2.0), 0, "dw kept");
    auto db = filled({3}, state_of(type), 2);
    bias_dw(db, none);
    expect_close(db, Doubles(3, 2.0), 0, "db kept");
  }
}

TEST(Linear, BiasGradientHasTheSameBitsForAnyNumberOfThreads) {
  const auto dy = random({3000, 40}, at::kFloat, 1);
  expect_same_for_any_threads(
      [&] {
        auto db = filled({40}, at::kFloat, 0);
        bias_dw(db, dy);
        return db;
      },
      "db");
}

TEST(Linear, RefusesShapesThatDontFitAndNamesThem) {
  auto y = hole({4, 3}, at::kFloat);
  try {
    linear(y, hole({4, 5}, at::kFloat), hole({3, 6}, at::kFloat), {});
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(),
                 "linear: these tensors don't fit together: (4, 3) Float, (4, 5) Float, (3, 6) Float, none");
  }
  EXPECT_THROW(linear_dx(y, hole({4, 5}, at::kFloat), hole({3, 6}, at::kFloat), false), InternalError);
  EXPECT_THROW(linear_dw(y, hole({4, 5}, at::kFloat), hole({3, 6}, at::kFloat)), InternalError);
  EXPECT_THROW(bias_dw(y, hole({4, 5}, at::kFloat)), InternalError);
}

}  // namespace
}  // namespace switchyard::kernels
