#include "ir/operator.hpp"

#include <gmock/gmock.h>

#include "ir/operators/gelu.hpp"
#include "ir/operators/rms_norm.hpp"
#include "ir/operators/rope.hpp"
#include "ir/operators/swiglu.hpp"
#include "layout_query.hpp"

namespace switchyard::ir {
namespace {

using testing::HasSubstr;
using Axes = std::vector<int>;

TEST(Labels, a_label_on_both_sides_keeps_its_cut) {
  const LayoutRule rule =
      Question({2}).activation(cut({{}, {0}})).activation(cut({{}, {0}})).output().ask("T f, T f -> T f");
  EXPECT_EQ(rule.needs[0], cut({{}, {0}}));
  EXPECT_EQ(rule.needs[1], cut({{}, {0}}));
  EXPECT_EQ(rule.gives[0], cut({{}, {0}}));
}

TEST(Labels, an_input_with_another_layout_follows_the_first) {
  const LayoutRule rule =
      Question({2}).activation(cut({{0}, {}})).activation(cut({{}, {}})).output().ask("T f, T f -> T f");
  EXPECT_EQ(rule.needs[1], cut({{0}, {}}));
  EXPECT_EQ(rule.gives[0], cut({{0}, {}}));
}

TEST(Labels, tokens_are_not_cut_by_axes_that_a_weight_uses) {
  const LayoutRule rule =
      Question({2}).activation(cut({{0}, {}})).weight(cut({{0}, {}})).output().ask("T i, o i -> T o");
  EXPECT_EQ(rule.needs[0], cut({{}, {}}));  // the all-gather before a column-parallel product
  EXPECT_EQ(rule.gives[0], cut({{}, {0}}));
}

TEST(Labels, a_cut_of_a_summed_label_makes_the_result_partial) {
  const LayoutRule rule =
      Question({2}).activation(cut({{}, {0}})).weight(cut({{}, {0}})).output().ask("T i, o i -> T o");
  EXPECT_EQ(rule.needs[0], cut({{}, {0}}));
  EXPECT_EQ(rule.gives[0], cut({{}, {}}, {0}));
}

TEST(Labels, partial_sums_pass_through_an_input_in_which_the_operator_is_linear) {
  const LayoutRule linear =
      Question({2}).activation(cut({{}, {}}, {0})).activation(cut({{}, {}})).output().ask("~T f, T f -> T f");
  EXPECT_EQ(linear.needs[0], cut({{}, {}}, {0}));
  EXPECT_EQ(linear.gives[0], cut({{}, {}}, {0}));
  const LayoutRule other =
      Question({2}).activation(cut({{}, {}}, {0})).activation(cut({{}, {}})).output().ask("T f, T f -> T f");
  EXPECT_EQ(other.needs[0], cut({{}, {}}));
  EXPECT_EQ(other.gives[0], cut({{}, {}}));
}

TEST(Labels, a_sum_pending_in_one_linear_input_makes_the_others_partials_too) {
  // dq is cut by both axes, dk by the outer one and partial over the inner one: the result is partial over both.
  const LayoutRule rule = Question({2, 2})
                              .activation(cut({{}, {0, 1}}))
                              .activation(cut({{}, {0}}, {1}))
                              .weight(cut({{0, 1}, {}}))
                              .weight(cut({{0}, {}}))
                              .output()
                              .ask("~T o0, ~T o1, o0 i, o1 i -> T i");
  EXPECT_EQ(rule.needs[0], cut({{}, {0, 1}}));
  EXPECT_EQ(rule.needs[1], cut({{}, {0}}, {1}));
  EXPECT_EQ(rule.gives[0], cut({{}, {}}, {0, 1}));
}

TEST(Labels, sums_pending_over_an_axis_that_cuts_the_result_are_done_before) {
  const LayoutRule rule =
      Question({2, 2}).activation(cut({{}, {}}, {0, 1})).activation(cut({{}, {0}})).output().ask("~T f, T f -> T f");
  EXPECT_EQ(rule.needs[0], cut({{}, {0}}));
  EXPECT_EQ(rule.needs[1], cut({{}, {0}}));
  EXPECT_EQ(rule.gives[0], cut({{}, {0}}));
}

TEST(Labels, a_whole_label_is_never_cut) {
  const LayoutRule rule = Question({2}).activation(cut({{}, {0}})).weight(cut({{}})).output().ask("T h!, h! -> T h");
  EXPECT_EQ(rule.needs[0], cut({{}, {}}));
  EXPECT_EQ(rule.gives[0], cut({{}, {}}));
  const LayoutRule tokens = Question({2}).activation(cut({{0}, {}})).output().ask("T! h -> T h");
  EXPECT_EQ(tokens.needs[0], cut({{}, {}}));
}

TEST(Labels, the_marked_input_decides_how_tokens_are_cut) {
  const LayoutRule rule =
      Question({2}).activation(cut({{}, {}})).activation(cut({{0}, {}})).output().ask("T h, @T h -> T h");
  EXPECT_EQ(rule.needs[0], cut({{0}, {}}));
  EXPECT_EQ(rule.gives[0], cut({{0}, {}}));
}

TEST(Labels, feeds_follow_and_never_decide) {
  const LayoutRule rule = Question({2}).activation(cut({{0}, {}})).feed().output().ask("~T h, T -> T h");
  EXPECT_EQ(rule.needs[1], cut({{0}}));
  const LayoutRule looked_up = Question({2}).feed().weight(cut({{0}, {}})).output().ask("T, v h -> T h");
  EXPECT_EQ(looked_up.needs[0], cut({{}}));
  EXPECT_EQ(looked_up.gives[0], cut({{}, {}}, {0}));
}

TEST(Labels, an_accumulator_decides_its_labels) {
  const LayoutRule rule =
      Question({2}).activation(cut({{}, {}})).activation(cut({{}, {}})).output(cut({{0}, {}})).ask("~T o, T i -> o i");
  EXPECT_EQ(rule.needs[0], cut({{}, {0}}));
  EXPECT_EQ(rule.gives[0], cut({{0}, {}}));
}

TEST(Labels, tokens_cut_while_they_are_summed_leave_partials) {
  const LayoutRule rule =
      Question({2}).activation(cut({{0}, {}})).activation(cut({{0}, {}})).output(cut({{}, {}})).ask("~T o, T i -> o i");
  EXPECT_EQ(rule.gives[0], cut({{}, {}}, {0}));
}

TEST(Labels, weights_cut_differently_along_a_shared_dim_follow_the_first) {
  const LayoutRule rule = Question({2})
                              .activation(cut({{}, {}}))
                              .weight(cut({{}, {0}}))
                              .weight(cut({{}, {}}))
                              .output()
                              .output()
                              .ask("T i, o0 i, o1 i -> T o0, T o1");
  EXPECT_EQ(rule.needs[1], cut({{}, {0}}));
  EXPECT_EQ(rule.needs[2], cut({{}, {0}}));
}

TEST(Labels, must_match_the_operands) {
  EXPECT_EQ(message_of<InternalError>([] { Question({2}).feed().output().ask("T, T -> T"); }),
            "labels \"T, T -> T\" against 1 inputs");
  EXPECT_EQ(message_of<InternalError>([] { Question({2}).feed().output().output().ask("T -> T"); }),
            "labels \"T -> T\" against 2 outputs");
}

class Bare final : public Operator {
 public:
  Bare() : Operator("bare") {}
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[0]}; }
};

