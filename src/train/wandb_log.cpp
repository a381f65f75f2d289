#include "train/wandb_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "base/messages.hpp"
#include "files/python_half.hpp"
#include "train/stop_signals.hpp"

namespace switchyard::train {

WandbLog::WandbLog(const std::string& folder, i64 first_step) {
  std::vector<std::string> words =
      files::python_command("switchyard_data.wandb_log", {folder, "--from", std::to_string(first_step)});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;
  const files::Descriptor input(ends[0]);
  open_ = files::Descriptor(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, input.get(), STDIN_FILENO);
  // Signals that ask the run to stop reach all its processes, from terminals and from Slurm. This one ends when its
  // input does, after the last step's line.
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t blocked;
  ::sigemptyset(&blocked);
  for (const int signal : kStopSignals) ::sigaddset(&blocked, signal);
  ::posix_spawnattr_setsigmask(&attributes, &blocked);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int failed = ::posix_spawnp(&process_, argv[0], &actions, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed == 0) return;
  process_ = -1;
  print_message(stderr, "log.wandb: cannot start {}: {}. It is left out.\n", words[0], std::strerror(failed));
}

WandbLog::~WandbLog() {
  open_ = {};
  if (process_ >= 0) ::waitpid(process_, nullptr, 0);
}

}  // namespace switchyard::train
