#include "command_line.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/errors.hpp"
#include "base/text.hpp"

namespace switchyard::apps {
namespace {

// Reports unknown commands by name; the parser would only say that a command is missing.
void check_commands(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App* at = &app;
  for (int i = 1; i < argc && at->get_require_subcommand_min() > 0 && argv[i][0] != '-'; ++i) {
    const CLI::App* next = nullptr;
    std::vector<std::string> names;
    for (const CLI::App* command : at->get_subcommands({})) {
      names.push_back(command->get_name());
      if (names.back() == argv[i]) next = command;
    }
    if (!next) {
      const std::string nearest = nearest_name(argv[i], names);
      user_error("{} is not a command. {}", argv[i],
                 nearest.empty() ? fmt::format("Use one of {}.", fmt::join(names, ", "))
                                 : fmt::format("Did you mean {}?", nearest));
    }
    at = next;
  }
}

// An empty name usually comes from an unset shell variable: a folder would be the current one, a file to write none.
void check_values(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool option = word.starts_with("--") && word.find('=') + 1 == word.size();
    if (!word.empty() && !option) continue;
    const std::string_view name = option ? word.substr(0, word.size() - 1) : std::string_view(argv[i - 1]);
    if (name.starts_with("--") && name != "--") user_error("{} is empty. Give it a value, or leave it out.", name);
    user_error("argument {} is empty. Give it a value, or leave it out.", i);
  }
}

}  // namespace

void check_output(const char* option, const std::string& path) {
  if (std::filesystem::is_directory(path)) user_error("{} {}: this is a folder. Name a file.", option, path);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    user_error("{} {}: there is no folder {}. Make it, or name another file.", option, path, folder.string());
}

CLI::Validator at_least(i64 least) {
  const auto wrong = [least](std::string& text) -> std::string {
    i64 value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && value >= least) return "";
    if (error == std::errc::result_out_of_range && text[0] != '-') return fmt::format("{} is too large", text);
    return fmt::format("{} is not a whole number of at least {}", text, least);
  };
  return {wrong, fmt::format("{} or more", least)};
}

void read_command_line(CLI::App& app, int argc, const char* const* argv) {
  check_commands(app, argc, argv);
  check_values(argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success&) {
    throw;
  } catch (const CLI::ParseError& error) {
    user_error("{}. Use --help, also after a command, for a list of options.", error.what());
  }
}

}  // namespace switchyard::apps
