#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/errors.hpp"
#include "base/mapped_file.hpp"
#include "base/messages.hpp"
#include "base/names_rank.hpp"
#include "base/version.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "files/disk.hpp"
#ifdef SWITCHYARD_DEVICE
#include "comm/launch.hpp"
#endif

namespace {

// The prefix of messages. Where every rank is a process of its own (mpirun, srun, torchrun), it names the rank.
std::string speaker() {
#ifdef SWITCHYARD_DEVICE
  try {
    const switchyard::comm::Launch launch = switchyard::comm::launch_from_environment();
    if (launch.distributed) return fmt::format("switchyard, rank {}", launch.rank);
  } catch (const switchyard::UserError&) {  // the command reports it if it matters
  }
#endif
  return "switchyard";
}

#ifdef SWITCHYARD_DEVICE_PROGRAM
// Shared libraries of a program that the loader does not find. With this variable it lists them, as for ldd, and ends.
std::vector<std::string> missing_libraries(const std::filesystem::path& program) {
  int list[2];
  if (::pipe2(list, O_CLOEXEC) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(list[1], STDOUT_FILENO);
    ::setenv("LD_TRACE_LOADED_OBJECTS", "1", 1);
    ::execl(program.c_str(), program.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(list[1]);
  std::string text;
  for (char part[4096];;) {
    const ssize_t size = ::read(list[0], part, sizeof part);
    if (size <= 0) break;
    text.append(part, static_cast<size_t>(size));
  }
  ::close(list[0]);
  ::waitpid(child, nullptr, 0);
  std::vector<std::string> missing;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines >> std::ws, line);)
    if (const size_t end = line.find(" => not found"); end != std::string::npos) missing.push_back(line.substr(0, end));
  return missing;
}

// Replaces this process with the program beside it that has all commands.
[[noreturn]] void become_device_program(char** argv) {
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / SWITCHYARD_DEVICE_PROGRAM;
  if (const std::vector<std::string> missing = missing_libraries(program); !missing.empty())
    switchyard::user_error(
        "{} doesn't find {}, with which it was built. Build it again (`make build`), or name the folder of these "
        "libraries in LD_LIBRARY_PATH.",
        program.string(), fmt::join(missing, " and "));
  ::execv(program.c_str(), argv);
  switchyard::user_error("{}: {}. Both programs must be in the same folder.", program.string(),
                         std::generic_category().message(errno));
}
#endif

// A file that is opened while a standard stream is closed would get its descriptor, and with it the output. The
// replacement of standard output is read-only, so that printing to it fails.
void open_standard_files() {
  const auto open = [](int fd, int flags) {
    if (::fcntl(fd, F_GETFD) == 0 || errno != EBADF) return;
    if (const int got = ::open("/dev/null", flags); got >= 0 && got != fd) {
      ::dup2(got, fd);
      ::close(got);
    }
  };
  open(STDIN_FILENO, O_RDONLY);
  open(STDOUT_FILENO, O_RDONLY);
  open(STDERR_FILENO, O_WRONLY);
}

int cannot_print(const std::error_code& reason) {
  switchyard::print_message(stderr, "{}: cannot write to standard output: {}. What was printed is incomplete.\n",
                            speaker(), reason.message());
  return 3;
}

// The exit status, after all output has been flushed; an error if some of it could not be written.
int printed(int status) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  const int reason = cannot_print(std::error_code(errno != 0 ? errno : EIO, std::generic_category()));
  return status == 0 ? reason : status;
}

// Whether there is a command to run; false after help or version was printed. Printed as everything else: a flush of
// std::cout that fails would leave no reason.
bool parse(CLI::App& app, int argc, char** argv) {
  try {
    switchyard::apps::read_command_line(app, argc, argv);
    return true;
  } catch (const CLI::Success& answer) {
    std::ostringstream text;
    app.exit(answer, text, text);
    fmt::print("{}", text.str());
    return false;
  }
}

// The command line, null-terminated; `help COMMAND` becomes `COMMAND --help`.
std::vector<char*> words_of(int argc, char** argv) {
  static char help_option[] = "--help";
  std::vector<char*> words(argv, argv + argc);
  if (argc > 1 && std::string_view(argv[1]) == "help") {
    words.erase(words.begin() + 1);
    words.push_back(help_option);
  }
  words.push_back(nullptr);
  return words;
}

// The exit status of a command.
int run_command(int count, char** given) {
  using namespace switchyard;
  std::vector<char*> words = words_of(count, given);
  const int argc = static_cast<int>(words.size()) - 1;
  char** argv = words.data();
  open_standard_files();
  CLI::App app{"Switchyard: trains language models with several parallel strategies inside one step"};
  app.require_subcommand(1);
  app.set_version_flag("--version", fmt::format("switchyard {}", kVersion));
  apps::Action action;
#ifdef SWITCHYARD_DEVICE
  apps::add_train(app, action);
  apps::add_evaluate(app, action);
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
  apps::add_export(app, action);
#ifndef SWITCHYARD_DEVICE
  // These commands are short and allocate many small objects: memory comes in large parts and is kept until the end.
  ::mallopt(M_TOP_PAD, 64 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
#endif
  tell_of_unreadable_pages(speaker(), 3);
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is reported as an error instead of killing the process
  try {
#ifdef SWITCHYARD_DEVICE_PROGRAM
    const std::string_view word = argc > 1 ? argv[1] : "";
    if (std::ranges::none_of(app.get_subcommands({}),
                             [&](const CLI::App* command) { return command->get_name() == word; }))
      become_device_program(argv);
#endif
    int status = 0;
    if (parse(app, argc, argv)) files::with_disk_errors([&] { status = action.run(); });
    return printed(status);
  } catch (const UserError& error) {
    print_message(stderr, "{}: {}\n", speaker(), error.what());
    return 2;
  } catch (const ClusterError& error) {
    print_message(stderr, "{}: {}\n", names_rank(error.what()) ? "switchyard" : speaker(), error.what());
    return 3;
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) != 0) return cannot_print(error.code());
    print_message(stderr, "{}: internal error: {}\n", speaker(), error.what());
    return 4;
  } catch (const std::exception& error) {
    print_message(stderr, "{}: internal error: {}\n", speaker(), error.what());
    return 4;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int status = run_command(argc, argv);
#ifdef SWITCHYARD_DEVICE
  // Its ranks have ended and its files are closed, so nothing is left to do but what libtorch does when it is unloaded,
  // which takes a third of the time of a short command.
  std::fflush(nullptr);
  std::quick_exit(status);
#else
  return status;
#endif
}
