#include "base/mapped_file.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/errors.hpp"

namespace switchyard {
namespace {

// A signal handler may use what is here and no memory of the heap.
std::array<char, 256> speaker_of_handler{};
int status_of_handler = 0;

// Calls visit(line), without its end, for each line of a file until it returns true.
template <class Visit>
void visit_lines(const char* path, Visit visit) {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  std::array<char, 8192> line{};
  std::size_t length = 0;
  for (char c = 0; file >= 0 && ::read(file, &c, 1) == 1;) {
    line[length] = c == '\n' ? '\0' : c;
    if (c == '\n' && visit(line.data())) break;
    length = c == '\n' ? 0 : std::min(length + 1, line.size() - 1);
  }
  if (file >= 0) ::close(file);
}

void say(const char* text) { [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text)); }

void end_with_message(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  visit_lines("/proc/self/maps", [&](const char* line) {  // begin-end permissions offset device inode path
    char* middle = nullptr;
    const std::uintptr_t begin = std::strtoull(line, &middle, 16);
    const char* path = std::strchr(line, '/');
    if (address < begin || address >= std::strtoull(middle + 1, nullptr, 16) || path == nullptr) return false;
    say(speaker_of_handler.data());
    say(": cannot read ");
    say(path);
    say(" any more: it became shorter, or its disk failed. Check the disk, and change no file that is in use; a new "
        "one "
        "may take its name.\n");
    ::_exit(status_of_handler);
  });
  ::signal(signal, SIG_DFL);  // the access that failed is repeated
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path, std::string_view remedy) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) user_error("cannot read {}: {}. {}", path.string(), std::strerror(errno), remedy);
  struct stat status {};
  const bool plain = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = nullptr;  // stays null for an empty file, which can't be mapped
  if (plain && size > 0) address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  const int error = errno;
  ::close(file);
  if (!plain) user_error("cannot read {}: it is not a file. {}", path.string(), remedy);
  if (address == MAP_FAILED) user_error("cannot map {}: {}. {}", path.string(), std::strerror(error), remedy);
  bytes_ = {static_cast<const std::byte*>(address), address == nullptr ? 0 : size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void tell_of_unreadable_pages(const std::string& speaker, int status) {
  speaker.copy(speaker_of_handler.data(), speaker_of_handler.size() - 1);
  status_of_handler = status;
  struct sigaction action {};
  action.sa_sigaction = end_with_message;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace switchyard
