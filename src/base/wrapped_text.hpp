// Text in lines that are not too long.
#pragma once

#include <string>
#include <string_view>

namespace switchyard {

inline constexpr size_t kTextColumns = 100;

/// The text with line breaks, so that no line has more than `columns` characters: at spaces, and in a word that is too
/// long for a line after commas; a word without any stays whole. Lines after a break begin with `indent` spaces.
std::string wrapped(std::string_view text, size_t indent = 2, size_t columns = kTextColumns);

/// The same for a terminal of so many columns (0: in one line): as a line as wide as it would wrap, lines are shorter.
/// `indent` characters of a label begin the text and have no break; on a narrow terminal a quarter of its columns is
/// the most that further lines are indented.
std::string wrapped_on_terminal(std::string_view text, size_t columns, size_t indent = 0);

/// The parts of a text that are separated by "; ", each on lines of its own behind `indent` spaces, wrapped.
std::string part_per_line(std::string_view text, size_t indent);

}  // namespace switchyard
