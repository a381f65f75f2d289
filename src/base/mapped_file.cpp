#include "base/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errors.hpp"

namespace switchyard {

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

}  // namespace switchyard
