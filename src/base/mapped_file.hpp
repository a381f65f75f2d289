// A file mapped into memory, read-only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace switchyard {

/// Owns the mapping; moves, never copies. Pages are read when touched. An empty file gives an empty span.
class MappedFile {
 public:
  MappedFile() = default;
  /// UserError if the file does not exist, is not a regular file or may not be read; `remedy` ends the message.
  explicit MappedFile(const std::filesystem::path& path,
                      std::string_view remedy = "Check the path and its permissions.");
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

/// From now on a page of a mapped file that can't be read, as the file became shorter or its disk failed, ends the
/// process with `status` and a message that names the file, instead of by a signal. speaker: begins the message.
void tell_of_unreadable_pages(const std::string& speaker, int status);

}  // namespace switchyard
