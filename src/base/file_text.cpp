#include "base/file_text.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/errors.hpp"
#include "base/units.hpp"

namespace switchyard {

namespace {

constexpr size_t kMost = 64 << 20;  // a schedule of millions of items has 40 MB

}  // namespace

std::optional<std::string> file_text(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::string text;
  std::array<char, 1 << 14> part;
  ssize_t count = 0;
  do {
    count = ::read(file, part.data(), part.size());
    if (count > 0) text.append(part.data(), static_cast<size_t>(count));
  } while ((count > 0 && text.size() <= kMost) || (count < 0 && errno == EINTR));
  const int error = errno;
  ::close(file);
  errno = error;
  if (count < 0) return std::nullopt;
  if (text.size() > kMost)
    user_error("{} has more than {}, the most that such a file may have. Check the path.", path.string(),
               format_bytes({kMost}));
  return text;
}

}  // namespace switchyard
