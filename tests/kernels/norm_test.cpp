#include "kernels/norm.hpp"

#include "base/errors.hpp"
#include "oracle.hpp"

namespace switchyard::kernels {
namespace {

using namespace oracle;

constexpr double kEps = 1e-5;

struct Reference {  // one normalization in plain loops; centered for LayerNorm, not for RMSNorm
  Doubles y, mean, rstd, dx, dw, db;
};

/// Groups of G numbers, each normalized separately. dx has the mean terms written out; another test checks it against
/// central differences.
Reference normalise(const Doubles& x, const Doubles& w, const Doubles& b, const Doubles& dy, bool centred) {
  const std::size_t G = w.size();
  Reference r{Doubles(x.size()), {}, {}, Doubles(x.size()), Doubles(G), Doubles(G)};
  for (std::size_t s = 0; s < x.size() / G; ++s) {
    const double* v = x.data() + s * G;
    const double* d = dy.data() + s * G;
    const double n = static_cast<double>(G);
    double mean = 0, square = 0;
    for (std::size_t i = 0; i < G; ++i) mean += centred ? v[i] / n : 0;
    for (std::size_t i = 0; i < G; ++i) square += (v[i] - mean) * (v[i] - mean) / n;
    const double rstd = 1 / std::sqrt(square + kEps);
    double g_mean = 0, g_dot = 0;
    for (std::size_t i = 0; i < G; ++i) {
      g_mean += centred ? d[i] * w[i] / n : 0;
      g_dot += d[i] * w[i] * (v[i] - mean) * rstd / n;
    }
    for (std::size_t i = 0; i < G; ++i) {
      const double normal = (v[i] - mean) * rstd;
      r.y[s * G + i] = normal * w[i] + b[i];
      r.dx[s * G + i] = rstd * (d[i] * w[i] - g_mean - normal * g_dot);
      r.dw[i] += d[i] * normal;
      r.db[i] += d[i];
    }
    r.mean.push_back(mean);
    r.rstd.push_back(rstd);
  }
  return r;
}

Doubles sum(Doubles a, const Doubles& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

TEST(Norm, TheReferenceGradientIsTheSlopeOfTheReference) {
  auto x = values(random({2, 5}, at::kDouble, 1));
  const auto w = values(random({5}, at::kDouble, 2)), dy = values(random({2, 5}, at::kDouble, 3)),
             b = values(random({5}, at::kDouble, 4));
  for (const bool centred : {false, true}) {
    const auto at_x = normalise(x, w, b, dy, centred);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double h = 1e-6, kept = x[i];
      double slope = 0;
      for (const double step : {h, -h}) {
        x[i] = kept + step;
        const auto moved = normalise(x, w, b, dy, centred);
        for (std::size_t j = 0; j < dy.size(); ++j) slope += dy[j] * moved.y[j] / (2 * step);
      }
      x[i] = kept;
      EXPECT_NEAR(slope, at_x.dx[i], 1e-8);
    }
  }
}

TEST(Norm, RmsNormAndItsGradientsFollowTheFormulaForRowsAndForHeads) {
  const i64 T = 300;
  for (const auto type : kTypes) {
    for (const i64 group : {24, 8}) {  // whole rows; three heads of 8
      const i64 H = 24, groups = H / group;
      const auto x = random({T, H}, type, 1, 2), w = random({group}, type, 2), dy = random({T, H}, type, 3, 4);
      const auto residual = random({T, H}, type, 4, 6);
      const auto expected =
          normalise(values(x), values(w), Doubles(static_cast<std::size_t>(group)), values(dy), false);
      auto y = hole({T, H}, type, 2), rstd = hole({T, groups}, state_of(type)), dx = hole({T, H}, type, 2);
      auto dw = random({group}, state_of(type), 5);
      const auto dw_expected = sum(values(dw), expected.dw);
      rms_norm(y, rstd, x, w, kEps);
      expect_close(y, expected.y, tolerance_of(type), "y");
      expect_close(rstd, expected.rstd, tolerance_of(state_of(type)), "rstd");
      rms_norm_dx(dx, dy, x, w, rstd, {});
      expect_close(dx, expected.dx, tolerance_of(type), "dx");
      rms_norm_dx(dx, dy, x, w, rstd, residual);
      expect_close(dx, sum(values(residual), expected.dx), tolerance_of(type), "dx with residual");
      rms_norm_dw(dw, dy, x, rstd);
      expect_close(dw, dw_expected, tolerance_of(state_of(type)), "dw");
    }
  }
}

TEST(Norm, GradientsOfRmsNormAreThreeOperatorsOnADevice) {
  const auto x = random({30, 16}, at::kBFloat16, 1), w = random({16}, at::kBFloat16, 2),
             dy = random({30, 16}, at::kBFloat16, 3), rstd = filled({30, 1}, at::kFloat, 1);
  auto dx = hole({30, 16}, at::kBFloat16), dw = filled({16}, at::kFloat, 0);
  EXPECT_LE(operators_of([&] { rms_norm_dx(dx, dy, x, w, rstd, x); }), 3) << "libtorch's own, the residual, a copy";
  EXPECT_LE(operators_of([&] { rms_norm_dw(dw, dy, x, rstd); }), 3) << "a copy in fp32, its product with x, the sum";
}

TEST(Norm, LayerNormAndItsGradientsFollowTheFormula) {
  const i64 T = 300, H = 24;
  for (const auto type : kTypes) {
    const auto x = random({T, H}, type, 1, 2), w = random({H}, type, 2), b = random({H}, type, 6),
               dy = random({T, H}, type, 3, 4);
    const auto residual = random({T, H}, type, 4, 6);
    const auto expected = normalise(values(x), values(w), values(b), values(dy), true);
    auto y = hole({T, H}, type, 2), mean = hole({T}, state_of(type)), rstd = hole({T}, state_of(type)),
         dx = hole({T, H}, type, 2);
    auto dw = random({H}, state_of(type), 5), db = random({H}, state_of(type), 7);
    const auto dw_expected = sum(values(dw), expected.dw), db_expected = sum(values(db), expected.db);
    layer_norm(y, mean, rstd, x, w, b, kEps);
    expect_close(y, expected.y, tolerance_of(type), "y");
    expect_close(mean, expected.mean, tolerance_of(state_of(type)), "mean");
    expect_close(rstd, expected.rstd, tolerance_of(state_of(type)), "rstd");
    layer_norm_dx(dx, dy, x, w, mean, rstd, {});
    expect_close(dx, expected.dx, tolerance_of(type), "dx");
    layer_norm_dx(dx, dy, x, w, mean, rstd, residual);
    expect_close(dx, sum(values(residual), expected.dx), tolerance_of(type), "dx with residual");
    layer_norm_dw(dw, db, dy, x, mean, rstd);
    expect_close(dw, dw_expected, tolerance_of(state_of(type)), "dw");
    expect_close(db, db_expected, tolerance_of(state_of(type)), "db");
  }
}

// Features 0 to 4 are on one rank, the others on another; sums are made here.
TEST(Norm, OfRowsInPartsFollowsTheFormulaOfWholeRows) {
  const i64 T = 300, H = 24, first = 5;
  for (const auto type : kTypes)
    for (const bool centred : {false, true}) {
      const auto x = random({T, H}, type, 1, 2), w = random({H}, type, 2), dy = random({T, H}, type, 3, 4),
                 residual = random({T, H}, type, 4, 6);
      const auto b = centred ? random({H}, type, 6) : at::Tensor();
      const auto expected = normalise(values(x), values(w), centred ? values(b) : Doubles(static_cast<std::size_t>(H)),
                                      values(dy), centred);
      auto y = hole({T, H}, type), dx = hole({T, H}, type), mean = hole({T}, state_of(type)),
           rstd = hole({T}, state_of(type)), terms = hole({centred ? 2 : 1, T}, state_of(type));
      const auto parts_of = [&](const at::Tensor& t, i64 part) {
        if (!t.defined()) return t;
        const auto mine = part == 0 ? t.narrow(-1, 0, first) : t.narrow(-1, first, H - first);
        return t.dim() == 1 ? mine.contiguous() : mine;
      };
      const auto summed = [&](at::Tensor& total, const auto& make) {
        total.zero_();
        for (const i64 part : {0, 1}) {
          auto own = total.clone().fill_(NAN);
          make(own, part);
          total.add_(own);
        }
      };
      if (centred) summed(mean, [&](auto& own, i64 part) { norm_mean(own, parts_of(x, part), H); });
      const auto centre = centred ? mean : at::Tensor();
      summed(rstd, [&](auto& own, i64 part) { norm_variance(own, parts_of(x, part), centre, H); });
      const auto variance = rstd.clone();
      for (const i64 part : {0, 1}) {
        rstd.copy_(variance);
        auto out = parts_of(y, part);
        norm_rows(out, rstd, parts_of(x, part), parts_of(w, part), parts_of(b, part), centre, kEps);
      }
      expect_close(y, expected.y, tolerance_of(type), "y");
      expect_close(rstd, expected.rstd, tolerance_of(state_of(type)), "rstd");
      summed(terms, [&](auto& own, i64 part) {
        norm_dx_terms(own, parts_of(dy, part), parts_of(x, part), parts_of(w, part), centre, rstd, H);
      });
      for (const bool adds : {false, true}) {
        for (const i64 part : {0, 1}) {
          auto out = parts_of(dx, part);
          norm_dx_rows(out, parts_of(dy, part), parts_of(x, part), parts_of(w, part), centre, rstd, terms,
                       adds ? parts_of(residual, part) : at::Tensor());
        }
        expect_close(dx, adds ? sum(values(residual), expected.dx) : expected.dx, tolerance_of(type), "dx");
      }
    }
}

TEST(Norm, GradientsMayOverwriteTheirInputs) {
  for (const auto type : kTypes) {
    const auto x = random({7, 16}, type, 1), w = random({16}, type, 2), b = random({16}, type, 3);
    auto dy = random({7, 16}, type, 4), residual = random({7, 16}, type, 5);
    auto y = hole({7, 16}, type), mean = hole({7}, state_of(type)), rstd = hole({7}, state_of(type)),
         dx = hole({7, 16}, type);
    layer_norm(y, mean, rstd, x, w, b, kEps);
    layer_norm_dx(dx, dy, x, w, mean, rstd, residual);
    layer_norm_dx(residual, dy, x, w, mean, rstd, residual);
    expect_same_bits(residual, dx, "over the residual");
    rms_norm_dx(dx, dy, x, w, rstd, {});
    rms_norm_dx(dy, dy, x, w, rstd, {});
    expect_same_bits(dy, dx, "over dy");
  }
}

TEST(Norm, WeightGradientsHaveTheSameBitsForAnyNumberOfThreads) {
  const auto x = random({1500, 64}, at::kFloat, 1), dy = random({1500, 64}, at::kFloat, 2),
             rstd = random({1500}, at::kFloat, 3);
  expect_same_for_any_threads(
      [&] {
        auto dw = filled({64}, at::kFloat, 0);
        rms_norm_dw(dw, dy, x, rstd);
        return dw;
      },
      "rms dw");
  expect_same_for_any_threads(
      [&] {
        auto both = filled({2, 64}, at::kFloat, 0);
        auto dw = both.select(0, 0), db = both.select(0, 1);
        layer_norm_dw(dw, db, dy, x, rstd, rstd);
        return both;
      },
      "layer norm dw and db");
}

TEST(Norm, EmptyTensorsDontChangeGradients) {
  for (const auto type : kTypes) {
    auto none = hole({0, 8}, type), statistics = hole({0, 1}, state_of(type)), row = hole({0}, state_of(type));
    const auto w = random({8}, type, 1);
    auto dw = filled({8}, state_of(type), 3), db = filled({8}, state_of(type), 3);
    rms_norm(none, statistics, none, w, kEps);
    rms_norm_dx(none, none, none, w, statistics, {});
    rms_norm_dw(dw, none, none, statistics);
    layer_norm(none, row, row, none, w, w, kEps);
    layer_norm_dx(none, none, none, w, row, row, {});
    layer_norm_dw(dw, db, none, none, row, row);
    expect_close(dw, Doubles(8, 3.0), 0, "dw");
    expect_close(db, Doubles(8, 3.0), 0, "db");
    auto terms = hole({2, 0}, state_of(type));
    norm_mean(row, none, 16);
    norm_variance(row, none, row, 16);
    norm_rows(none, row, none, w, w, row, kEps);
    norm_dx_terms(terms, none, none, w, row, row, 16);
    norm_dx_rows(none, none, none, w, row, row, terms, {});
    auto no_heads = hole({3, 0}, type), no_statistics = hole({3, 0}, state_of(type));
    rms_norm(no_heads, no_statistics, no_heads, w, kEps);
  }
}

TEST(Norm, RefusesWeightsThatDontDivideTheRow) {
  auto x = hole({2, 10}, at::kFloat), statistics = hole({2, 1}, at::kFloat), w = hole({4}, at::kFloat);
  EXPECT_THROW(rms_norm(x, statistics, x, w, kEps), InternalError);
  EXPECT_THROW(rms_norm_dx(x, x, x, w, statistics, {}), InternalError);
  EXPECT_THROW(rms_norm_dw(w, x, x, statistics), InternalError);
  EXPECT_THROW(layer_norm(x, statistics, statistics, x, w, w, kEps), InternalError);
  EXPECT_THROW(layer_norm_dx(x, x, x, w, statistics, statistics, {}), InternalError);
  EXPECT_THROW(layer_norm_dw(w, w, x, x, statistics, statistics), InternalError);
  auto row = hole({2}, at::kFloat), terms = hole({2, 2}, at::kFloat);
  EXPECT_THROW(norm_rows(x, row, x, w, w, row, kEps), InternalError);
  EXPECT_THROW(norm_dx_terms(terms, x, x, w, row, row, 20), InternalError);
  EXPECT_THROW(norm_dx_rows(x, x, x, w, row, row, terms, {}), InternalError);
}

TEST(Norm, OfRowsInPartsRefusesStatisticsOfOtherRows) {
  auto x = hole({2, 10}, at::kFloat), w = hole({10}, at::kFloat), row = hole({2}, at::kFloat),
       other = hole({3}, at::kFloat), terms = hole({1, 2}, at::kFloat);
  EXPECT_THROW(norm_mean(other, x, 20), InternalError);
  EXPECT_THROW(norm_variance(other, x, {}, 20), InternalError);
  EXPECT_THROW(norm_variance(row, x, other, 20), InternalError);
  EXPECT_THROW(norm_rows(x, other, x, w, {}, {}, kEps), InternalError);
  EXPECT_THROW(norm_dx_terms(terms, x, x, w, row, row, 20), InternalError) << "LayerNorm has two terms";
  EXPECT_THROW(norm_dx_rows(x, x, x, w, {}, row, other.view({1, 3}), {}), InternalError);
}

}  // namespace
}  // namespace switchyard::kernels
