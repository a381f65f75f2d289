#include "switching/bundle.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace switchyard::switching {
namespace {

using layout::Box;
using layout::Msg;
using testing::ElementsAre;

Box rows(i64 lo, i64 hi, i64 columns) { return {2, {lo, 0}, {hi, columns}}; }

Bundle two_tensors() {
  const std::vector<TensorSlice> slices{{0, {rows(0, 4, 10), {0, 1}, {0, 0}, {2}}},
                                        {1, {rows(2, 8, 5), {0, 1}, {0, 0}, {2}}}};
  return bundles(slices)[0];
}

TEST(Bundles, join_slices_with_the_same_holders_and_takers) {
  const std::vector<TensorSlice> slices{{0, {rows(0, 4, 10), {0}, {0}, {2}}},
                                        {0, {rows(4, 8, 10), {1}, {0}, {2}}},
                                        {1, {rows(0, 3, 5), {0}, {0}, {2}}},
                                        {1, {rows(3, 4, 5), {0}, {1}, {2}}}};
  const auto found = bundles(slices);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].elements, 55);
  ASSERT_EQ(found[0].pieces.size(), 2u);
  EXPECT_EQ(found[0].pieces[1].start, 40);
  EXPECT_THAT(found[1].holders, ElementsAre(1));
  EXPECT_THAT(found[2].partials, ElementsAre(1));
}

TEST(Bundles, are_sent_whole_piece_by_piece) {
  std::vector<Msg> messages;
  const Bundle bundle = two_tensors();
  add_messages({0, 2, &bundle, 0, 70}, messages);
  EXPECT_THAT(messages, ElementsAre(Msg{0, 2, 0, rows(0, 4, 10)}, Msg{0, 2, 1, rows(2, 8, 5)}));
}

TEST(Bundles, are_cut_at_the_nearest_row) {
  std::vector<Msg> messages;
  const Bundle bundle = two_tensors();
  add_messages({0, 2, &bundle, 14, 53}, messages);  // 1.4 rows; 40 + 2.6 rows
  EXPECT_THAT(messages, ElementsAre(Msg{0, 2, 0, rows(1, 4, 10)}, Msg{0, 2, 1, rows(2, 5, 5)}));
}

TEST(Bundles, ranges_that_abut_send_each_row_once) {
  const Bundle bundle = two_tensors();
  for (i64 a = 0; a <= bundle.elements; ++a) {
    for (i64 b = a; b <= bundle.elements; ++b) {
      std::vector<Msg> messages;
      add_messages({0, 2, &bundle, 0, a}, messages);
      add_messages({0, 2, &bundle, a, b}, messages);
      add_messages({0, 2, &bundle, b, bundle.elements}, messages);
      i64 first = 0, second = 2;
      for (const Msg& msg : messages) {
        i64& at = msg.tensor == 0 ? first : second;
        ASSERT_EQ(msg.box.lo[0], at);
        at = msg.box.hi[0];
      }
      ASSERT_EQ(first, 4);
      ASSERT_EQ(second, 8);
    }
  }
}

}  // namespace
}  // namespace switchyard::switching
