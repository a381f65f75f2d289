#include "base/text.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace switchyard {
namespace {

TEST(Text, the_edit_distance_counts_insertions_deletions_replacements_and_swaps) {
  EXPECT_EQ(edit_distance("steps", "steps"), 0);
  EXPECT_EQ(edit_distance("step", "steps"), 1);
  EXPECT_EQ(edit_distance("stepss", "steps"), 1);
  EXPECT_EQ(edit_distance("staps", "steps"), 1);
  EXPECT_EQ(edit_distance("setps", "steps"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("", "abc"), 3);
}

TEST(Text, the_nearest_name_is_a_likely_misspelling) {
  const std::vector<std::string> names{"heads", "kv_heads", "head_dim", "hidden_size"};
  EXPECT_EQ(nearest_name("head", names), "heads");
  EXPECT_EQ(nearest_name("hiden_size", names), "hidden_size");
  EXPECT_EQ(nearest_name("kvheads", names), "kv_heads");
}

TEST(Text, a_name_far_from_all_has_no_nearest) {
  const std::vector<std::string> names{"heads", "layers"};
  EXPECT_EQ(nearest_name("temperature", names), "");
  EXPECT_EQ(nearest_name(std::string(100000, 'x'), names), "");
  EXPECT_EQ(nearest_name("heads", std::vector<std::string>{}), "");
}

TEST(Text, a_star_matches_any_run_of_characters) {
  EXPECT_TRUE(matches_wildcard("*.down_proj.weight", "model.layers.3.mlp.down_proj.weight"));
  EXPECT_TRUE(matches_wildcard("model.*.mlp.*", "model.layers.3.mlp.up_proj.weight"));
  EXPECT_TRUE(matches_wildcard("*", ""));
  EXPECT_TRUE(matches_wildcard("a*a", "aaa"));
  EXPECT_TRUE(matches_wildcard("ab", "ab"));
  EXPECT_FALSE(matches_wildcard("*.down_proj.weight", "model.layers.3.mlp.down_proj.bias"));
  EXPECT_FALSE(matches_wildcard("ab", "abc"));
  EXPECT_FALSE(matches_wildcard("a*a", "a"));
  EXPECT_FALSE(matches_wildcard("", "a"));
}

TEST(Text, utf8_is_distinguished_from_other_bytes) {
  for (const char* text : {"", "plain", "gr\u00fc\u00dfe", "\u20ac", "\U0001f600", "\u0080", "\u0800", "\U0010ffff"})
    EXPECT_TRUE(is_utf8(text)) << text;
  for (const char* text : {"\xff", "a\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xc0\xaf", "\xe0\x80\x80",
                           "\xf0\x80\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc3(", "\xf8\x88\x80\x80\x80"})
    EXPECT_FALSE(is_utf8(text)) << text;
}

TEST(Text, many_stars_stay_fast) {
  std::string pattern;
  for (int i = 0; i < 50; ++i) pattern += "*a";
  EXPECT_FALSE(matches_wildcard(pattern + "b", std::string(2000, 'a')));
}

TEST(Text, counts_keep_two_digits_at_least) {
  for (const auto& [count, text] : {std::pair<double, const char*>{0, "0"},
                                    {87, "87"},
                                    {999, "999"},
                                    {1000, "1.0k"},
                                    {9949, "9.9k"},
                                    {9950, "10k"},
                                    {34400, "34k"},
                                    {1200000, "1.2M"},
                                    {7e12, "7T"},
                                    {2e15, "2000T"}})
    EXPECT_EQ(format_count(count), text);
}

}  // namespace
}  // namespace switchyard
