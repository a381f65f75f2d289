#include "ir/operators/swiglu.hpp"

#include <gtest/gtest.h>

#include "../layout_query.hpp"

namespace switchyard::ir {
namespace {

TEST(Swiglu, and_its_gradient_follow_the_cut_of_the_features) {
  const layout::Layout features = cut({{}, {0}});
  EXPECT_EQ(Question({2}).activation(features).activation(features).output().ask(Swiglu()).gives[0], features);
  const LayoutRule back =
      Question({2}).activation(features).activation(features).activation(features).output().output().ask(SwigluDx());
  EXPECT_EQ(back.gives[0], features);
  EXPECT_EQ(back.gives[1], features);
}

TEST(Swiglu, resolves_pending_sums_forward_but_not_in_its_gradient) {
  const layout::Layout pending = cut({{}, {}}, {0}), whole = cut({{}, {}});
  EXPECT_TRUE(Question({2}).activation(pending).activation(whole).output().ask(Swiglu()).needs[0].partial.empty());
  EXPECT_EQ(
      Question({2}).activation(pending).activation(whole).activation(whole).output().output().ask(SwigluDx()).gives[1],
      pending);
}

}  // namespace
}  // namespace switchyard::ir
