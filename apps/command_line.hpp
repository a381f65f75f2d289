// Reads command lines.
#pragma once

#include <CLI/CLI.hpp>

namespace switchyard::apps {

/// Parses a command line with the options and subcommands of `app`.
/// errors  UserError for what is wrong; CLI::Success where it asks for help or the version alone
void read_command_line(CLI::App& app, int argc, const char* const* argv);

}  // namespace switchyard::apps
