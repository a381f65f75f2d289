#include "ir/operators/rms_norm.hpp"

#include <gtest/gtest.h>

#include "../layout_query.hpp"

namespace switchyard::ir {
namespace {

const Type kX = tokens_by(DType::bf16, 64, {16});

TEST(RmsNorm, keeps_a_statistic_per_token_or_per_head) {
  const std::vector<Type> whole = {kX, vector(64)}, heads = {kX, vector(16)};
  EXPECT_EQ(RmsNorm(1e-5, 0).shape(whole)[1], tokens_by(DType::f32, 1, {}));
  EXPECT_EQ(RmsNorm(1e-5, 16).shape(heads)[1], tokens_by(DType::f32, 4, {1}));
  const std::vector<Type> exact = {tokens_by(DType::f64, 64, {}), vector(64)};
  EXPECT_EQ(RmsNorm(1e-5, 0).shape(exact)[1].dtype, DType::f64);
}

TEST(RmsNorm, refuses_a_weight_of_another_width) {
  const std::vector<Type> in = {kX, vector(48)};
  EXPECT_EQ(message_of<InternalError>([&] { RmsNorm(1e-5, 0).shape(in); }), "rms_norm: weight 48 against 64 features");
  EXPECT_EQ(message_of<InternalError>([&] { RmsNorm(1e-5, 48).shape(in); }), "rms_norm: weight 48 against 64 features");
}

TEST(RmsNorm, wants_features_whole_and_tokens_as_they_are) {
  const LayoutRule rule =
      Question({2}).activation(cut({{0}, {}})).weight(cut({{}})).output().output().ask(RmsNorm(1e-5, 0));
  EXPECT_EQ(rule.needs[0], cut({{0}, {}}));
  EXPECT_EQ(rule.gives[1], cut({{0}, {}}));
  const LayoutRule cut_features =
      Question({2}).activation(cut({{}, {0}})).weight(cut({{}})).output().output().ask(RmsNorm(1e-5, 0));
  EXPECT_EQ(cut_features.needs[0], cut({{}, {}}));
}

TEST(RmsNorm, has_features_cut_where_its_weight_and_input_are) {
  const LayoutRule rule =
      Question({2}).activation(cut({{}, {0}})).weight(cut({{0}})).output().output().ask(RmsNorm(1e-5, 0));
  EXPECT_EQ(rule.needs[0], cut({{}, {0}}));
  EXPECT_EQ(rule.gives[0], cut({{}, {0}}));
  EXPECT_EQ(rule.gives[1], cut({{}, {}})) << "all ranks have the sums";
  const LayoutRule whole =
      Question({2}).activation(cut({{0}, {}})).weight(cut({{0}})).output().output().ask(RmsNorm(1e-5, 0));
  EXPECT_EQ(whole.needs[1], cut({{}})) << "a weight that is cut otherwise is gathered";
  Question gradient({2});
  gradient.activation(cut({{}, {}}, {0})).activation(cut({{}, {0}})).weight(cut({{0}})).activation(cut({{}, {}}));
  const LayoutRule dx = gradient.output().ask(RmsNormDx(false, false, 64));
  EXPECT_EQ(dx.needs[0], cut({{}, {0}}));
  EXPECT_EQ(dx.gives[0], cut({{}, {0}}));
  Question weights({2});
  weights.activation(cut({{}, {0}})).activation(cut({{}, {0}})).activation(cut({{}, {}}));
  EXPECT_EQ(weights.output(cut({{0}})).ask(RmsNormDw(false)).gives[0], cut({{0}}));
}

TEST(RmsNormDx, makes_room_for_sums_where_a_rank_has_some_features_only) {
  const auto workspace = [](bool per_head, i64 columns) {
    const Type rows = tokens_by(DType::f32, columns, {}), weight{DType::f32, {{columns}, {{}}}};
    const std::vector<Type> in = {rows, rows, weight, tokens_by(DType::f32, 1, {})}, out = {rows};
    return RmsNormDx(per_head, false, 64).workspace(in, out, {100, 100});
  };
  EXPECT_EQ(workspace(false, 64), 0);
  EXPECT_EQ(workspace(false, 32), 448) << "100 numbers, on whole cache lines";
  EXPECT_EQ(workspace(true, 32), 0) << "heads are whole";
}

TEST(RmsNorm, of_heads_follows_their_cut) {
  const LayoutRule rule =
      Question({2}).activation(cut({{}, {0}})).weight(cut({{}})).output().output().ask(RmsNorm(1e-5, 16));
  EXPECT_EQ(rule.needs[0], cut({{}, {0}}));
  EXPECT_EQ(rule.gives[0], cut({{}, {0}}));
  EXPECT_EQ(rule.gives[1], cut({{}, {0}}));
  EXPECT_EQ(Question({2})
                .activation(cut({{}, {0}}))
                .activation(cut({{}, {0}}))
                .activation(cut({{}, {0}}))
                .output(cut({{}}))
                .ask(RmsNormDw(true))
                .gives[0],
            cut({{}}, {0}));
}

TEST(RmsNorm, resolves_a_pending_sum_for_it_is_not_linear) {
  const LayoutRule rule =
      Question({2}).activation(cut({{}, {}}, {0})).weight(cut({{}})).output().output().ask(RmsNorm(1e-5, 0));
  EXPECT_TRUE(rule.needs[0].partial.empty());
  EXPECT_TRUE(rule.gives[0].partial.empty());
}

TEST(RmsNormDx, has_the_layout_of_the_norms_input) {
  Question question({2});
  question.activation(cut({{}, {}}, {0}))
      .activation(cut({{0}, {}}))
      .weight(cut({{}}))
      .activation(cut({{0}, {}}))
      .activation(cut({{}, {}}));
  const LayoutRule rule = question.output().ask(RmsNormDx(false, true, 64));
  EXPECT_EQ(rule.needs[0], cut({{0}, {}}));  // the reduce-scatter after a column-parallel product's gradient
  EXPECT_EQ(rule.needs[4], cut({{0}, {}}));
  EXPECT_EQ(rule.gives[0], cut({{0}, {}}));
}

TEST(RmsNormDw, is_partial_where_tokens_are_cut) {
  const LayoutRule rule = Question({2})
                              .activation(cut({{}, {}}, {0}))
                              .activation(cut({{0}, {}}))
                              .activation(cut({{0}, {}}))
                              .output(cut({{}}))
                              .ask(RmsNormDw(false));
  EXPECT_EQ(rule.needs[0], cut({{0}, {}}));
  EXPECT_EQ(rule.gives[0], cut({{}}, {0}));
}

TEST(RmsNorm, adds_the_gradient_of_its_input_so_far) {
  Graph graph(precision_from("bf16"));
  const int x = graph.add_param({"x", {{4, 64}, {}}, 0, "", {}, {}, {}}),
            w = graph.add_param({"w", {{64}, {}}, 0, "", {}, {}, {}});
  graph.call(std::make_shared<RmsNorm>(1e-5, 0), {x, w}, "y");
  const Call call = graph.calls()[0];
  std::vector<int> existing = {w, -1};
  RmsNorm(1e-5, 0).input_gradient(graph, call, {x, -1}, existing);
  EXPECT_EQ(graph.calls().back().in, (std::vector<int>{x, x, w, call.out[1], w}));
  EXPECT_EQ(existing[0], -1);
  std::vector<int> none = {-1, -1};
  RmsNorm(1e-5, 0).input_gradient(graph, call, {x, -1}, none);
  EXPECT_EQ(graph.calls().back().in.size(), 4u);
}

}  // namespace
}  // namespace switchyard::ir
