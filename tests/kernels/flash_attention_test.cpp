#include "kernels/flash_attention.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/errors.hpp"
#include "oracle.hpp"

namespace switchyard::kernels {
namespace {

using namespace oracle;
using testing::ElementsAre;

std::vector<int> integers_of(const at::Tensor& t) {
  const at::Tensor here = t.cpu();
  return {here.const_data_ptr<int>(), here.const_data_ptr<int>() + here.numel()};
}

TEST(FlashCalls, DocumentsSideBySideAreOneCallAndRowsBetweenThemSequencesOfTheirOwn) {
  const std::vector<AttentionBlock> blocks = {{0, 3, 0, 3, true}, {3, 2, 3, 2, true}, {7, 4, 7, 4, true}};
  const auto steps = flash_calls({{blocks, 12, 12}}, standin::test_device());
  ASSERT_EQ(steps.size(), 1u);
  ASSERT_EQ(steps[0].mixed.size(), 1u);
  EXPECT_THAT(integers_of(steps[0].mixed[0].query_ends), ElementsAre(0, 3, 5, 7, 7, 11, 12, 12));
  EXPECT_THAT(integers_of(steps[0].mixed[0].key_ends), ElementsAre(0, 3, 5, 5, 7, 11, 11, 12));
  EXPECT_EQ(steps[0].mixed[0].longest_queries, 4);
  EXPECT_EQ(steps[0].mixed[0].longest_keys, 4);
  EXPECT_TRUE(steps[0].mixed[0].causal);
}

TEST(FlashCalls, KeysThatOverlapAndOtherMasksAreCallsOfTheirOwn) {
  const std::vector<AttentionBlock> pieces = {{0, 2, 0, 2, true}, {2, 3, 0, 9, true}, {5, 1, 9, 4, true}},
                                    masks = {{0, 1, 0, 5, false}, {1, 3, 5, 3, true}, {4, 1, 8, 1, false}}, none = {};
  const auto steps = flash_calls({{pieces, 6, 13}, {masks, 5, 9}, {none, 5, 9}}, standin::test_device());
  ASSERT_EQ(steps.size(), 3u);
  ASSERT_EQ(steps[0].mixed.size(), 2u);
  EXPECT_THAT(integers_of(steps[0].mixed[0].query_ends), ElementsAre(0, 2, 5, 5, 6));
  EXPECT_THAT(integers_of(steps[0].mixed[0].key_ends), ElementsAre(0, 2, 2, 9, 13));
  EXPECT_THAT(integers_of(steps[0].mixed[1].query_ends), ElementsAre(0, 2, 5, 6, 6));
  EXPECT_THAT(integers_of(steps[0].mixed[1].key_ends), ElementsAre(0, 0, 9, 9, 13));
  ASSERT_EQ(steps[1].mixed.size(), 2u);
  EXPECT_FALSE(steps[1].mixed[0].causal);
  EXPECT_THAT(integers_of(steps[1].mixed[0].query_ends), ElementsAre(0, 1, 4, 4, 5));
  EXPECT_TRUE(steps[1].mixed[1].causal);
  EXPECT_EQ(steps[1].mixed[0].longest_queries, 3) << "of a sequence without keys, too";
  EXPECT_TRUE(steps[2].mixed.empty());
}

TEST(FlashCalls, AreNeverOfOneQueryASequence) {
  const std::vector<AttentionBlock> blocks = {{0, 1, 0, 4, false}};
  EXPECT_EQ(flash_calls({{blocks, 1, 4}}, standin::test_device())[0].mixed[0].longest_queries, 2)
      << "libtorch has another form for these, which needs as many sequences as queries";
}

// Documents of 40 rows and more, in multiples of 16.
i64 multiple_of_16(i64 rows) { return rows < 40 ? 0 : (rows + 15) / 16 * 16; }

TEST(FlashCalls, LongDocumentsAreCallsOfTheirOwnWithPadding) {
  const std::vector<AttentionBlock> blocks = {{0, 40, 0, 40, true},     {40, 3, 40, 3, true},
                                              {43, 64, 43, 64, true},   {107, 64, 107, 64, true},
                                              {171, 50, 300, 90, true}, {221, 48, 171, 48, false}};
  const FlashStep step{blocks, 269, 390};
  EXPECT_TRUE(flash_calls({step}, standin::test_device())[0].padded.empty());
  const FlashCalls calls = flash_calls({step}, standin::test_device(), multiple_of_16)[0];
  ASSERT_EQ(calls.padded.size(), 2u);
  EXPECT_EQ(calls.padded[0].rows, 40);
  EXPECT_EQ(calls.padded[0].length, 48);
  EXPECT_EQ(calls.padded[1].queries, 43);
  EXPECT_EQ(calls.padded[1].keys, 43);
  EXPECT_EQ(calls.padded[1].count, 2) << "no padding between them";
  ASSERT_EQ(calls.mixed.size(), 2u) << "short, and with more keys than queries; without a mask";
  EXPECT_THAT(integers_of(calls.mixed[0].query_ends), ElementsAre(0, 40, 40, 43, 171, 171, 221, 269));
  EXPECT_TRUE(calls.separate);
}

TEST(FlashCalls, KnowBlocksThatShareKeys) {
  const std::vector<AttentionBlock> shared = {{0, 50, 0, 50, true}, {50, 2, 49, 2, true}};
  EXPECT_FALSE(flash_calls({{shared, 52, 51}}, standin::test_device(), multiple_of_16)[0].separate);
}

TEST(HasFlashAttention, IsNoBusinessOfACpu) {
  EXPECT_FALSE(has_flash_attention(at::kCPU));
  EXPECT_FALSE(has_padded_attention(at::kCPU, 64));
}

// The device of the tests has the kernels, or there is nothing to test: a GPU, or the stand-in device.
class FlashAttention : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_flash_attention(standin::test_device())) GTEST_SKIP() << "no kernels of flash attention here";
  }
};

