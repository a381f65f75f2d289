// The program of switchyard, loaded once for many commands: most of a short command's time goes into loading libtorch.
// It listens on the Unix socket of its one argument, of which it tells by a line, until its standard input is closed.
// For each connection of fork_client it forks a process that runs a command with the client's arguments, environment,
// working folder and standard files, and answers with its number and then its status, as of waitpid. If a client is
// gone, or the server itself ends, so do their processes.
#include <dirent.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

// The linker's option --wrap=main.
extern "C" int __real_main(int argc, char** argv);
extern "C" int __wrap_main(int argc, char** argv);

namespace {

void must(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::_Exit(1);
}

// Forked processes have one thread, so that there must be no other.
int threads() {
  DIR* const tasks = opendir("/proc/self/task");
  must(tasks != nullptr, "/proc/self/task");
  int count = -2;  // . and ..
  while (readdir(tasks) != nullptr) ++count;
  closedir(tasks);
  return count;
}

void read_all(int from, char* to, std::size_t size) {
  while (size > 0) {
    const ssize_t done = read(from, to, size);
    must(done > 0, "request");
    to += done;
    size -= static_cast<std::size_t>(done);
  }
}

constexpr std::size_t kFiles = 4;  // the working folder, standard input, output and error

// What fork_client sends: its files with two sizes, then texts that end with zeros: arguments, environment.
struct Request {
  std::array<int, kFiles> files{};
  std::vector<std::string> arguments, environment;
};

Request receive(int client) {
  std::array<std::uint32_t, 3> head{};  // number of arguments, number of variables, bytes
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kFiles * sizeof(int))> control{};
  iovec part{.iov_base = head.data(), .iov_len = sizeof head};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  must(recvmsg(client, &message, MSG_WAITALL) == sizeof head, "request");
  const cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  must(rights != nullptr && rights->cmsg_len == CMSG_LEN(kFiles * sizeof(int)), "files of a request");
  Request request;
  std::memcpy(request.files.data(), CMSG_DATA(rights), sizeof request.files);
  std::vector<char> texts(head[2]);
  read_all(client, texts.data(), texts.size());
  const char* text = texts.data();
  for (std::uint32_t i = 0; i < head[0] + head[1]; ++i, text += std::strlen(text) + 1)
    (i < head[0] ? request.arguments : request.environment).emplace_back(text);
  return request;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

[[noreturn]] void become_command(Request& request) {
  must(fchdir(request.files[0]) == 0, "working folder");
  for (int stream = 0; stream < 3; ++stream) must(dup2(request.files[stream + 1u], stream) == stream, "dup2");
  must(close_range(3, ~0u, 0) == 0, "close_range");
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  static std::vector<char*> arguments, environment;  // until the end
  arguments = pointers(request.arguments);
  environment = pointers(request.environment);
  environ = environment.data();
  std::quick_exit(__real_main(static_cast<int>(request.arguments.size()), arguments.data()));
}

void answer(int client, int number) { (void)!send(client, &number, sizeof number, MSG_NOSIGNAL); }

}  // namespace

int __wrap_main(int argc, char** argv) {
  if (argc != 2) return 2;
  if (threads() != 1) {
    std::fputs("there are threads before the first request\n", stderr);
    return 1;
  }
  const int listening = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strncpy(name.sun_path, argv[1], sizeof name.sun_path - 1);
  must(bind(listening, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0, argv[1]);
  must(listen(listening, 64) == 0, "listen");
  sigset_t ended;
  sigemptyset(&ended);
  sigaddset(&ended, SIGCHLD);
  sigprocmask(SIG_BLOCK, &ended, nullptr);
  const int signals = signalfd(-1, &ended, 0);
  must(write(STDOUT_FILENO, "\n", 1) == 1, "standard output");
  std::map<int, pid_t> running;  // by client
  for (;;) {
    std::vector<pollfd> files{{STDIN_FILENO, POLLIN, 0}, {signals, POLLIN, 0}, {listening, POLLIN, 0}};
    for (const auto& [client, pid] : running) files.push_back({client, POLLIN, 0});
    must(poll(files.data(), files.size(), -1) > 0, "poll");
    if (files[0].revents != 0) break;
    for (std::size_t i = 3; i < files.size(); ++i)
      if (files[i].revents != 0) {
        kill(running.at(files[i].fd), SIGKILL);
        close(files[i].fd);
        running.erase(files[i].fd);
      }
    if (files[1].revents != 0) {
      signalfd_siginfo which;
      read_all(signals, reinterpret_cast<char*>(&which), sizeof which);
      int status = 0;
      for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        const auto of = std::ranges::find(running, pid, &std::pair<const int, pid_t>::second);
        if (of == running.end()) continue;
        answer(of->first, status);
        close(of->first);
        running.erase(of);
      }
    }
    if (files[2].revents != 0) {
      const int client = accept(listening, nullptr, nullptr);
      must(client >= 0, "accept");
      Request request = receive(client);
      const pid_t pid = fork();
      must(pid >= 0, "fork");
      if (pid == 0) become_command(request);
      for (const int file : request.files) close(file);
      answer(client, pid);
      running[client] = pid;
    }
  }
  for (const auto& [client, pid] : running) kill(pid, SIGKILL);
  std::_Exit(0);
}
