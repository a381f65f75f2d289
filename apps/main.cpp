#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/errors.hpp"
#include "base/version.hpp"
#include "commands.hpp"
#ifdef SWITCHYARD_DEVICE
#include "comm/launch.hpp"
#endif

namespace {

// Under mpirun and its like every rank is a process, and says which it is.
std::string speaker() {
#ifdef SWITCHYARD_DEVICE
  try {
    const switchyard::comm::Launch launch = switchyard::comm::launch_from_environment();
    if (launch.distributed) return fmt::format("switchyard, rank {}", launch.rank);
  } catch (const switchyard::UserError&) {  // told where it matters
  }
#endif
  return "switchyard";
}

#ifdef SWITCHYARD_DEVICE_PROGRAM
// The program beside this one has all commands.
[[noreturn]] void become_device_program(char** argv) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / SWITCHYARD_DEVICE_PROGRAM;
  ::execv(program.c_str(), argv);
  switchyard::user_error("{}: {}. Both programs belong into one folder.", program.string(), std::generic_category().message(errno));
}
#endif

}  // namespace

int main(int argc, char** argv) {
  using namespace switchyard;
  CLI::App app{"Switchyard: trains language models with several parallel strategies inside one step"};
  app.require_subcommand(1);
  app.set_version_flag("--version", fmt::format("switchyard {}", kVersion));
  apps::Action action;
#ifdef SWITCHYARD_DEVICE
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
#ifndef SWITCHYARD_DEVICE
  ::mallopt(M_TOP_PAD, 64 << 20);  // a short life with much small data: memory comes in large parts and isn't given back before the end
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
#endif
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error with a message, not the end
  try {
#ifdef SWITCHYARD_DEVICE_PROGRAM
    const std::string_view word = argc > 1 ? argv[1] : "";
    if (std::ranges::none_of(app.get_subcommands({}), [&](const CLI::App* command) { return command->get_name() == word; })) become_device_program(argv);
#endif
    CLI11_PARSE(app, argc, argv);
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
