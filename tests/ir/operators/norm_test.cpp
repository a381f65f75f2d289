#include "ir/operators/norm.hpp"

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

TEST(Norms, make_room_for_sums_where_a_rank_has_some_features_only) {
  const auto gradient = [](const Operator& op, i64 columns, size_t statistics) {
    const Type rows = tokens_by(DType::f32, columns, {});
    std::vector<Type> in = {rows, rows, {DType::f32, {{columns}, {{}}}}};
    in.insert(in.end(), statistics, tokens_by(DType::f32, 1, {}));
    const std::vector<Type> out = {in[0]};
    return op.workspace(in, out, {100, 100});
  };
  EXPECT_EQ(gradient(RmsNormDx(false, false, 64), 64, 1), 0);
  EXPECT_EQ(gradient(RmsNormDx(false, false, 64), 32, 1), 448) << "100 numbers, on whole cache lines";
  EXPECT_EQ(gradient(RmsNormDx(true, false, 64), 32, 1), 0) << "heads are whole";
  EXPECT_EQ(gradient(LayerNormDx(false, 64), 64, 2), 0);
  EXPECT_EQ(gradient(LayerNormDx(false, 64), 32, 2), 832);
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

TEST(LayerNorm, keeps_mean_and_deviation_per_token) {
  const std::vector<Type> in = {kX, vector(64), vector(64)}, out = LayerNorm(1e-5).shape(in);
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[1], tokens_by(DType::f32, 1, {}));
  const std::vector<Type> wrong = {kX, vector(32), vector(32)};
  EXPECT_EQ(message_of<InternalError>([&] { LayerNorm(1e-5).shape(wrong); }),
            "layer_norm: weight 32 against 64 features");
}

TEST(LayerNorm, has_layouts_like_rms_norm) {
  const LayoutRule rule = Question({2})
                              .activation(cut({{0}, {}}))
                              .weight(cut({{}}))
                              .weight(cut({{}}))
                              .output()
                              .output()
                              .output()
                              .ask(LayerNorm(1e-5));
  EXPECT_EQ(rule.gives[0], cut({{0}, {}}));
  EXPECT_EQ(rule.gives[2], cut({{0}, {}}));
  Question gradient({2});
  gradient.activation(cut({{}, {}}, {0}))
      .activation(cut({{0}, {}}))
      .weight(cut({{}}))
      .activation(cut({{0}, {}}))
      .activation(cut({{0}, {}}));
  EXPECT_EQ(gradient.output().ask(LayerNormDx(false, 64)).gives[0], cut({{0}, {}}));
  Question weights({2});
  weights.activation(cut({{}, {}})).activation(cut({{0}, {}})).activation(cut({{0}, {}})).activation(cut({{0}, {}}));
  const LayoutRule dw = weights.output(cut({{}})).output(cut({{}})).ask(LayerNormDw());
  EXPECT_EQ(dw.gives[0], cut({{}}, {0}));
  EXPECT_EQ(dw.gives[1], cut({{}}, {0}));
}

}  // namespace
}  // namespace switchyard::ir
