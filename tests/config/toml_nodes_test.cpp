#include "config/toml_nodes.hpp"

#include <gtest/gtest.h>

#include "../message_of.hpp"

namespace switchyard::config {
namespace {

TEST(TomlNodes, values_are_shown_and_named_as_in_messages) {
  const toml::table table =
      parse_toml("a = true\nb = 1\nc = \"one\"\nd = 1.5\ne = [1, 2]\nf = {g = 1}\nh = 1979-05-27\n", "x.toml");
  EXPECT_EQ(shown(*table.get("a")), "true");
  EXPECT_EQ(shown(*table.get("b")), "1");
  EXPECT_EQ(shown(*table.get("c")), "\"one\"");
  EXPECT_EQ(shown(*table.get("e")), "[1, 2]");
  EXPECT_EQ(shown(*table.get("d")), "1.5");
  std::string types;
  for (const char* key : {"a", "b", "c", "d", "e", "f", "h"}) types += type_name(*table.get(key)) + ", ";
  EXPECT_EQ(types, "a boolean, an integer, a string, a fraction, a list, a table, a date or time, ");
}

TEST(TomlNodes, fractions_are_shown_as_they_were_most_likely_written) {
  const toml::table table = parse_toml("a = 0.9\nb = 2.0\nc = -1e-6\nd = inf\ne = [[\"1 MB\", 0.3]]\n", "x.toml");
  EXPECT_EQ(shown(*table.get("a")), "0.9");
  EXPECT_EQ(shown(*table.get("b")), "2.0");
  EXPECT_EQ(shown(*table.get("c")), "-1e-06");
  EXPECT_EQ(shown(*table.get("d")), "inf");
  EXPECT_EQ(shown(*table.get("e")), "[[\"1 MB\", 0.3]]");
}

TEST(TomlNodes, text_that_is_no_toml_is_placed) {
  const std::string message = message_of([] { parse_toml("a = 1\nb = = 2\n", "x.toml"); });
  EXPECT_EQ(message.substr(0, 37), "x.toml:2:5: this is not valid TOML: E") << message;
}

TEST(TomlNodes, a_table_that_comes_twice_is_a_list_with_double_brackets) {
  const std::string message = message_of([] { parse_toml("[bucket]\na = 1\n[bucket]\na = 2\n", "x.toml"); });
  EXPECT_TRUE(message.ends_with("'bucket'. Where there are several, write each as [[bucket]], with double brackets."))
      << message;
  const std::string other = message_of([] { parse_toml("[run]\na = 1\n[run]\nb = 2\n", "x.toml"); });
  EXPECT_TRUE(other.ends_with("'run'. Put all keys of [run] into one table.")) << other;
}

}  // namespace
}  // namespace switchyard::config
