// Text on a terminal that may be narrow.
#pragma once

#include <string>
#include <string_view>

namespace switchyard {

/// The text in lines that are shorter than `columns` (0: in one), as a line as wide as a terminal would wrap. Lines are
/// broken at blanks; a word that is longer than a line stays whole. Lines after the first begin with `indent` blanks,
/// or fewer if that is more than a quarter of the width. The first `indent` characters, a label, have no break.
std::string wrapped(std::string_view text, size_t columns, size_t indent = 0);

}  // namespace switchyard
