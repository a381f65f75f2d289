#include "kernels/activation.hpp"

#include "base/errors.hpp"
#include "oracle.hpp"

namespace switchyard::kernels {
namespace {

using namespace oracle;

double silu(double x) { return x / (1 + std::exp(-x)); }
double gelu_exact(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }
double gelu_tanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

/// Central difference, accurate to about 1e-9 in fp64.
double slope(double (*f)(double), double x) {
  const double h = 1e-5;
  return (f(x + h) - f(x - h)) / (2 * h);
}

TEST(Activation, SwigluAndItsGradientsFollowTheFormula) {
  for (const auto type : kTypes) {
    for (const i64 width : {1, 7, 64, 1409}) {
      const auto gate = random({5, width}, type, 1, 3), up = random({5, width}, type, 2, 3),
                 dh = random({5, width}, type, 3, 3);
      const auto g = values(gate), u = values(up), d = values(dh);
      Doubles h_expected, dgate_expected, dup_expected;
      for (std::size_t i = 0; i < g.size(); ++i) {
        h_expected.push_back(silu(g[i]) * u[i]);
        dgate_expected.push_back(d[i] * u[i] * slope(silu, g[i]));
        dup_expected.push_back(d[i] * silu(g[i]));
      }
      auto h = hole({5, width}, type, 3), dgate = hole({5, width}, type, 3), dup = hole({5, width}, type, 3);
      swiglu(h, gate, up);
      expect_close(h, h_expected, tolerance_of(type), "h");
      swiglu_dx(dgate, dup, dh, gate, up);
      expect_close(dgate, dgate_expected, std::max(1e-9, tolerance_of(type)), "dgate");
      expect_close(dup, dup_expected, tolerance_of(type), "dup");
    }
  }
}

TEST(Activation, SwigluStaysFiniteFarFromZero) {
  const auto gate = integers({-1000, -95, 95, 1000}).view({1, 4}).to(at::kFloat), up = filled({1, 4}, at::kFloat, 1);
  auto h = hole({1, 4}, at::kFloat);
  swiglu(h, gate, up);
  expect_close(h, {0, 0, 95, 1000}, 1e-6, "h");
}

TEST(Activation, NotANumberIsNotHidden) {
  for (const auto type : kTypes) {
    auto h = filled({1, 9}, type, 0);
    swiglu(h, filled({1, 9}, type, NAN), filled({1, 9}, type, 1));
    for (const double v : values(h)) EXPECT_TRUE(std::isnan(v)) << toString(type);
  }
}

TEST(Activation, SwigluGradientsMayOverwriteTheirInputs) {
  for (const auto type : kTypes) {
    auto gate = random({3, 21}, type, 1), up = random({3, 21}, type, 2);
    const auto dh = random({3, 21}, type, 3);
    auto dgate = hole({3, 21}, type), dup = hole({3, 21}, type);
    swiglu_dx(dgate, dup, dh, gate, up);
    swiglu_dx(gate, up, dh, gate, up);
    expect_same_bits(gate, dgate, "dgate in place");
    expect_same_bits(up, dup, "dup in place");
  }
}

TEST(Activation, GeluHasBothForms) {
  for (const auto type : kTypes) {
    const auto x = random({6, 33}, type, 1, 5), dy = random({6, 33}, type, 2, 5);
    for (const bool tanh_form : {false, true}) {
      const auto f = tanh_form ? gelu_tanh : gelu_exact;
      Doubles y_expected, dx_expected;
      const auto x_v = values(x), dy_v = values(dy);
      for (std::size_t i = 0; i < x_v.size(); ++i) {
        y_expected.push_back(f(x_v[i]));
        dx_expected.push_back(dy_v[i] * slope(f, x_v[i]));
      }
      auto y = hole({6, 33}, type, 5), dx = hole({6, 33}, type, 5);
      gelu(y, x, tanh_form);
      gelu_dx(dx, dy, x, tanh_form);
      expect_close(y, y_expected, tolerance_of(type), "y");
      expect_close(dx, dx_expected, std::max(1e-9, tolerance_of(type)), "dx");
    }
  }
}

TEST(Activation, AddMayOverwriteEitherPartial) {
  for (const auto type : kTypes) {
    for (const bool first : {true, false}) {
      auto a = random({4, 50}, type, 1, 2), b = random({4, 50}, type, 2, 4);
      Doubles expected = values(a);
      const auto b_v = values(b);
      for (std::size_t i = 0; i < b_v.size(); ++i) expected[i] += b_v[i];
      add(first ? a : b, a, b);
      expect_close(first ? a : b, expected, tolerance_of(type), "sum");
    }
  }
}

TEST(Activation, EmptyTensorsAreAccepted) {
  for (const auto type : kTypes) {
    for (const auto& shape : {std::vector<i64>{0, 8}, std::vector<i64>{3, 0}}) {
      auto a = hole(shape, type), b = hole(shape, type);
      const auto c = hole(shape, type);
      swiglu(a, b, c);
      swiglu_dx(a, b, c, c, c);
      gelu(a, b, true);
      gelu_dx(a, b, c, false);
      add(a, b, c);
    }
  }
}

TEST(Activation, RefusesShapesThatDontFit) {
  auto a = hole({2, 3}, at::kFloat), b = hole({2, 3}, at::kFloat);
  const auto c = hole({2, 4}, at::kFloat);
  EXPECT_THROW(swiglu(a, b, c), InternalError);
  EXPECT_THROW(swiglu_dx(a, b, c, a, b), InternalError);
  EXPECT_THROW(gelu(a, c, true), InternalError);
  EXPECT_THROW(gelu_dx(a, c, a, true), InternalError);
  EXPECT_THROW(add(a, b, c), InternalError);
}

}  // namespace
}  // namespace switchyard::kernels
