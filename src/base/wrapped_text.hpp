// Text in lines that fit a terminal.
#pragma once

#include <string>
#include <string_view>

namespace switchyard {

inline constexpr size_t kTextColumns = 100;

/// The text with line breaks, so that no line is longer than kTextColumns: at spaces, and in a word that is too long
/// for a line after commas; a word without any stays whole. Lines after a break begin with `indent` spaces.
std::string wrapped(std::string_view text, size_t indent = 2);

/// The parts of a text that are separated by "; ", each on lines of its own behind `indent` spaces, wrapped.
std::string part_per_line(std::string_view text, size_t indent);

}  // namespace switchyard
