#include "files/run_lock.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <string>

#include "base/errors.hpp"

namespace switchyard::files {

namespace {

std::string this_process() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on host {}, since {:%Y-%m-%d %H:%M:%S} UTC", ::getpid(), host.data(),
                     fmt::gmtime(std::time(nullptr)));
}

std::string content_of(const Descriptor& file) {
  std::array<char, 512> text{};
  const ssize_t count = ::pread(file.get(), text.data(), text.size(), 0);
  return {text.data(), static_cast<size_t>(count > 0 ? count : 0)};
}

int lock(const Descriptor& file) {
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

}  // namespace

RunLock RunLock::take(const std::filesystem::path& run) {
  make_folder(run);
  const std::filesystem::path path = run / "lock";
  RunLock result;
  result.file_ = open_for_update(path);
  const int error = lock(result.file_);
  if (error == EWOULDBLOCK) {
    const std::string holder = content_of(result.file_);
    user_error("{} is in use by another run{}{}. Wait until it ends, end it, or choose another run.out.", run.string(),
               holder.empty() ? "" : ": ", holder);
  }
  if (error != 0 && error != ENOLCK && error != ENOSYS && error != EOPNOTSUPP && error != EINVAL)
    disk_error("lock", path, error);
  result.held_ = error == 0;
  const std::string holder = this_process();
  write_all(result.file_, std::as_bytes(std::span(holder)), 0, path, static_cast<i64>(holder.size()));
  if (::ftruncate(result.file_.get(), static_cast<off_t>(holder.size())) != 0) disk_error("write", path, errno);
  return result;
}

bool has_lock(const std::filesystem::path& run) {
  std::error_code none;
  return std::filesystem::exists(run / "lock", none);
}

bool in_use(const std::filesystem::path& run) {
  const Descriptor file(::open((run / "lock").c_str(), O_RDONLY | O_CLOEXEC));
  return file.get() >= 0 && ::flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace switchyard::files
