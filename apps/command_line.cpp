#include "command_line.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
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

}  // namespace

void read_command_line(CLI::App& app, int argc, const char* const* argv) {
  check_commands(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success&) {
    throw;
  } catch (const CLI::ParseError& error) {
    user_error("{}. Use --help, also after a command, for a list of options.", error.what());
  }
}

}  // namespace switchyard::apps
