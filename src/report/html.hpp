// The HTML page: one self-contained file that opens from disk.
#pragma once

#include <string>
#include <string_view>

#include "report/page.hpp"

namespace switchyard::report {

/// Files that are compiled into the program. bokeh*: BokehJS and its licence, empty if it was not found at build time.
struct Assets {
  std::string_view html, css, js;
  std::string_view bokeh, bokeh_api, bokeh_license;
};
const Assets& assets();

/// reload_seconds: how often an open page loads its file again, 0: never
/// errors  UserError if the program was built without BokehJS; says how to fix it
std::string html_of(const Page& page, double reload_seconds = 0);
/// The same with other files. Names and texts of the page may be anything: what would end a script is escaped.
std::string html_of(const Page& page, const Assets& assets, double reload_seconds = 0);

}  // namespace switchyard::report
