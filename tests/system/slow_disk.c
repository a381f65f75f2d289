// A disk on which every file or folder takes SLOW_DISK_MS milliseconds to be safe. For LD_PRELOAD.
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int fsync(int fd) {
  const char *milliseconds = getenv("SLOW_DISK_MS");
  if (milliseconds) usleep((useconds_t)atoi(milliseconds) * 1000);
  return (int)syscall(SYS_fsync, fd);
}
