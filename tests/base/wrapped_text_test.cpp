#include "base/wrapped_text.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace switchyard {
namespace {

const std::string kHalf(50, 'a');

TEST(Wrapped, breaks_at_spaces_behind_an_indent) {
  EXPECT_EQ(wrapped("one two"), "one two");
  EXPECT_EQ(wrapped(kHalf + " " + std::string(49, 'b')), kHalf + " " + std::string(49, 'b')) << "100 columns";
  EXPECT_EQ(wrapped(kHalf + " " + std::string(50, 'b') + " c", 3), kHalf + "\n   " + std::string(50, 'b') + " c");
  EXPECT_EQ(wrapped(""), "");
}

TEST(Wrapped, keeps_lines_and_the_spaces_between_words) { EXPECT_EQ(wrapped("  a   b\n\n c\n"), "  a   b\n\n c\n"); }

TEST(Wrapped, breaks_a_long_word_after_commas) {
  const std::string words = kHalf + "," + kHalf + "," + kHalf;
  EXPECT_EQ(wrapped(words), kHalf + ",\n  " + kHalf + ",\n  " + kHalf);
  EXPECT_EQ(wrapped("x " + words), "x\n  " + kHalf + ",\n  " + kHalf + ",\n  " + kHalf);
  const std::string whole(150, 'a');
  EXPECT_EQ(wrapped(whole + " b"), whole + "\n  b") << "nowhere to break it";
}

TEST(Wrapped, never_exceeds_100_columns_where_words_are_short) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += std::string(static_cast<size_t>(i * 7 % 23), 'w') + (i % 5 == 0 ? "," : " ");
  std::istringstream lines(wrapped(text, 8));
  std::string joined;
  for (std::string line; std::getline(lines, line); joined += line) EXPECT_LE(line.size(), 100u) << line;
  std::erase(joined, ' ');
  std::erase(text, ' ');
  EXPECT_EQ(joined, text);
}

TEST(WrappedOnTerminal, lines_are_shorter_than_the_terminal_and_broken_at_blanks) {
  EXPECT_EQ(wrapped_on_terminal("a line of several words", 0), "a line of several words");
  EXPECT_EQ(wrapped_on_terminal("a line of several words", 24), "a line of several words");
  EXPECT_EQ(wrapped_on_terminal("a line of several words", 23), "a line of several\nwords");
  EXPECT_EQ(wrapped_on_terminal("a line of several words", 10), "a line of\nseveral\nwords");
  EXPECT_EQ(wrapped_on_terminal("see a/folder/that/is/long now", 10), "see\na/folder/that/is/long\nnow");
  EXPECT_EQ(wrapped_on_terminal("gr\u00fc\u00dfe an alle", 9), "gr\u00fc\u00dfe an\nalle") << "characters, not bytes";
  EXPECT_EQ(wrapped_on_terminal("two  blanks", 9), "two\nblanks");
  EXPECT_EQ(wrapped_on_terminal("", 9), "");
}

TEST(WrappedOnTerminal, lines_after_the_first_are_indented) {
  EXPECT_EQ(wrapped_on_terminal("data    one two three four", 20, 8), "data    one two\n     three four")
      << "5 of 20 columns";
  EXPECT_EQ(wrapped_on_terminal("data    one two three four", 32, 8), "data    one two three four");
  EXPECT_EQ(wrapped_on_terminal("data    one two three four five six seven", 34, 8),
            "data    one two three four five\n        six seven");
  EXPECT_EQ(wrapped_on_terminal("data    a/folder/that/is/long now", 16, 8), "data    a/folder/that/is/long\n    now");
}

TEST(PartPerLine, puts_every_part_on_a_line_of_its_own) {
  EXPECT_EQ(part_per_line("to 8192: tp=2; to 1024: dp=2", 2), "  to 8192: tp=2\n  to 1024: dp=2\n");
  EXPECT_EQ(part_per_line(kHalf + " " + kHalf + "; b", 2), "  " + kHalf + "\n      " + kHalf + "\n  b\n");
}

}  // namespace
}  // namespace switchyard