struct Case {
  i64 queries, keys, heads, kv_heads;
  int dim;
  std::vector<AttentionBlock> blocks;
};

struct Tensors {
  explicit Tensors(const Case& c, at::ScalarType wide = at::kBFloat16)
      : q(random({c.queries, c.heads * c.dim}, at::kBFloat16, 1, 8)),
        k(random({c.keys, c.kv_heads * c.dim}, at::kBFloat16, 2, 16)),
        v(random({c.keys, c.kv_heads * c.dim}, at::kBFloat16, 3)),
        d_out(random({c.queries, c.heads * c.dim}, at::kBFloat16, 4, 2)),
        o(hole(q.sizes(), at::kBFloat16, 4)),
        lse(hole({c.heads, c.queries}, at::kFloat)),
        dq(hole(q.sizes(), wide)),
        dk(hole(k.sizes(), wide)),
        dv(hole(k.sizes(), wide)) {}
  at::Tensor q, k, v, d_out, o, lse, dq, dk, dv;
};

FlashCalls calls_of(const Case& c, PaddedLength padded_length = nullptr) {
  return flash_calls({{c.blocks, c.queries, c.keys}}, standin::test_device(), padded_length)[0];
}

// Against attention by scores in fp32.
void compare(const Case& c, PaddedLength padded_length = nullptr) {
  Tensors flash(c), scores(c);
  attention(scores.o, scores.lse, scores.q, scores.k, scores.v, c.blocks, c.dim, 0.3);
  attention_backward(scores.dq, scores.dk, scores.dv, scores.d_out, scores.q, scores.k, scores.v, scores.o, scores.lse,
                     c.blocks, c.dim, 0.3);
  const FlashCalls calls = calls_of(c, padded_length);
  flash_attention(flash.o, flash.lse, flash.q, flash.k, flash.v, calls, c.dim, 0.3);
  flash_attention_backward(flash.dq, flash.dk, flash.dv, flash.d_out, flash.q, flash.k, flash.v, flash.o, flash.lse,
                           calls, c.dim, 0.3);
  expect_close(flash.o, values(scores.o), 1e-2, "o");
  const Doubles lse = values(flash.lse), expected = values(scores.lse);
  for (std::size_t i = 0; i < lse.size(); ++i)
    EXPECT_TRUE(lse[i] == expected[i] || std::abs(lse[i] - expected[i]) < 1e-4) << lse[i] << ", not " << expected[i];
  expect_close(flash.dq, values(scores.dq), 2e-2, "dq");
  expect_close(flash.dk, values(scores.dk), 2e-2, "dk");
  expect_close(flash.dv, values(scores.dv), 2e-2, "dv");
}

