// Functions on names and text.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace switchyard {

/// Fewest insertions, deletions, replacements and swaps of neighbours that turn one name into the other.
int edit_distance(std::string_view a, std::string_view b);

/// The name nearest to `name` by edit distance, the earlier one on a tie; "" if none is within a third of its length
/// (at least 2): then it is not a misspelling.
std::string nearest_name(std::string_view name, std::span<const std::string> names);

/// Whether the bytes are UTF-8 (RFC 3629: shortest form, no surrogates).
bool is_utf8(std::string_view text);

/// Whether `text` matches `pattern`, where '*' stands for any run of characters, including none.
bool matches_wildcard(std::string_view pattern, std::string_view text);

/// A count for people, two digits at least: "87", "950", "3.4k", "34k", "1.2M".
std::string format_count(double count);

}  // namespace switchyard
