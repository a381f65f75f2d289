#include "layout/messages.hpp"

#include <gtest/gtest.h>

namespace switchyard::layout {
namespace {

TEST(Messages, are_sorted_by_source_destination_tensor_and_lower_corner) {
  const auto from = [](int src, int dst, int tensor, i64 lo) { return Msg{src, dst, tensor, {1, {lo}, {lo + 1}}}; };
  const std::vector<Msg> sorted = {from(0, 1, 1, 5), from(0, 2, 0, 4), from(0, 2, 1, 2), from(0, 2, 1, 3),
                                   from(1, 0, 0, 0)};
  std::vector<Msg> messages = {sorted[4], sorted[3], sorted[1], sorted[2], sorted[0]};
  sort_messages(messages);
  EXPECT_EQ(messages, sorted);
}

}  // namespace
}  // namespace switchyard::layout
