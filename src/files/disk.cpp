#include "files/disk.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::files {

namespace {

std::string text_of(int error) { return std::generic_category().message(error); }

i64 free_bytes(const std::filesystem::path& near) {
  struct statvfs info {};
  if (statvfs(near.c_str(), &info) != 0) return 0;
  return static_cast<i64>(info.f_bavail) * static_cast<i64>(info.f_frsize);
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

// The shortest part of a path that is there and is not a folder, or a link to none; the path if all of them are.
std::filesystem::path no_folder_of(const std::filesystem::path& path) {
  std::filesystem::path part;
  for (const std::filesystem::path& name : path) {
    part /= name;
    std::error_code failed;
    if (std::filesystem::symlink_status(part, failed).type() != std::filesystem::file_type::not_found &&
        !std::filesystem::is_directory(part, failed))
      return part;
  }
  return path;
}

Descriptor open_or_throw(const std::filesystem::path& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (fd < 0) disk_error("open", path, errno);
  return Descriptor(fd);
}

}  // namespace

Descriptor::Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  close();
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

Descriptor::~Descriptor() { close(); }

void Descriptor::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Descriptor open_for_writing(const std::filesystem::path& path) {
  return open_or_throw(path, O_WRONLY | O_CREAT | O_TRUNC);
}

Descriptor open_for_appending(const std::filesystem::path& path) {
  return open_or_throw(path, O_WRONLY | O_CREAT | O_APPEND);
}

Descriptor open_for_update(const std::filesystem::path& path) { return open_or_throw(path, O_RDWR | O_CREAT); }

void write_all(const Descriptor& file, std::span<const std::byte> bytes, i64 offset, const std::filesystem::path& path,
               i64 needed) {
  while (!bytes.empty()) {
    const ssize_t written = offset < 0 ? ::write(file.get(), bytes.data(), bytes.size())
                                       : ::pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) disk_error("write", path, written == 0 ? ENOSPC : errno, needed);
    bytes = bytes.subspan(static_cast<size_t>(written));
    if (offset >= 0) offset += written;
  }
}

void sync(const Descriptor& file, const std::filesystem::path& path) {
  if (::fsync(file.get()) != 0) disk_error("sync", path, errno);
}

void sync_folder(const std::filesystem::path& folder) {
  const Descriptor file = open_or_throw(folder, O_RDONLY | O_DIRECTORY);
  // Some network file systems can't sync a folder; they order renames themselves.
  if (::fsync(file.get()) != 0 && errno != EINVAL) disk_error("sync", folder, errno);
}

void disk_error(std::string_view action, const std::filesystem::path& path, int error, i64 needed) {
  const std::string failed = fmt::format("cannot {} {}", action, path.string());
  if (error == EISDIR) user_error("{}: it is a folder. Name a file, or move the folder away.", failed);
  if (error == ENOTDIR || error == EEXIST)
    user_error("{}: {} is not a folder. Name another path, or move that file away.", failed,
               no_folder_of(path).string());
  if (error == ENAMETOOLONG || error == ELOOP) user_error("{}: {}. Name another path.", failed, text_of(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    // What needs no bytes lacks room for one more file.
    const std::string room =
        needed > 0 ? fmt::format("{} bytes are needed, {} are free. ", needed, free_bytes(folder_of(path))) : "";
    cluster_error(
        "{}: {}. {}Free some space or files (df -i), raise the quota or file-size limit (ulimit -f), or choose a "
        "folder "
        "on another disk.",
        failed, text_of(error), room);
  }
  if (error == EMFILE || error == ENFILE)
    cluster_error("{}: {}. Raise the limit of open files (ulimit -n).", failed, text_of(error));
  const std::string folder = folder_of(path).string();
  cluster_error("{}: {}. Check the disk and the permissions of {}.", failed, text_of(error),
                folder == "." ? "the current folder" : folder);
}

void with_disk_errors(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::filesystem::filesystem_error& error) {
    disk_error("read", error.path1(), error.code().value());
  }
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) disk_error("make folder", folder, failed.value());
}

std::string read_text(const std::filesystem::path& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  const auto size = static_cast<i64>(text.size());
  std::error_code none;
  const std::filesystem::file_status there = std::filesystem::status(path, none);
  if (std::filesystem::is_other(there)) return write_all(open_or_throw(path, O_WRONLY), bytes, -1, path, size);
  const bool linked = std::filesystem::is_regular_file(there) && std::filesystem::is_symlink(path, none);
  const std::filesystem::path target = linked ? std::filesystem::canonical(path) : path;
  std::filesystem::path temporary = target;
  temporary += ".tmp";
  try {
    Descriptor file = open_for_writing(temporary);
    write_all(file, bytes, 0, path, size);
    sync(file, path);
    file.close();
    if (::rename(temporary.c_str(), target.c_str()) != 0) disk_error("rename to", path, errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder_of(target));
}

}  // namespace switchyard::files
