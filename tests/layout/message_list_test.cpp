#include "layout/message_list.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace switchyard::layout {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Msg message(int src, int dst, int tensor) { return {.src = src, .dst = dst, .tensor = tensor, .box = {1, {0}, {1}}}; }

Names names(std::vector<int> all) { return std::make_shared<const std::vector<int>>(std::move(all)); }

TEST(MessageList, knows_who_sends_and_which_tensors_a_rank_gets) {
  const MessageList list{message(0, 2, 3), message(0, 2, 1), message(0, 2, 3), message(1, 1, 0)};
  EXPECT_TRUE(list.sends(0));
  EXPECT_TRUE(list.sends(1)) << "to itself";
  EXPECT_FALSE(list.sends(2));
  for (const int stranger : {-1, 3, 7}) {
    EXPECT_FALSE(list.sends(stranger));
    EXPECT_FALSE(list.receives(stranger));
  }
  EXPECT_TRUE(list.receives(2));
  EXPECT_FALSE(list.receives(0));
  EXPECT_THAT(list.received(2), ElementsAre(1, 3));
  EXPECT_THAT(list.received(1), ElementsAre(0)) << "from itself";
  EXPECT_THAT(list.received(0), IsEmpty());
  EXPECT_THAT(list.received(7), IsEmpty());
}

TEST(MessageList, knows_it_under_other_names) {
  const MessageList numbers{message(0, 1, 0), message(0, 1, 1)};
  const MessageList list(numbers.pattern(), names({5, 3}), names({20, 10}));
  EXPECT_TRUE(list.sends(5));
  EXPECT_FALSE(list.sends(0));
  EXPECT_THAT(list.received(3), ElementsAre(20, 10));
  EXPECT_THAT(list.received(1), IsEmpty());
}

TEST(MessageList, may_be_of_some_messages_of_a_pattern) {
  MessageList::Pattern part;
  {
    const MessagePattern whole({message(0, 1, 0), message(1, 2, 1), message(2, 3, 2), message(3, 0, 3)});
    part = std::make_shared<const MessagePattern>(whole, 1, 2);
  }
  const MessageList list(part, names({4, 5, 6, 7}), nullptr);  // keeps the messages of what it is a part of
  EXPECT_THAT(std::vector<Msg>(list.begin(), list.end()), ElementsAre(message(5, 6, 1), message(6, 7, 2)));
  EXPECT_FALSE(list.sends(4));
  EXPECT_FALSE(list.sends(7));
}

TEST(MessageList, without_messages_has_no_ends) {
  EXPECT_FALSE(MessageList().sends(0));
  EXPECT_THAT(MessageList().received(0), IsEmpty());
}

}  // namespace
}  // namespace switchyard::layout
