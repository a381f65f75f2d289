#include "ir/operators/head.hpp"

#include <gtest/gtest.h>

#include "../layout_query.hpp"

namespace switchyard::ir {
namespace {

Question head_question(const layout::Layout& x, const layout::Layout& w) {
  return Question({2}).activation(x).weight(w).feed().feed();
}

TEST(Head, gives_a_loss_per_token_in_the_state_type) {
  const std::vector<Type> in = {tokens_by(DType::bf16, 64, {}), matrix(100, 64), per_token(DType::i64),
                                per_token(DType::f32)};
  EXPECT_EQ(Head().shape(in), std::vector<Type>{per_token(DType::f32)});
  EXPECT_EQ(HeadLoss().shape(in), (std::vector<Type>{per_token(DType::f32), in[0]}));
}

TEST(Head, refuses_a_weight_of_other_features) {
  const std::vector<Type> in = {tokens_by(DType::bf16, 64, {}), matrix(100, 48), per_token(DType::i64),
                                per_token(DType::f32)};
  EXPECT_EQ(message_of<InternalError>([&] { Head().shape(in); }), "head: 64 features against a weight of 48");
}

TEST(Head, keeps_the_cut_of_tokens_over_axes_that_do_not_cut_the_vocabulary) {
  const LayoutRule rule = head_question(cut({{0, 1}, {}}), cut({{1}, {}})).output().ask(Head());
  EXPECT_EQ(rule.needs[0], cut({{0}, {}}));
  EXPECT_EQ(rule.needs[2], cut({{0}}));
  EXPECT_EQ(rule.gives[0], cut({{0}}));
  const LayoutRule loss =
      head_question(cut({{0, 1}, {}}), cut({{1}, {}})).output().output().output(cut({{1}, {}})).ask(HeadLoss());
  EXPECT_EQ(loss.gives[1], cut({{0}, {}}, {1}));
  EXPECT_EQ(loss.gives[2], cut({{1}, {}}, {0})) << "each part of the tokens gives a part of the gradient";
}

TEST(Head, wants_all_tokens_and_takes_the_vocabulary_as_it_is_cut) {
  const LayoutRule rule = head_question(cut({{0}, {}}), cut({{0}, {}})).output().ask(Head());
  EXPECT_EQ(rule.needs[0], cut({{}, {}}));
  EXPECT_EQ(rule.needs[1], cut({{0}, {}}));
  EXPECT_EQ(rule.gives[0], cut({{}}));
}

TEST(HeadLoss, leaves_the_input_gradient_partial_over_the_cuts_of_the_vocabulary) {
  const LayoutRule rule =
      head_question(cut({{0}, {}}), cut({{0}, {}})).output().output().output(cut({{0}, {}})).ask(HeadLoss());
  EXPECT_EQ(rule.gives[0], cut({{}}));
  EXPECT_EQ(rule.gives[1], cut({{}, {}}, {0}));
  EXPECT_EQ(rule.gives[2], cut({{0}, {}}));
  EXPECT_TRUE(head_question(cut({{0}, {}}), cut({{}, {}}))
                  .output()
                  .output()
                  .output(cut({{}, {}}))
                  .ask(HeadLoss())
                  .gives[1]
                  .partial.empty());
}

TEST(Head, needs_the_in_features_of_its_weight_whole) {
  EXPECT_EQ(head_question(cut({{}, {}}), cut({{}, {0}})).output().ask(Head()).needs[1], cut({{}, {}}));
  const LayoutRule loss =
      head_question(cut({{}, {}}), cut({{}, {0}})).output().output().output(cut({{}, {0}})).ask(HeadLoss());
  EXPECT_EQ(loss.needs[1], cut({{}, {}}));
  EXPECT_EQ(loss.gives[2], cut({{}, {}}));
}

TEST(HeadLoss, costs_three_products_and_the_logits_of_a_chunk) {
  const std::vector<Type> in = {tokens_by(DType::bf16, 64, {}), matrix(100, 64), per_token(DType::i64),
                                per_token(DType::f32)},
                          out = HeadLoss().shape(in);
  EXPECT_EQ(HeadLoss().cost(in, out).flops_per_token, 3 * 2 * 6400);
  EXPECT_EQ(HeadLoss().cost(in, out).bytes_after_per_token, 100 * 4 * 2) << "passes over logits in bf16";
  EXPECT_EQ(HeadLoss().cost(in, out).bytes_converted_per_token, 100 * 18 * 4) << "and over copies in fp32";
  EXPECT_EQ(HeadLoss().workspace(in, out, {4096, 0}), 512 * (100 * (2 + 2 * 4) + 3 * 4 + 4 + 1 + 8))
      << "a chunk of 512 tokens";
  EXPECT_EQ(HeadLoss().workspace(in, out, {.tokens = 4096, .sequences = 1, .element_kernels = true}),
            4096 * (100 * 2 + 3 * 4 + 4 + 1))
      << "the larger chunk of a device, no copies";
  EXPECT_EQ(HeadLoss().workspace(in, out, {10, 0}), 2048 + 2 * 4032 + 64 + 128 + (64 + 64 + 128))
      << "each block as the allocator rounds it";
  const std::vector<Type> wide = {tokens_by(DType::bf16, 256, {}), matrix(100, 256), in[2], in[3]};
  EXPECT_EQ(HeadLoss().workspace(wide, HeadLoss().shape(wide), {4096, 0}), 512 * (100 * 2 + 3 * 4 + (100 + 256) * 4))
      << "both operands of the weight's gradient";
}

TEST(HeadLoss, and_its_first_half_give_the_loss_and_sum_over_the_rows_of_the_weight) {
  for (const std::shared_ptr<const Operator>& op :
       {std::shared_ptr<const Operator>(std::make_shared<HeadLoss>()), HeadLoss().halves().inputs}) {
    EXPECT_EQ(op->loss_output(), 0u);
    ASSERT_TRUE(op->statistic_sums(false));
    EXPECT_EQ(op->statistic_sums(false)->cut, 1u);
    EXPECT_EQ(op->statistic_sums(false)->statistics, 3u);
    EXPECT_EQ(op->statistic_sums(false)->chunk, 512);
    EXPECT_EQ(op->statistic_sums(true)->chunk, 4096);
  }
  EXPECT_FALSE(HeadLoss().halves().weights->loss_output());
  EXPECT_EQ(Head().loss_output(), 0u);
}

TEST(HeadLoss, comes_apart_into_halves_with_the_gradient_of_the_logits_between_them) {
  const std::vector<Type> in = {tokens_by(DType::bf16, 64, {}), matrix(100, 64), per_token(DType::i64),
                                per_token(DType::f32)};
  const Halves halves = HeadLoss().halves();
  ASSERT_TRUE(halves.inputs && halves.weights);
  const std::vector<Type> out = halves.inputs->shape(in), of_weight{matrix(100, 64)};
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[2].shape.size, (std::vector<i64>{kTokens, 100}));
  EXPECT_EQ(out[2].dtype, DType::bf16);
  const Cost whole = HeadLoss().cost(in, std::vector{out[0], out[1], of_weight[0]}),
             inputs = halves.inputs->cost(in, out),
             weights = halves.weights->cost(std::vector{out[2], in[0]}, of_weight);
  EXPECT_EQ(inputs.flops_per_token + weights.flops_per_token, whole.flops_per_token);
  EXPECT_EQ(inputs.bytes_after_per_token + weights.bytes_after_per_token, whole.bytes_after_per_token);
  EXPECT_EQ(inputs.bytes_converted_per_token + weights.bytes_converted_per_token, whole.bytes_converted_per_token);
  EXPECT_EQ(weights.bytes_accumulated, whole.bytes_accumulated);
  EXPECT_EQ(inputs.bytes_accumulated, 0);
  EXPECT_EQ(halves.inputs->workspace(in, out, {4096, 0}), 512 * (2 * 4 * 100 + 3 * 4 + 4 + 1 + 8))
      << "the logits lie in the result";
  EXPECT_FALSE(Head().halves().inputs);
}

}  // namespace
}  // namespace switchyard::ir
