#include "ir/operators/embedding.hpp"

#include <gtest/gtest.h>

#include "one_call.hpp"

namespace switchyard::runtime {
namespace {

// Rows 4 .. 6 of a vocabulary of more; ids below, in and above.
TEST(EmbeddingBinding, APartOfTheVocabularyGivesItsRowsAndZeros) {
  OneCall call(std::make_shared<ir::Embedding>());
  const at::Tensor ids = integers({5, 1, 4, 7}), table = wave({3, 2});
  call.in = {ids, table};
  call.out = {wave({4, 2}, 9)};
  call.instr.in = {call.buffer(ids), call.buffer(table, 4, true)};
  call.run();
  EXPECT_TRUE(call.out[0].select(0, 0).equal(table.select(0, 1)));
  EXPECT_TRUE(call.out[0].select(0, 2).equal(table.select(0, 0)));
  EXPECT_EQ(call.out[0].select(0, 1).abs().max().item<double>() + call.out[0].select(0, 3).abs().max().item<double>(),
            0);
}

TEST(EmbeddingBinding, ItsGradientIsAddedToTheRowsOfThePart) {
  OneCall call(std::make_shared<ir::EmbeddingDw>());
  const at::Tensor ids = integers({5, 1, 5, 7}), dy = wave({4, 2}), before = wave({3, 2}, 5);
  call.in = {dy, ids};
  call.out = {before.clone()};
  call.instr.out = {call.buffer(before, 4, true)};
  call.run();
  EXPECT_LT(gap(call.out[0].select(0, 1), before.select(0, 1).add(dy.select(0, 0)).add(dy.select(0, 2))), 1e-15);
  EXPECT_TRUE(call.out[0].select(0, 0).equal(before.select(0, 0)));
  EXPECT_TRUE(call.out[0].select(0, 2).equal(before.select(0, 2)));
}

}  // namespace
}  // namespace switchyard::runtime
