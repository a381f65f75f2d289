#include "config/json_node.hpp"

#include <gtest/gtest.h>

#include "../message_of.hpp"

namespace switchyard::config {
namespace {

TEST(JsonNode, a_path_leads_to_each_value) {
  const Json document = parse_json(R"({"a": [{"b": 7}, {"b": true}]})", "f.json", "Fix it.");
  const std::string origin = "f.json";
  const Node root(document, origin, "");
  EXPECT_EQ(root["a"].items()[0]["b"].integer(0, 7), 7);
  EXPECT_TRUE(root["a"].items()[1]["b"].boolean());
  EXPECT_EQ(message_of([&] { root["a"].items()[0]["b"].small(8); }),
            "f.json: a[0].b = 7 must lie between 8 and 1073741824.");
  EXPECT_EQ(message_of([&] { root["a"].items()[1]["b"].text(); }), "f.json: a[1].b is true; a string is needed.");
  EXPECT_EQ(message_of([&] { root.expect_keys({"b"}, {}); }),
            "f.json: the document has an unknown key \"a\". Did you mean \"b\"?");
}

TEST(JsonNode, a_missing_key_and_a_number_out_of_range_are_reported) {
  const Json document = parse_json(R"({"a": [1.5, 1e308, -1]})", "f.json", "");
  const std::string origin = "f.json";
  const Node root(document, origin, "");
  EXPECT_EQ(root["a"].items()[0].number(0, 2), 1.5);
  EXPECT_EQ(message_of([&] { root["a"].items()[1].number(0, 2); }), "f.json: a[1] = 1e+308 must lie between 0 and 2.");
  EXPECT_EQ(message_of([&] { root["a"].items()[2].number(0, 2); }), "f.json: a[2] = -1 must lie between 0 and 2.");
  EXPECT_EQ(message_of([&] { root["b"]; }), "f.json: the document has no key \"b\".");
  EXPECT_EQ(message_of([&] { root["a"]["b"]; }), "f.json: a is a list; an object is needed, with the key \"b\".");
}

TEST(JsonNode, broken_text_gives_the_remedy) {
  EXPECT_TRUE(message_of([] { parse_json("[1,", "f.json", "Fix it."); }).ends_with(". Fix it."));
}

TEST(JsonNode, a_string_is_quoted) { EXPECT_EQ(quoted("a\"\n"), R"("a\"\n")"); }

}  // namespace
}  // namespace switchyard::config
