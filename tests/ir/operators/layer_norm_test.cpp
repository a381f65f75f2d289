#include "ir/operators/layer_norm.hpp"

#include <gtest/gtest.h>

#include "../layout_query.hpp"

namespace switchyard::ir {
namespace {

const Type kX = tokens_by(DType::bf16, 64, {16});

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

TEST(LayerNormDx, makes_room_for_sums_where_a_rank_has_some_features_only) {
  const auto workspace = [](i64 columns) {
    const Type rows = tokens_by(DType::f32, columns, {}), statistic = tokens_by(DType::f32, 1, {});
    const Type weight{DType::f32, {{columns}, {{}}}};
    const std::vector<Type> in = {rows, rows, weight, statistic, statistic}, out = {rows};
    return LayerNormDx(false, 64).workspace(in, out, {100, 100});
  };
  EXPECT_EQ(workspace(64), 0);
  EXPECT_EQ(workspace(32), 832) << "2 numbers a token, on whole cache lines";
}

}  // namespace
}  // namespace switchyard::ir
