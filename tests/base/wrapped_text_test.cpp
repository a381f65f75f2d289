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

TEST(PartPerLine, puts_every_part_on_a_line_of_its_own) {
  EXPECT_EQ(part_per_line("to 8192: tp=2; to 1024: dp=2", 2), "  to 8192: tp=2\n  to 1024: dp=2\n");
  EXPECT_EQ(part_per_line(kHalf + " " + kHalf + "; b", 2), "  " + kHalf + "\n      " + kHalf + "\n  b\n");
}

}  // namespace
}  // namespace switchyard
