#include "kernels/unfused_attention.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "oracle.hpp"

namespace switchyard::kernels {
namespace {

constexpr i64 kT = 9, kN = 4, kK = 2, kD = 6;
const std::vector<AttentionBlock> kBlocks = {{1, 5, 1, 5, true},
                                             {6, 2, 6, 2, true}};  // rows 0 and 8 are in no document
constexpr i64 kSquaredLengths = 25 + 4;

struct Operands {
  at::Tensor q, k, v;
};
Operands operands(at::ScalarType type) {
  return {oracle::random({kT, kN * kD}, type, 1, 3), oracle::random({kT, kK * kD}, type, 2, 5),
          oracle::random({kT, kK * kD}, type, 3)};
}

double at(const at::Tensor& x, i64 row, i64 column) {
  return x.to(at::kDouble).select(0, row).select(0, column).item<double>();
}

// Weight of key j for query i of a document, in plain loops.
double weight(const Operands& x, const AttentionBlock& block, i64 head, i64 i, i64 j, double scale) {
  const auto score = [&](i64 key) {
    double sum = 0;
    for (i64 d = 0; d < kD; ++d)
      sum += at(x.q, block.q + i, head * kD + d) * at(x.k, block.k + key, head / (kN / kK) * kD + d);
    return std::exp(sum * scale);
  };
  double total = 0;
  for (i64 key = 0; key <= i; ++key) total += score(key);
  return j > i ? 0 : score(j) / total;
}

TEST(UnfusedAttention, StoresTheSoftmaxOfEachDocument) {
  for (const auto type : oracle::kTypes) {
    const Operands x = operands(type);
    at::Tensor w = oracle::hole({kN, kSquaredLengths}, type);
    attention_weights(w, x.q, x.k, kBlocks, kD, 0.4);
    i64 first = 0;
    for (const AttentionBlock& block : kBlocks) {
      for (i64 head = 0; head < kN; ++head)
        for (i64 i = 0; i < block.qn; ++i)
          for (i64 j = 0; j < block.qn; ++j)
            EXPECT_NEAR(at(w, head, first + i * block.qn + j), weight(x, block, head, i, j, 0.4),
                        oracle::tolerance_of(type));
      first += block.qn * block.qn;
    }
  }
}

TEST(UnfusedAttention, EqualsTheFusedKernelForwardAndBackward) {
  for (const auto type : {at::kDouble, at::kFloat}) {
    const Operands x = operands(type);
    const at::Tensor go = oracle::random({kT, kN * kD}, type, 4);
    at::Tensor w = oracle::hole({kN, kSquaredLengths}, type), o = oracle::hole({kT, kN * kD}, type, 2),
               fused = oracle::hole({kT, kN * kD}, type), lse = oracle::hole({kN, kT}, type);
    attention_weights(w, x.q, x.k, kBlocks, kD, 0.4);
    weigh_values(o, w, x.v, kBlocks, kD);
    attention(fused, lse, x.q, x.k, x.v, kBlocks, kD, 0.4);
    const auto near = [&](const at::Tensor& a, const at::Tensor& b) {
      EXPECT_LT(a.sub(b).abs().max().item<double>(), 10 * oracle::tolerance_of(type));
    };
    near(o, fused);
    std::vector<at::Tensor> mine, theirs;
    for (auto* list : {&mine, &theirs})
      for (const i64 features : {kN * kD, kK * kD, kK * kD}) list->push_back(oracle::hole({kT, features}, type));
    unfused_attention_backward(mine[0], mine[1], mine[2], go, x.q, x.k, x.v, w, {}, kBlocks, kD, 0.4);
    attention_backward(theirs[0], theirs[1], theirs[2], go, x.q, x.k, x.v, fused, lse, kBlocks, kD, 0.4);
    for (size_t i = 0; i < 3; ++i) near(mine[i], theirs[i]);
  }
}

}  // namespace
}  // namespace switchyard::kernels
