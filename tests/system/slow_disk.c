// For LD_PRELOAD: every sync of a file or folder takes SLOW_DISK_MS milliseconds, with SLOW_DISK_WHILE only while there
// is a file of that name; as it ends by quick_exit, the process writes how many bytes it wrote at given places of files
// (pwrite) into the file DISK_BYTES.
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_llong written;

int fsync(int fd) {
  const char *milliseconds = getenv("SLOW_DISK_MS"), *still = getenv("SLOW_DISK_WHILE");
  for (int left = milliseconds ? atoi(milliseconds) : 0; left > 0 && (!still || access(still, F_OK) == 0); left -= 10)
    usleep(10000);
  return (int)syscall(SYS_fsync, fd);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset) {
  const ssize_t done = syscall(SYS_pwrite64, fd, bytes, size, offset);
  if (done > 0) written += done;
  return done;
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off_t offset) { return pwrite(fd, bytes, size, offset); }

static void report(void) {
  const char *name = getenv("DISK_BYTES");
  FILE *file = name ? fopen(name, "w") : NULL;
  if (!file) return;
  fprintf(file, "%lld\n", (long long)written);
  fclose(file);
}

__attribute__((constructor)) static void report_at_end(void) { at_quick_exit(report); }
