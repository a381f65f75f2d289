// Reads files of a run folder with the checks of configuration files.
#pragma once

#include <string>
#include <string_view>

#include "config/json_node.hpp"

namespace switchyard::report {

/// The result of `read` on a JSON text.
/// errors  UserError "ORIGIN is no WHAT (reason). REMEDY" for anything that is wrong in it
template <class Read>
auto read_kept(const std::string& text, const std::string& origin, std::string_view what, std::string_view remedy,
               Read read) {
  try {
    const config::Json document = config::parse_json(text, origin, "");
    return read(config::Node(document, origin, ""));
  } catch (const UserError& error) {
    std::string_view reason = error.what();
    if (reason.starts_with(origin + ": ")) reason.remove_prefix(origin.size() + 2);
    reason = reason.substr(0, reason.find_last_not_of(". ") + 1);
    user_error("{} is no {} ({}). {}", origin, what, reason, remedy);
  }
}

/// Largest number of bytes that a file may state; sums of such numbers fit into 64 bits.
inline constexpr i64 kMostBytes = i64{1} << 56;
/// Longest time of a step that a file may state, about thirty years.
inline constexpr double kMostSeconds = 1e9;

}  // namespace switchyard::report
