// The subcommands of switchyard. Each adds itself to the command line and sets the action that runs after parsing.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "progress.hpp"

namespace CLI {
class App;
}

namespace switchyard::apps {

inline constexpr int kDoesNotFit = 2;  // exit status of plan and simulate: the memory is too small

/// What the chosen subcommand does. run prints, and returns the exit code. figures, which plan, simulate and
/// switch-plan have, returns what run prints with --json, and prints nothing.
struct Action {
  std::function<int()> run{};
  std::function<nlohmann::json(const Progress&)> figures{};
};

void add_evaluate(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_switch_plan(CLI::App& app, Action& action);
void add_data(CLI::App& app, Action& action);
void add_train(CLI::App& app, Action& action);
void add_show(CLI::App& app, Action& action);
void add_simulate(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_schedule(CLI::App& app, Action& action);
void add_export(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_profile(CLI::App& app, Action& action);

}  // namespace switchyard::apps
