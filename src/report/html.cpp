#include "report/html.hpp"

#include <map>
#include <nlohmann/json.hpp>

#include "base/errors.hpp"

namespace switchyard::report {
namespace {

std::string replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string out;
  for (size_t at = 0;;) {
    const size_t next = text.find(what, at);
    out += text.substr(at, next - at);
    if (next == std::string_view::npos) return out;
    out += by;
    at = next + what.size();
  }
}

// In JSON a '<' is always inside a string, where \u003c means the same. With it no text can end the surrounding script
// or start a comment.
std::string json_of(const Page& page, double reload_seconds) {
  nlohmann::ordered_json json = to_json(page);
  json["reload_seconds"] = reload_seconds;
  return replaced(json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace), "<", "\\u003c");
}

std::string text_of(std::string_view text) {
  return replaced(replaced(replaced(text, "&", "&amp;"), "<", "&lt;"), ">", "&gt;");
}

// Replaces each {{name}} of the template by its part.
std::string filled(std::string_view html, const std::map<std::string_view, std::string>& parts) {
  std::string out;
  for (;;) {
    const size_t open = html.find("{{"), close = html.find("}}", open);
    out += html.substr(0, open);
    if (open == std::string_view::npos) return out;
    const std::string_view name = html.substr(open + 2, close - open - 2);
    const auto part = parts.find(name);
    check(part != parts.end(), "the report's page asks for \"{}\"", name);
    out += part->second;
    html.remove_prefix(close + 2);
  }
}

}  // namespace

std::string html_of(const Page& page, double reload_seconds) { return html_of(page, assets(), reload_seconds); }

std::string html_of(const Page& page, const Assets& assets, double reload_seconds) {
  if (assets.bokeh.empty() || assets.bokeh_api.empty())
    user_error(
        "this program was built without the plotting library BokehJS, so it makes no report pages. Run `make setup`, "
        "which installs it into .venv, and build again.");
  const auto script = [](std::string_view code) { return replaced(code, "</script", "<\\/script"); };
  return filled(assets.html, {{"title", text_of(page.title)},
                              {"css", std::string(assets.css)},
                              {"license", replaced(assets.bokeh_license, "--", "- -")},
                              {"bokeh", script(assets.bokeh)},
                              {"bokeh_api", script(assets.bokeh_api)},
                              {"data", json_of(page, reload_seconds)},
                              {"js", script(assets.js)}});
}

}  // namespace switchyard::report
