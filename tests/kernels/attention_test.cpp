#include "kernels/attention.hpp"

#include <cmath>
#include <limits>

#include "base/errors.hpp"
#include "oracle.hpp"

namespace switchyard::kernels {
namespace {

using namespace oracle;

struct Case {
  i64 queries = 0, keys = 0, heads = 0, kv_heads = 0;
  int dim = 0;
  std::vector<AttentionBlock> blocks;
};

struct Reference {
  Doubles o, lse, dq, dk, dv;
};

/// Scores, softmax and the chain rule in plain loops over (block, head, query, key).
Reference reference(const Case& c, const Doubles& q, const Doubles& k, const Doubles& v, const Doubles& d_out,
                    double scale) {
  const i64 D = c.dim, per = c.kv_heads == 0 ? 1 : c.heads / c.kv_heads;
  Reference r{Doubles(q.size()), Doubles(static_cast<std::size_t>(c.heads * c.queries), -INFINITY), Doubles(q.size()),
              Doubles(k.size()), Doubles(k.size())};
  for (const auto& b : c.blocks) {
    for (i64 h = 0; h < c.heads; ++h) {
      for (i64 i = 0; i < b.qn; ++i) {
        const i64 seen = b.causal ? b.kn - b.qn + i + 1 : b.kn, row = ((b.q + i) * c.heads + h) * D;
        const auto key_row = [&](i64 j) { return ((b.k + j) * c.kv_heads + h / per) * D; };
        Doubles p(static_cast<std::size_t>(seen)), dp(p.size());
        double top = -INFINITY, sum = 0, delta = 0;
        for (i64 j = 0; j < seen; ++j) {
          for (i64 d = 0; d < D; ++d) p[j] += q[row + d] * k[key_row(j) + d] * scale;
          top = std::max(top, p[j]);
        }
        for (i64 j = 0; j < seen; ++j) sum += std::exp(p[j] - top);
        if (seen > 0) r.lse[h * c.queries + b.q + i] = top + std::log(sum);
        for (i64 j = 0; j < seen; ++j) {
          p[j] = std::exp(p[j] - top) / sum;
          for (i64 d = 0; d < D; ++d) {
            r.o[row + d] += p[j] * v[key_row(j) + d];
            r.dv[key_row(j) + d] += p[j] * d_out[row + d];
            dp[j] += d_out[row + d] * v[key_row(j) + d];
          }
          delta += p[j] * dp[j];
        }
        for (i64 j = 0; j < seen; ++j) {
          const double ds = p[j] * (dp[j] - delta) * scale;
          for (i64 d = 0; d < D; ++d) {
            r.dq[row + d] += ds * k[key_row(j) + d];
            r.dk[key_row(j) + d] += ds * q[row + d];
          }
        }
      }
    }
  }
  return r;
}

struct Tensors {
  at::Tensor q, k, v, d_out, o, lse, dq, dk, dv;
};

Tensors tensors_of(const Case& c, at::ScalarType type, i64 spare) {
  const i64 wide = c.heads * c.dim, narrow = c.kv_heads * c.dim;
  return {random({c.queries, wide}, type, 1, spare), random({c.keys, narrow}, type, 2, spare),
          random({c.keys, narrow}, type, 3, spare),  random({c.queries, wide}, type, 4, spare),
          hole({c.queries, wide}, type, spare),      hole({c.heads, c.queries}, state_of(type)),
          hole({c.queries, wide}, type, spare),      hole({c.keys, narrow}, type, spare),
          hole({c.keys, narrow}, type, spare)};
}

void run(Tensors& t, const Case& c, double scale) {
  attention(t.o, t.lse, t.q, t.k, t.v, c.blocks, c.dim, scale);
  attention_backward(t.dq, t.dk, t.dv, t.d_out, t.q, t.k, t.v, t.o, t.lse, c.blocks, c.dim, scale);
}

void compare(const Case& c, at::ScalarType type, i64 spare = 0) {
  const double scale = 0.9 / std::sqrt(c.dim);
  Tensors t = tensors_of(c, type, spare);
  run(t, c, scale);
  const auto expected = reference(c, values(t.q), values(t.k), values(t.v), values(t.d_out), scale);
  const double tolerance = type == at::kDouble ? 1e-12 : tolerance_of(type);
  expect_close(t.o, expected.o, tolerance, "o");
  const auto lse = values(t.lse);
  for (std::size_t i = 0; i < lse.size(); ++i) {
    if (std::isinf(expected.lse[i])) {
      EXPECT_EQ(lse[i], expected.lse[i]);
    } else {
      EXPECT_NEAR(lse[i], expected.lse[i], type == at::kDouble ? 1e-12 : 1e-5);
    }
  }
  expect_close(t.dq, expected.dq, tolerance, "dq");
  expect_close(t.dk, expected.dk, tolerance, "dk");
  expect_close(t.dv, expected.dv, tolerance, "dv");
}

/// Blocks of causal documents, one after another.
Case documents(const std::vector<int>& lengths, i64 heads, i64 kv_heads, int dim) {
  Case c{0, 0, heads, kv_heads, dim, {}};
  for (const int n : lengths) {
    const int start = static_cast<int>(c.queries);
    c.blocks.push_back({start, n, start, n, true});
    c.queries += n;
  }
  c.keys = c.queries;
  return c;
}

TEST(Attention, CausalDocumentsOfAnyLengthMatchPlainLoops) {
  // Lengths below, at and above the tile sizes.
  const std::vector<int> lengths = {1, 64, 129, 3, 257, 128, 63, 300};
  for (const auto type : kTypes) {
    compare(documents(lengths, 4, 2, 8), type);
    compare(documents(lengths, 3, 1, 5), type, 6);
    compare(documents({70}, 2, 2, 64), type, 2);
  }
}

TEST(Attention, ADocumentLongerThanOneChunkOfQueriesMatchesPlainLoops) {
  for (const auto type : kTypes) compare(documents({1100}, 2, 1, 4), type);
}

TEST(Attention, BlocksMayShareKeysSkipRowsAndDifferInLength) {
  // Two query ranges see the same keys, a third sees keys overlapping them; queries 20..24 and keys 90.. see nothing.
  const Case c{230, 320,
               4,   2,
               8,   {{0, 20, 0, 90, false}, {25, 70, 0, 90, false}, {95, 130, 50, 270, false}, {225, 5, 60, 5, true}}};
  for (const auto type : kTypes) compare(c, type, 4);
}

TEST(Attention, CausalQueriesMayBeTheLastOfTheirKeys) {
  // Keys before the first query's own one: fewer and more than a tile, so that tiles of keys begin inside, at and
  // behind what a tile of queries sees.
  const std::vector<std::pair<int, int>> sizes = {{1, 2},     {1, 300},   {64, 65},   {130, 131}, {100, 228},
                                                  {129, 257}, {128, 400}, {300, 301}, {70, 700},  {200, 383}};
  Case all{0, 0, 4, 2, 8, {}};
  for (const auto& [queries, keys] : sizes) {
    for (const auto type : kTypes) compare({queries, keys, 2, 1, 5, {{0, queries, 0, keys, true}}}, type, 3);
    all.blocks.push_back({static_cast<int>(all.queries), queries, static_cast<int>(all.keys), keys, true});
    all.queries += queries;
    all.keys += keys;
  }
  for (const auto type : kTypes) compare(all, type);
}

TEST(Attention, PiecesOfADocumentEqualTheWholeDocument) {
  // Queries of each piece against all keys up to the piece's end: gradients of keys add up over the pieces.
  const Case whole = documents({333}, 4, 2, 8);
  Case pieces = whole;
  pieces.blocks.clear();
  for (const auto& [first, end] : {std::pair{0, 47}, {47, 150}, {150, 151}, {151, 333}})
    pieces.blocks.push_back({first, end - first, 0, end, true});
  Tensors expected = tensors_of(whole, at::kDouble, 0), actual = tensors_of(whole, at::kDouble, 0);
  run(expected, whole, 0.25);
  run(actual, pieces, 0.25);
  expect_close(actual.o, values(expected.o), 1e-13, "o");
  expect_close(actual.dq, values(expected.dq), 1e-12, "dq");
  expect_close(actual.dk, values(expected.dk), 1e-12, "dk");
  expect_close(actual.dv, values(expected.dv), 1e-12, "dv");
}

// A document in parts: each part's queries see its own keys first, then those of the parts before, one after the other,
// as tensors of their own. Lengths below and above the tile sizes.
TEST(AttentionToMoreKeys, OnePartAfterTheOtherEqualsTheWholeDocument) {
  const std::vector<std::pair<int, int>> parts = {{0, 47}, {47, 150}, {150, 151}, {151, 333}, {333, 700}};
  const Case whole = documents({700}, 4, 2, 8);
  for (const auto type : kTypes) {
    Tensors expected = tensors_of(whole, type, 0), actual = tensors_of(whole, type, 2);
    run(expected, whole, 0.25);
    const at::ScalarType state = state_of(type);
    at::Tensor o = hole({whole.queries, 32}, state, 3), dq = o.new_zeros(o.sizes()), dk = o.new_zeros({whole.keys, 16}),
               dv = dk.clone();
    std::vector<AttentionBlock> own;
    for (const auto& [first, end] : parts) own.push_back({first, end - first, first, end - first, true});
    attention(o, actual.lse, actual.q, actual.k, actual.v, own, whole.dim, 0.25);
    const auto each_earlier = [&](const auto& visit) {
      for (const auto& [key, key_end] : parts) {
        std::vector<AttentionBlock> later;
        for (const auto& [first, end] : parts)
          if (first >= key_end) later.push_back({first, end - first, 0, key_end - key, false});
        visit(key, key_end - key, later);
      }
    };
    each_earlier([&](int key, int count, const std::vector<AttentionBlock>& blocks) {
      attention_to_more_keys(o, actual.lse, actual.q, actual.k.narrow(0, key, count), actual.v.narrow(0, key, count),
                             blocks, whole.dim, 0.25);
    });
    const double tolerance = type == at::kDouble ? 1e-13 : tolerance_of(type);
    expect_close(o, values(expected.o), tolerance, "o");
    expect_close(actual.lse, values(expected.lse), tolerance, "lse");
    add_attention_gradients(dq, dk, dv, actual.d_out, actual.q, actual.k, actual.v, o, actual.lse, own, whole.dim,
                            0.25);
    each_earlier([&](int key, int count, const std::vector<AttentionBlock>& blocks) {
      at::Tensor dk_part = dk.narrow(0, key, count), dv_part = dv.narrow(0, key, count);
      add_attention_gradients(dq, dk_part, dv_part, actual.d_out, actual.q, actual.k.narrow(0, key, count),
                              actual.v.narrow(0, key, count), o, actual.lse, blocks, whole.dim, 0.25);
    });
    expect_close(dq, values(expected.dq), 10 * tolerance, "dq");
    expect_close(dk, values(expected.dk), 10 * tolerance, "dk");
    expect_close(dv, values(expected.dv), 10 * tolerance, "dv");
  }
}

// One query and two keys of opposite scores, one after the other: the larger one decides, whichever comes first.
TEST(AttentionToMoreKeys, ScoresThatDifferByFarStayFinite) {
  for (const auto type : kTypes)
    for (const double score : {-80.0, -40.0, 0.0, 40.0, 80.0}) {
      at::Tensor q = hole({1, 1}, type), k = hole({2, 1}, type), v = hole({2, 1}, type),
                 o = hole({1, 1}, state_of(type)), lse = hole({1, 1}, state_of(type));
      q.fill_(1);
      k.select(0, 0).fill_(-score / 2);
      k.select(0, 1).fill_(score / 2);
      v.select(0, 0).fill_(1);
      v.select(0, 1).fill_(3);
      attention(o, lse, q, k, v, {{0, 1, 0, 1, false}}, 1, 1.0);
      attention_to_more_keys(o, lse, q, k, v, {{0, 1, 1, 1, false}}, 1, 1.0);
      const double share = 1 / (1 + std::exp(-score));
      EXPECT_NEAR(o.item<double>(), 1 + 2 * share, 1e-6) << score;
      EXPECT_NEAR(lse.item<double>(), std::abs(score) / 2 + std::log1p(std::exp(-std::abs(score))), 1e-5) << score;
    }
}

TEST(AttentionToMoreKeys, BlocksWithoutKeysChangeNothingAndTheFirstKeysMayComeLate) {
  for (const auto type : kTypes) {
    const Case c{4, 6, 2, 1, 3, {{0, 2, 0, 6, false}}};
    Tensors t = tensors_of(c, type, 0);
    at::Tensor o = hole({4, 6}, state_of(type));
    attention(o, t.lse, t.q, t.k, t.v, c.blocks, c.dim, 0.5);
    const at::Tensor before = o.clone(), lse = t.lse.clone();
    attention_to_more_keys(o, t.lse, t.q, t.k, t.v, {{0, 4, 0, 0, false}}, c.dim, 0.5);
    expect_same_bits(o, before, "o");
    expect_same_bits(t.lse, lse, "lse");
    attention_to_more_keys(o, t.lse, t.q, t.k, t.v, {{2, 2, 0, 6, false}}, c.dim, 0.5);
    Tensors late = tensors_of(c, type, 0);
    attention(late.o, late.lse, late.q, late.k, late.v, {{0, 4, 0, 6, false}}, c.dim, 0.5);
    expect_close(o, values(late.o), type == at::kDouble ? 1e-13 : tolerance_of(type), "o");
    for (const double value : values(t.lse)) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(Attention, BlocksWithoutKeysOrQueriesGiveNothing) {
  const Case c{10, 10, 2, 1, 4, {{0, 4, 2, 0, false}, {4, 0, 0, 10, false}, {5, 3, 5, 3, true}}};
  for (const auto type : kTypes) {
    compare(c, type);
    compare({6, 6, 2, 1, 4, {}}, type);
  }
}

TEST(Attention, EmptyTensorsAreAccepted) {
  for (const auto type : kTypes) {
    compare({0, 0, 2, 1, 4, {}}, type);
    compare({5, 5, 0, 0, 4, {{0, 5, 0, 5, true}}}, type);
    compare({5, 0, 2, 1, 4, {{0, 5, 0, 0, false}}}, type);
  }
}

TEST(Attention, TheReferenceGradientsAreTheSlopesOfTheReference) {
  const Case c = documents({3, 4}, 2, 1, 3);
  auto t = tensors_of(c, at::kDouble, 0);
  Doubles inputs[3] = {values(t.q), values(t.k), values(t.v)};
  const auto d = values(t.d_out);
  const auto exact = reference(c, inputs[0], inputs[1], inputs[2], d, 0.7);
  const Doubles* gradients[3] = {&exact.dq, &exact.dk, &exact.dv};
  for (int which = 0; which < 3; ++which) {
    for (std::size_t i = 0; i < inputs[which].size(); ++i) {
      const double h = 1e-6, kept = inputs[which][i];
      double slope = 0;
      for (const double step : {h, -h}) {
        inputs[which][i] = kept + step;
        const auto moved = reference(c, inputs[0], inputs[1], inputs[2], d, 0.7);
        for (std::size_t j = 0; j < d.size(); ++j) slope += d[j] * moved.o[j] / (2 * step);
      }
      inputs[which][i] = kept;
      EXPECT_NEAR(slope, (*gradients[which])[i], 1e-8);
    }
  }
}

TEST(Attention, ADocumentIsIndependentOfOthers) {
  const Case c = documents({150, 90, 40}, 4, 2, 16);
  for (const auto type : kTypes) {
    Tensors before = tensors_of(c, type, 0), after = tensors_of(c, type, 0);
    for (auto* x : {&after.q, &after.k, &after.v, &after.d_out}) x->narrow(0, 150, 90).mul_(-3).add_(1);
    run(before, c, 0.25);
    run(after, c, 0.25);
    for (const auto& [start, n] : {std::pair<i64, i64>{0, 150}, {240, 40}}) {
      expect_same_bits(before.o.narrow(0, start, n), after.o.narrow(0, start, n), "o");
      expect_same_bits(before.dq.narrow(0, start, n), after.dq.narrow(0, start, n), "dq");
      expect_same_bits(before.dk.narrow(0, start, n), after.dk.narrow(0, start, n), "dk");
      expect_same_bits(before.dv.narrow(0, start, n), after.dv.narrow(0, start, n), "dv");
    }
    EXPECT_FALSE(before.o.narrow(0, 150, 90).equal(after.o.narrow(0, 150, 90)));
  }
}

TEST(Attention, AQueryIsIndependentOfLaterKeys) {
  const Case c = documents({200}, 2, 1, 16);
  Tensors before = tensors_of(c, at::kFloat, 0), after = tensors_of(c, at::kFloat, 0);
  after.k.narrow(0, 120, 80).fill_(50);
  after.v.narrow(0, 120, 80).fill_(1e30);
  run(before, c, 0.25);
  run(after, c, 0.25);
  expect_same_bits(before.o.narrow(0, 0, 120), after.o.narrow(0, 0, 120), "o");
}

TEST(Attention, ScoresOfAnySizeStayFinite) {
  const Case c = documents({80}, 2, 2, 8);
  for (const auto type : kTypes) {
    Tensors t = tensors_of(c, type, 0);
    t.q.mul_(200);
    run(t, c, 1.0);
    for (const auto* x : {&t.o, &t.lse, &t.dq, &t.dk, &t.dv}) {
      for (const double v : values(*x)) ASSERT_TRUE(std::isfinite(v));
    }
  }
}

TEST(Attention, ResultsHaveTheSameBitsForAnyNumberOfThreads) {
  const Case c = documents({300, 20, 150}, 4, 2, 16);
  for (const auto type : {at::kDouble, at::kFloat}) {
    for (int which = 0; which < 4; ++which) {
      expect_same_for_any_threads(
          [&] {
            Tensors t = tensors_of(c, type, 0);
            run(t, c, 0.25);
            return which == 0 ? t.o : which == 1 ? t.dq : which == 2 ? t.dk : t.dv;
          },
          "o, dq, dk, dv");
    }
  }
}

TEST(Attention, RefusesBlocksOutsideTheRowsAndHeadsThatDontFit) {
  Tensors t = tensors_of({4, 4, 2, 1, 3, {}}, at::kFloat, 0);
  try {
    attention(t.o, t.lse, t.q, t.k, t.v, {{0, 4, 2, 3, false}}, 3, 1);
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "attention: block of queries 0+4 against keys 2+3 doesn't fit 4 queries and 4 keys");
  }
  EXPECT_THROW(attention(t.o, t.lse, t.q, t.k, t.v, {{0, 4, 0, 3, true}}, 3, 1), InternalError);
  EXPECT_THROW(attention(t.o, t.lse, t.q, t.k, t.v, {}, 2, 1), InternalError);
  EXPECT_THROW(attention_backward(t.dk, t.dk, t.dv, t.d_out, t.q, t.k, t.v, t.o, t.lse, {}, 3, 1), InternalError);
}

}  // namespace
}  // namespace switchyard::kernels