TEST(Operator, says_which_of_its_rules_is_missing) {
  EXPECT_EQ(message_of<InternalError>([] { Question({2}).feed().output().ask(Bare()); }), "bare has no labels");
  Graph graph(precision_from("fp32"));
  std::vector<int> existing;
  EXPECT_EQ(message_of<InternalError>([&] { Bare().input_gradient(graph, {}, {}, existing); }),
            "bare has no input gradient");
}

// What its kernel takes, a sequence of libtorch's operators, is proved where it runs.
TEST(Operator, makes_copies_where_no_loop_of_ours_computes_it) {
  const auto bytes = [&](const Operator& op, DType type, CallSize size) {
    const Type x = tokens_by(type, 64, {1}), statistic = tokens_by(state_of(type), 1, {});
    size.tokens = 100;
    return op.workspace(std::vector{x, x, Type{type, {{64}, {{}}}}, statistic}, std::vector{x, statistic}, size);
  };
  const CallSize cpu, device{.sequences = 1}, own_kernels{.sequences = 1, .element_kernels = true};
  const i64 copy = 100 * 64 * 4;
  for (const DType type : {DType::f32, DType::f64}) {
    EXPECT_EQ(bytes(Swiglu(), type, cpu), 0);
    EXPECT_EQ(bytes(Swiglu(), type, device), 3 * 100 * 64 * size_of(type));
    EXPECT_EQ(bytes(Swiglu(), type, own_kernels), 0);
  }
  EXPECT_EQ(bytes(Swiglu(), DType::bf16, cpu), 3 * copy) << "in fp32";
  EXPECT_EQ(bytes(Swiglu(), DType::bf16, device), 3 * copy);
  EXPECT_EQ(bytes(Swiglu(), DType::bf16, own_kernels), 0);
  EXPECT_EQ(bytes(SwigluDx(), DType::bf16, own_kernels), 0);
  EXPECT_EQ(bytes(Rope(16, false), DType::bf16, own_kernels), 0);
  EXPECT_EQ(bytes(RmsNorm(1e-5, 0), DType::bf16, own_kernels), 0);
  EXPECT_EQ(bytes(RmsNormDx(false, false, 64), DType::bf16, own_kernels), 0);
  EXPECT_GT(bytes(RmsNorm(1e-5, 16), DType::bf16, own_kernels), 2 * copy) << "not over heads";
  EXPECT_GT(bytes(RmsNormDx(true, false, 64), DType::bf16, own_kernels), 5 * copy);
  EXPECT_EQ(bytes(Gelu(false), DType::bf16, device), 0) << "libtorch's own";
}

TEST(Operator, moves_all_its_operands_by_default) {
  const std::vector<Type> in = {tokens_by(DType::f32, 10, {}), matrix(3, 4)}, out = {tokens_by(DType::bf16, 5, {})};
  const Cost cost = Bare().cost(in, out);
  EXPECT_EQ(cost.bytes_per_token, 4 * 10 + 2 * 5);
  EXPECT_EQ(cost.bytes_fixed, 2 * 12);
  EXPECT_EQ(cost.flops_per_pair, 0);
}

}  // namespace
}  // namespace switchyard::ir