TEST_F(FlashAttention, OfDocumentsAndPaddingIsThatByScores) {
  compare({40, 40, 4, 2, 8, {{0, 7, 0, 7, true}, {7, 1, 7, 1, true}, {8, 20, 8, 20, true}, {30, 6, 30, 6, true}}});
  compare({16, 16, 2, 2, 16, {{0, 16, 0, 16, true}}});
}

TEST_F(FlashAttention, OfBlocksThatShareKeysAndSeeNoneIsThatByScores) {
  compare({30, 44, 4, 1, 8, {{0, 5, 0, 20, true}, {5, 9, 0, 40, true}, {16, 3, 5, 9, false}, {20, 2, 3, 0, false}}});
  compare({1, 9, 4, 2, 8, {{0, 1, 0, 9, false}}});
  compare({6, 5, 2, 1, 8, {}});
  compare({0, 0, 2, 1, 8, {}});
}

TEST_F(FlashAttention, OneStepAfterTheOtherEqualsTheWholeDocument) {
  const Case whole{33, 33, 4, 2, 8, {{0, 33, 0, 33, true}}};
  Tensors expected(whole);
  attention(expected.o, expected.lse, expected.q, expected.k, expected.v, whole.blocks, 8, 0.3);
  attention_backward(expected.dq, expected.dk, expected.dv, expected.d_out, expected.q, expected.k, expected.v,
                     expected.o, expected.lse, whole.blocks, 8, 0.3);
  Tensors parts(whole, at::kFloat);
  at::Tensor wide = hole(parts.q.sizes(), at::kFloat);
  const std::vector<AttentionBlock> own = {{0, 12, 0, 12, true}, {12, 21, 12, 21, true}},
                                    later = {{12, 21, 0, 12, false}};
  const auto calls = flash_calls({{own, 33, 33}, {later, 33, 12}}, standin::test_device());
  const at::Tensor k = parts.k.narrow(0, 0, 12), v = parts.v.narrow(0, 0, 12);
  flash_attention(wide, parts.lse, parts.q, parts.k, parts.v, calls[0], 8, 0.3);
  flash_attention_to_more_keys(wide, parts.lse, parts.q, k, v, calls[1], 8, 0.3);
  parts.o.copy_(wide);
  expect_close(wide, values(expected.o), 1e-2, "o");
  expect_close(parts.lse, values(expected.lse), 1e-4, "lse");
  for (at::Tensor* gradient : {&parts.dq, &parts.dk, &parts.dv}) gradient->zero_();
  add_flash_attention_gradients(parts.dq, parts.dk, parts.dv, parts.d_out, parts.q, parts.k, parts.v, parts.o,
                                parts.lse, calls[0], 8, 0.3);
  at::Tensor dk = parts.dk.narrow(0, 0, 12), dv = parts.dv.narrow(0, 0, 12);
  add_flash_attention_gradients(parts.dq, dk, dv, parts.d_out, parts.q, k, v, parts.o, parts.lse, calls[1], 8, 0.3);
  expect_close(parts.dq, values(expected.dq), 2e-2, "dq");
  expect_close(parts.dk, values(expected.dk), 2e-2, "dk");
  expect_close(parts.dv, values(expected.dv), 2e-2, "dv");
}

// The device has cuDNN's attention, or there is nothing to test.
class PaddedAttention : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_padded_attention(standin::test_device(), 64)) GTEST_SKIP() << "no attention with padding here";
  }
};

TEST_F(PaddedAttention, BesideShortDocumentsAndPaddingIsThatByScores) {
  compare({130, 130, 4, 2, 64, {{0, 7, 0, 7, true}, {7, 45, 7, 45, true}, {60, 64, 60, 64, true}}}, multiple_of_16);
  compare({96, 96, 2, 1, 64, {{0, 48, 0, 48, true}, {48, 48, 48, 48, true}}}, multiple_of_16);
}

