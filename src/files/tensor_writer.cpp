#include "files/tensor_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::files {

namespace {

using nlohmann::json;

constexpr size_t kAlignment = 8;  // alignment of the data, so that mapped tensors can be read in place

/// Entries with wide types first, so that every tensor starts at a multiple of its element size.
std::vector<TensorEntry> placed(std::vector<TensorEntry> entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return switchyard::size_of(a.dtype) > switchyard::size_of(b.dtype);
  });
  return entries;
}

std::string header_text(const std::vector<TensorEntry>& entries, const std::map<std::string, std::string>& metadata) {
  json header = json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  i64 offset = 0;
  for (const TensorEntry& entry : entries) {
    check(!header.contains(entry.name), "tensor \"{}\" is declared twice", entry.name);
    const i64 end = offset + entry.bytes();
    header[entry.name] = {
        {"dtype", name_of(stored_as(entry.dtype))}, {"shape", entry.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  std::string length;
  for (size_t i = 0; i < 8; ++i) length += static_cast<char>((text.size() >> (8 * i)) & 0xff);
  return length + text;
}

void reserve(const Descriptor& file, i64 size, const std::filesystem::path& path) {
  int failed = 0;
  do {  // tmpfs lets a signal interrupt it, also one whose handler asks to go on
    failed = ::fallocate(file.get(), 0, 0, static_cast<off_t>(size));
  } while (failed != 0 && errno == EINTR);
  if (failed == 0) return;
  const bool unsupported = errno == EOPNOTSUPP || errno == ENOSYS;
  if (!unsupported || ::ftruncate(file.get(), static_cast<off_t>(size)) != 0) disk_error("write", path, errno, size);
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace

i64 TensorEntry::bytes() const {
  i64 elements = 1;
  for (const i64 size : shape) elements *= size;
  return elements * switchyard::size_of(dtype);
}

TensorWriter TensorWriter::create(const std::filesystem::path& path, const std::vector<TensorEntry>& entries,
                                  const std::map<std::string, std::string>& metadata) {
  TensorWriter writer = join(path, entries, metadata);
  writer.joined_ = false;
  writer.file_ = open_for_writing(writer.temporary_);
  reserve(writer.file_, writer.size_, path);
  write_all(writer.file_, bytes_of(header_text(placed(entries), metadata)), 0, path, writer.size_);
  return writer;
}

TensorWriter TensorWriter::join(const std::filesystem::path& path, const std::vector<TensorEntry>& entries,
                                const std::map<std::string, std::string>& metadata) {
  TensorWriter writer;
  writer.joined_ = true;
  writer.path_ = path;
  writer.temporary_ = path;
  writer.temporary_ += ".tmp";
  const std::vector<TensorEntry> order = placed(entries);
  writer.size_ = static_cast<i64>(header_text(order, metadata).size());
  for (const TensorEntry& entry : order) {
    const i64 end = writer.size_ + entry.bytes();
    writer.tensors_[entry.name] = {
        .dtype = stored_as(entry.dtype), .shape = entry.shape, .begin = writer.size_, .end = end};
    writer.size_ = end;
  }
  return writer;
}

TensorWriter::TensorWriter(TensorWriter&& other) noexcept
    : joined_(other.joined_),
      path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::move(other.file_)),
      size_(other.size_),
      tensors_(std::move(other.tensors_)) {}

TensorWriter::~TensorWriter() {
  if (!temporary_.empty() && !joined_) ::unlink(temporary_.c_str());
}

void TensorWriter::write(const std::string& name, i64 offset, std::span<const std::byte> bytes) {
  const auto found = tensors_.find(name);
  check(found != tensors_.end(), "write {}: tensor \"{}\" was not declared", path_.string(), name);
  const i64 size = found->second.end - found->second.begin;
  check(offset >= 0 && offset <= size && static_cast<i64>(bytes.size()) <= size - offset,
        "write {}: {} bytes at {} of \"{}\", which has {}", path_.string(), bytes.size(), offset, name, size);
  if (file_.get() < 0) file_ = open_for_update(temporary_);
  write_all(file_, bytes, found->second.begin + offset, path_, size_);
}

void TensorWriter::write_box(const std::string& name, std::span<const i64> lo, std::span<const i64> hi,
                             std::span<const std::byte> bytes) {
  const auto found = tensors_.find(name);
  check(found != tensors_.end(), "write {}: tensor \"{}\" was not declared", path_.string(), name);
  const std::vector<i64>& shape = found->second.shape;
  i64 box_bytes = size_of(found->second.dtype);
  bool inside = lo.size() == shape.size() && hi.size() == shape.size();
  for (size_t d = 0; inside && d < shape.size(); ++d) {
    inside = 0 <= lo[d] && lo[d] <= hi[d] && hi[d] <= shape[d];
    box_bytes *= hi[d] - lo[d];
  }
  check(inside && box_bytes == static_cast<i64>(bytes.size()),
        "write {}: {} bytes for box {} to {} of \"{}\", which has shape {}", path_.string(), bytes.size(), lo, hi, name,
        shape);
  if (box_bytes == 0) return;
  // Dims from `outer` on are contiguous in the file: all but the first of them are whole.
  size_t outer = shape.size();
  i64 run = size_of(found->second.dtype);
  while (outer > 0) {
    --outer;
    run *= hi[outer] - lo[outer];
    if (lo[outer] != 0 || hi[outer] != shape[outer]) break;
  }
  std::vector<i64> at(lo.begin(), lo.end());
  for (i64 done = 0; done < box_bytes; done += run) {
    i64 element = 0;
    for (size_t d = 0; d < shape.size(); ++d) element = element * shape[d] + at[d];
    write(name, element * size_of(found->second.dtype),
          bytes.subspan(static_cast<size_t>(done), static_cast<size_t>(run)));
    for (size_t d = outer; d-- > 0;) {
      if (++at[d] < hi[d]) break;
      at[d] = lo[d];
    }
  }
}

void TensorWriter::finish() {
  check(!temporary_.empty(), "finish {}: it was finished before", path_.string());
  if (file_.get() >= 0) sync(file_, path_);
  file_.close();
  if (joined_) return temporary_.clear();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) disk_error("rename to", path_, errno);
  temporary_.clear();
  sync_folder(path_.has_parent_path() ? path_.parent_path() : ".");
}

namespace {

/// Entries in order, with a new shard where the next entry would not fit.
std::vector<std::vector<TensorEntry>> sharded(const std::vector<TensorEntry>& entries, i64 shard_bytes) {
  std::vector<std::vector<TensorEntry>> shards(1);
  i64 used = 0;
  for (const TensorEntry& entry : entries) {
    if (!shards.back().empty() && used + entry.bytes() > shard_bytes) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().push_back(entry);
    used += entry.bytes();
  }
  return shards;
}

void refuse_other_weights(const std::filesystem::path& folder) {
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    if (name.starts_with("model") && (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json"))) {
      user_error("{} already holds weights ({}). Choose an empty folder.", folder.string(), name);
    }
  }
}

}  // namespace

TensorFolderWriter TensorFolderWriter::create(const std::filesystem::path& folder,
                                              const std::vector<TensorEntry>& entries, i64 shard_bytes) {
  make_folder(folder);
  refuse_other_weights(folder);
  return of(folder, entries, shard_bytes,
            [](const auto& path, const auto& shard) { return TensorWriter::create(path, shard); });
}

TensorFolderWriter TensorFolderWriter::join(const std::filesystem::path& folder,
                                            const std::vector<TensorEntry>& entries, i64 shard_bytes) {
  TensorFolderWriter writer = of(folder, entries, shard_bytes,
                                 [](const auto& path, const auto& shard) { return TensorWriter::join(path, shard); });
  writer.index_.clear();  // the creator's
  return writer;
}

TensorFolderWriter TensorFolderWriter::of(const std::filesystem::path& folder, const std::vector<TensorEntry>& entries,
                                          i64 shard_bytes, NewFile new_file) {
  TensorFolderWriter writer;
  writer.folder_ = folder;
  const auto shards = sharded(entries, shard_bytes);
  i64 total = 0;
  json map = json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string file = shards.size() == 1 ? "model.safetensors"
                                                : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    writer.files_.push_back(new_file(folder / file, shards[i]));
    for (const TensorEntry& entry : shards[i]) {
      writer.where_[entry.name] = i;
      map[entry.name] = file;
      total += entry.bytes();
    }
  }
  if (shards.size() > 1)
    writer.index_ = json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2) + "\n";
  return writer;
}

TensorWriter& TensorFolderWriter::file_of(const std::string& name) {
  const auto found = where_.find(name);
  check(found != where_.end(), "write {}: tensor \"{}\" was not declared", folder_.string(), name);
  return files_[found->second];
}

void TensorFolderWriter::write(const std::string& name, i64 offset, std::span<const std::byte> bytes) {
  file_of(name).write(name, offset, bytes);
}

void TensorFolderWriter::write_box(const std::string& name, std::span<const i64> lo, std::span<const i64> hi,
                                   std::span<const std::byte> bytes) {
  file_of(name).write_box(name, lo, hi, bytes);
}

void TensorFolderWriter::finish() {
  for (TensorWriter& file : files_) file.finish();
  if (!index_.empty()) write_text(folder_ / "model.safetensors.index.json", index_);
}

}  // namespace switchyard::files
