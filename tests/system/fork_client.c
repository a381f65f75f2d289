// fork_client SOCKET COMMAND...: as if COMMAND were executed, but by the server that listens on SOCKET
// (fork_server.cpp). It passes on signals and ends as the command does.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static volatile pid_t command;

static void pass_on(int number) { kill(command, number); }

static void must(int good, const char *what) {
  if (good) return;
  perror(what);
  exit(125);
}

static void write_all(int to, const char *bytes, size_t size) {
  while (size > 0) {
    const ssize_t done = write(to, bytes, size);
    must(done > 0, "request");
    bytes += done;
    size -= (size_t)done;
  }
}

static uint32_t add(FILE *to, char **texts) {
  uint32_t count = 0;
  for (; texts[count]; ++count) fwrite(texts[count], 1, strlen(texts[count]) + 1, to);
  return count;
}

static int answer(int server) {
  int number = 0;
  for (;;) {
    const ssize_t size = recv(server, &number, sizeof number, MSG_WAITALL);
    if (size == sizeof number) return number;
    must(size < 0 && errno == EINTR, "answer");
  }
}

int main(int argc, char **argv) {
  if (argc < 3) return 125;
  const int server = socket(AF_UNIX, SOCK_STREAM, 0);
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  strncpy(name.sun_path, argv[1], sizeof name.sun_path - 1);
  must(connect(server, (struct sockaddr *)&name, sizeof name) == 0, argv[1]);

  char *texts = NULL;
  size_t size = 0;
  FILE *const memory = open_memstream(&texts, &size);
  const uint32_t arguments = add(memory, argv + 2), variables = add(memory, environ);
  fclose(memory);
  uint32_t head[] = {arguments, variables, (uint32_t)size};
  const int files[] = {open(".", O_RDONLY | O_DIRECTORY), STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
  union {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof files)];
  } control = {0};
  struct iovec part = {.iov_base = head, .iov_len = sizeof head};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  struct cmsghdr *const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof files);
  memcpy(CMSG_DATA(rights), files, sizeof files);
  must(sendmsg(server, &message, MSG_NOSIGNAL) == sizeof head, "request");
  write_all(server, texts, size);

  command = answer(server);
  const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
  for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; ++i) signal(passed_on[i], pass_on);
  const int status = answer(server);
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  const struct rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  signal(WTERMSIG(status), SIG_DFL);
  raise(WTERMSIG(status));
  return 125;
}
