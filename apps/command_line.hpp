// Reads command lines.
#pragma once

#include <CLI/CLI.hpp>

#include "base/dtype.hpp"

namespace switchyard::apps {

/// Parses a command line with the options and subcommands of `app`.
/// errors  UserError for what is wrong; CLI::Success where it asks for help or the version alone
void read_command_line(CLI::App& app, int argc, const char* const* argv);

/// UserError unless a file can be written there, so that no long work is lost: it names a folder, or one in a folder
/// that isn't there.
void check_output(const char* option, const std::string& path);

/// A check of whole numbers.
CLI::Validator at_least(i64 least);

}  // namespace switchyard::apps
