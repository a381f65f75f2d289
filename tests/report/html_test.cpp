#include "report/html.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "../compiler/small_models.hpp"
#include "compiler/memory.hpp"

namespace switchyard::report {
namespace {

constexpr Assets kSmall{
    .html =
        "<title>{{title}}</title><!-- {{license}} --><script>{{bokeh}}</script><script>{{bokeh_api}}</script>"
        "<script type=\"application/json\">{{data}}</script><script>{{js}}</script><style>{{css}}</style>",
    .css = "c{}",
    .js = "run()",
    .bokeh = "lib('</script>')",
    .bokeh_api = "api()",
    .bokeh_license = "BSD --> x"};

std::string between(const std::string& text, const std::string& before, const std::string& after) {
  const size_t begin = text.find(before) + before.size();
  return text.substr(begin, text.find(after, begin) - begin);
}

size_t count(const std::string& text, const std::string& what) {
  size_t number = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++number;
  return number;
}

TEST(Html, holds_names_of_any_kind_as_text_only) {
  const std::string name = "</script><script>alert(1)</script><!-- {{js}} \" & \xff";
  const std::string html = html_of(Page{name, {report::Run{.name = name}}}, kSmall);
  EXPECT_EQ(count(html, "<script"), 4u);
  EXPECT_EQ(count(html, "</script>"), 4u);
  EXPECT_EQ(count(html, "<!--"), 1u);
  EXPECT_EQ(count(html, "run()"), 1u);
  EXPECT_EQ(between(html, "<title>", "</title>").find('<'), std::string::npos);
  const auto data = nlohmann::json::parse(between(html, "application/json\">", "</script>"));
  EXPECT_EQ(data["runs"][0]["name"].get<std::string>(), name.substr(0, name.size() - 1) + "\xef\xbf\xbd");
}

TEST(Html, each_class_of_memory_has_a_color) {
  std::ifstream file(SWITCHYARD_SOURCE "/src/report/page/colors.js");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(count(between(text.str(), "CLASS_COLORS", "RUN_COLORS"), "\"#"), 2 * compiler::kMemoryClasses);
}

TEST(Html, carries_the_library_and_its_licence) {
  const std::string html = html_of(Page{"t", {}}, kSmall);
  EXPECT_NE(html.find("lib('<\\/script>')"), std::string::npos);
  EXPECT_NE(html.find("api()"), std::string::npos);
  EXPECT_NE(html.find("BSD - -> x"), std::string::npos);
}

TEST(Html, says_how_often_it_is_loaded_again) {
  const auto seconds = [](const std::string& html) {
    return nlohmann::json::parse(between(html, "application/json\">", "</script>"))["reload_seconds"].get<double>();
  };
  EXPECT_EQ(seconds(html_of(Page{"t", {}}, kSmall)), 0);
  EXPECT_EQ(seconds(html_of(Page{"t", {}}, kSmall, 2.5)), 2.5);
}

TEST(Html, without_the_library_is_refused_with_the_remedy) {
  Assets none = kSmall;
  none.bokeh = {};
  EXPECT_NE(message_of([&] { html_of(Page{}, none); }).find("built without the plotting library BokehJS"),
            std::string::npos);
}

TEST(Html, template_that_asks_for_an_unknown_part_is_a_bug) {
  Assets wrong = kSmall;
  wrong.html = "{{nothing}}";
  EXPECT_NE(message_of<InternalError>([&] { html_of(Page{}, wrong); }).find("nothing"), std::string::npos);
}

TEST(Html, is_one_file_that_names_no_other) {
  ASSERT_FALSE(assets().html.empty());
  if (assets().bokeh.empty()) GTEST_SKIP() << "built without BokehJS";
  Assets own = assets();
  EXPECT_NE(own.bokeh_license.find("Redistribution and use"), std::string::npos);
  own.bokeh = own.bokeh_api = "library";
  const std::string html = html_of(Page{"t", {}}, own);
  for (const char* outside : {"src=", "@import", "url(", "fetch(", "XMLHttpRequest", "rel=\"stylesheet\""})
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
}

}  // namespace
}  // namespace switchyard::report
