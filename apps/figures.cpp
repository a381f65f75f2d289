#include "figures.hpp"

#include "base/errors.hpp"
#include "command_line.hpp"
#include "commands.hpp"

namespace switchyard::apps {

nlohmann::json figures(const std::string& command, const std::vector<std::string>& words, const Progress& progress) {
  CLI::App app;
  app.require_subcommand(1);
  Action action;
  add_plan(app, action);
  add_simulate(app, action);
  add_switch_plan(app, action);
  std::vector<const char*> line{"switchyard", command.c_str()};
  for (const std::string& word : words) line.push_back(word.c_str());
  try {
    read_command_line(app, static_cast<int>(line.size()), line.data());
  } catch (const CLI::Success&) {
    user_error("help has no figures. Use `switchyard {} --help`.", command);
  }
  return action.figures(progress);
}

}  // namespace switchyard::apps