// libtorch would take a plan for rows side by side, and read others wrongly.
TEST_F(PaddedAttention, ReadsOutputsThatHaveOthersBetweenTheirRows) {
  const Case c{64, 64, 2, 2, 64, {{0, 64, 0, 64, true}}};
  Tensors dense(c), wide(c);
  wide.o = hole(dense.q.sizes(), at::kBFloat16, 16);
  wide.d_out = random(dense.q.sizes(), at::kBFloat16, 4, 16);
  for (Tensors* t : {&dense, &wide}) {
    const FlashCalls calls = calls_of(c, multiple_of_16);
    flash_attention(t->o, t->lse, t->q, t->k, t->v, calls, 64, 0.3);
    flash_attention_backward(t->dq, t->dk, t->dv, t->d_out, t->q, t->k, t->v, t->o, t->lse, calls, 64, 0.3);
  }
  expect_close(wide.dq, values(dense.dq), 2e-2, "dq");
  expect_close(wide.dv, values(dense.dv), 2e-2, "dv");
}

TEST_F(PaddedAttention, OfKeysThatOthersSeeTooIsThatByScores) {
  compare({100, 60, 4, 2, 64, {{0, 50, 2, 50, true}, {50, 44, 0, 44, true}, {94, 3, 0, 60, true}}}, multiple_of_16);
}

TEST_F(PaddedAttention, AfterOtherKeysEqualsBothTogether) {
  const Case other{50, 20, 2, 1, 64, {{0, 50, 0, 20, false}}}, own{50, 50, 2, 1, 64, {{0, 50, 0, 50, true}}};
  const FlashCalls padded = calls_of(own, multiple_of_16);
  ASSERT_EQ(padded.padded.size(), 1u);
  Tensors first(other), then(own);
  at::Tensor o = hole(then.q.sizes(), at::kFloat), expected = hole(then.q.sizes(), at::kFloat),
             lse = hole({2, 50}, at::kFloat);
  flash_attention(o, first.lse, first.q, first.k, first.v, calls_of(other), 64, 0.3);
  flash_attention_to_more_keys(o, first.lse, then.q, then.k, then.v, padded, 64, 0.3);
  flash_attention(expected, lse, first.q, first.k, first.v, calls_of(other), 64, 0.3);
  flash_attention_to_more_keys(expected, lse, then.q, then.k, then.v, calls_of(own), 64, 0.3);
  expect_close(o, values(expected), 1e-2, "o");
  expect_close(first.lse, values(lse), 1e-4, "lse");
}

TEST_F(FlashAttention, MoreKeysChangeNothingForQueriesThatSeeNone) {
  const Case c{6, 8, 2, 1, 8, {{0, 2, 0, 8, false}}};
  Tensors t(c);
  at::Tensor o = hole({6, 16}, at::kFloat);
  flash_attention(o, t.lse, t.q, t.k, t.v, calls_of(c), 8, 0.3);
  const at::Tensor before = o.clone(), lse = t.lse.clone();
  flash_attention_to_more_keys(o, t.lse, t.q, t.k, t.v, {}, 8, 0.3);
  flash_attention_to_more_keys(o, t.lse, t.q, t.k, t.v, calls_of({6, 8, 2, 1, 8, {{3, 2, 0, 8, false}}}), 8, 0.3);
  expect_same_bits(o.narrow(0, 0, 3), before.narrow(0, 0, 3), "o");
  expect_same_bits(o.narrow(0, 5, 1), before.narrow(0, 5, 1), "o");
  expect_same_bits(t.lse.narrow(1, 0, 3), lse.narrow(1, 0, 3), "lse");
  for (const double value : values(o)) EXPECT_TRUE(std::isfinite(value));
  EXPECT_TRUE(std::isfinite(values(t.lse)[3])) << "its first keys";
  EXPECT_EQ(values(t.lse)[5], -INFINITY) << "no keys yet";
}

TEST_F(FlashAttention, RefusesOtherDtypesAndHeads) {
  const Case c{4, 4, 2, 1, 12, {{0, 4, 0, 4, true}}};
  Tensors t(c);
  EXPECT_THROW(flash_attention(t.o, t.lse, t.q, t.k, t.v, calls_of(c), 12, 1), InternalError) << "12 is no multiple";
  const at::Tensor q = t.q.to(at::kFloat);
  at::Tensor lse = hole({3, 4}, at::kFloat);
  EXPECT_THROW(flash_attention(t.o, lse, q, t.k, t.v, calls_of(c), 8, 1), InternalError);
  EXPECT_THROW(add_flash_attention_gradients(t.dq, t.dk, t.dv, t.d_out, q, t.k, t.v, t.o, lse, {}, 8, 1),
               InternalError);
}

}  // namespace
}  // namespace switchyard::kernels
