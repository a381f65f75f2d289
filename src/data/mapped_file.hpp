// A file mapped into memory, read-only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace switchyard::data {

/// Owns the mapping; moves, never copies. Pages are read when touched.
class MappedFile {
 public:
  /// UserError if the file does not exist, is no plain file or may not be read.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace switchyard::data
