#include <csignal>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/errors.hpp"
#include "base/version.hpp"
#include "commands.hpp"
#ifdef SWITCHYARD_TORCH
#include "comm/launch.hpp"
#endif

namespace {

// Under mpirun and its like every rank is a process, and says which it is.
std::string speaker() {
#ifdef SWITCHYARD_TORCH
  try {
    const switchyard::comm::Launch launch = switchyard::comm::launch_from_environment();
    if (launch.distributed) return fmt::format("switchyard, rank {}", launch.rank);
  } catch (const switchyard::UserError&) {  // told where it matters
  }
#endif
  return "switchyard";
}

}  // namespace

int main(int argc, char** argv) {
  using namespace switchyard;
  CLI::App app{"Switchyard: trains language models with several parallel strategies inside one step"};
  app.require_subcommand(1);
  app.set_version_flag("--version", fmt::format("switchyard {}", kVersion));
  apps::Action action;
#ifdef SWITCHYARD_TORCH
  apps::add_train(app, action);
  apps::add_verify(app, action);
  apps::add_bench(app, action);
  apps::add_profile(app, action);
#endif
  apps::add_switch_plan(app, action);
  apps::add_show(app, action);
  apps::add_plan(app, action);
  apps::add_simulate(app, action);
  apps::add_report(app, action);
  apps::add_schedule(app, action);
  apps::add_data(app, action);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error with a message, not the end
  CLI11_PARSE(app, argc, argv);
  try {
    return action();
  } catch (const UserError& error) {
    fmt::print(stderr, "{}: {}\n", speaker(), error.what());
    return 2;
  } catch (const ClusterError& error) {
    fmt::print(stderr, "switchyard: {}\n", error.what());  // names its rank
    return 3;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: internal error: {}\n", speaker(), error.what());
    return 4;
  }
}
