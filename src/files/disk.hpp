// Writing files so that a reader sees a whole file or none, and disk errors that name file, sizes and remedy.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.hpp"
#include "base/mapped_file.hpp"

namespace switchyard::files {

/// An open file descriptor, closed by the destructor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int get() const { return fd_; }
  void close();

 private:
  int fd_ = -1;
};

/// A new or emptied file, opened for writing. Errors as disk_error.
Descriptor open_for_writing(const std::filesystem::path& path);
/// An existing or new file, opened to append. Errors as disk_error.
Descriptor open_for_appending(const std::filesystem::path& path);
/// An existing or new file, opened to read and write. Errors as disk_error.
Descriptor open_for_update(const std::filesystem::path& path);
/// Writes all bytes, and retries after interrupts and short writes. offset < 0: at the file's current position.
/// `needed`: bytes that the whole operation needs, for the message. Errors as disk_error.
void write_all(const Descriptor& file, std::span<const std::byte> bytes, i64 offset, const std::filesystem::path& path,
               i64 needed);
/// Waits until the bytes are on the disk. Errors as disk_error.
void sync(const Descriptor& file, const std::filesystem::path& path);
/// Waits until the names in a folder are on the disk. Errors as disk_error.
void sync_folder(const std::filesystem::path& folder);
/// Throws ClusterError: what failed on which path with which errno; where the disk is full, needed and free bytes.
/// UserError if the path can't be one of a file or folder, as it leads through a file, is a folder, or is too long.
[[noreturn]] void disk_error(std::string_view action, const std::filesystem::path& path, int error, i64 needed = 0);

/// Calls `work`. What the standard library's functions throw for a path is thrown as by disk_error.
void with_disk_errors(const std::function<void()>& work);

/// Makes the folder and its parents if they do not exist. Errors as disk_error.
void make_folder(const std::filesystem::path& folder);
/// The whole of a text file. UserError naming the path if it can't be read.
std::string read_text(const std::filesystem::path& path);
/// Writes PATH.tmp, syncs, renames: PATH holds the old text or the new. A link stays, and so does what is no plain
/// file, such as a pipe or /dev/null: it is written to. Errors as disk_error; the .tmp is removed.
void write_text(const std::filesystem::path& path, std::string_view text);

}  // namespace switchyard::files
