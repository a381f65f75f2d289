// For LD_PRELOAD: every sync of a file or folder takes SLOW_DISK_MS milliseconds.
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int fsync(int fd) {
  const char *milliseconds = getenv("SLOW_DISK_MS");
  if (milliseconds) usleep((useconds_t)atoi(milliseconds) * 1000);
  return (int)syscall(SYS_fsync, fd);
}
