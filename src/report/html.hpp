// The page itself: one file with everything in it, that opens from disk.
#pragma once

#include <string>
#include <string_view>

#include "report/page.hpp"

namespace switchyard::report {

/// Files that are part of the program. plotting: BokehJS and its licence; empty if it was not found when the program
/// was built.
struct Assets {
  std::string_view html, css, js;
  std::string_view bokeh, bokeh_api, bokeh_license;
};
const Assets& assets();

/// errors  UserError if the program was built without the plotting library; says how to fix it
std::string html_of(const Page& page);
/// The same of other files. Names and texts of the page can hold anything: what would end a script is escaped.
std::string html_of(const Page& page, const Assets& assets);

}  // namespace switchyard::report
