#include "base/wrapped.hpp"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(Wrapped, lines_are_shorter_than_the_terminal_and_broken_at_blanks) {
  EXPECT_EQ(wrapped("a line of several words", 0), "a line of several words");
  EXPECT_EQ(wrapped("a line of several words", 24), "a line of several words");
  EXPECT_EQ(wrapped("a line of several words", 23), "a line of several\nwords");
  EXPECT_EQ(wrapped("a line of several words", 10), "a line of\nseveral\nwords");
  EXPECT_EQ(wrapped("see a/folder/that/is/long now", 10), "see\na/folder/that/is/long\nnow");
  EXPECT_EQ(wrapped("gr\u00fc\u00dfe an alle", 9), "gr\u00fc\u00dfe an\nalle") << "characters, not bytes";
  EXPECT_EQ(wrapped("two  blanks", 9), "two\nblanks");
  EXPECT_EQ(wrapped("", 9), "");
}

TEST(Wrapped, lines_after_the_first_are_indented) {
  EXPECT_EQ(wrapped("data    one two three four", 20, 8), "data    one two\n     three four") << "5 of 20 columns";
  EXPECT_EQ(wrapped("data    one two three four", 32, 8), "data    one two three four");
  EXPECT_EQ(wrapped("data    one two three four five six seven", 34, 8),
            "data    one two three four five\n        six seven");
  EXPECT_EQ(wrapped("data    a/folder/that/is/long now", 16, 8), "data    a/folder/that/is/long\n    now");
}

}  // namespace
}  // namespace switchyard
