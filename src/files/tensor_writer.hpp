// Writes safetensors files in pieces, and Hugging Face folders of them.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "files/disk.hpp"
#include "files/safetensors.hpp"

namespace switchyard::files {

/// A tensor to be written.
struct TensorEntry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<i64> shape;
  i64 bytes() const;
};

/// Writes one file, with tensors in any order and in pieces. Everything goes to PATH.tmp until finish(). create()
/// reserves the space, so that a full disk is reported before the first byte is written. Errors: ClusterError naming
/// file, needed and free bytes; the .tmp is removed then, and when the writer is destroyed without finish(). Disjoint
/// pieces may be written by several threads.
class TensorWriter {
 public:
  static TensorWriter create(const std::filesystem::path& path, const std::vector<TensorEntry>& entries,
                             const std::map<std::string, std::string>& metadata = {{"format", "pt"}});
  /// A further writer, perhaps of another process or host, of a file that another one has created and not yet
  /// finished, with the same entries and metadata. It opens the file with its first piece; its finish() syncs its
  /// pieces and leaves the rest to the creator.
  static TensorWriter join(const std::filesystem::path& path, const std::vector<TensorEntry>& entries,
                           const std::map<std::string, std::string>& metadata = {{"format", "pt"}});
  TensorWriter(TensorWriter&& other) noexcept;
  TensorWriter& operator=(TensorWriter&&) = delete;
  ~TensorWriter();
  /// Writes bytes of tensor `name` from `offset` (bytes inside the tensor) on. InternalError for an unknown name or a
  /// piece outside.
  void write(const std::string& name, i64 offset, std::span<const std::byte> bytes);
  /// Writes the box [lo, hi) of the tensor; `bytes` has the box's elements in row-major order.
  void write_box(const std::string& name, std::span<const i64> lo, std::span<const i64> hi,
                 std::span<const std::byte> bytes);
  /// Syncs, and gives the file its name. Bytes that were never written are zero.
  void finish();

 private:
  TensorWriter() = default;
  bool joined_ = false;
  std::filesystem::path path_, temporary_;
  Descriptor file_;
  i64 size_ = 0;
  std::map<std::string, TensorInfo> tensors_;
};

/// Writes a Hugging Face folder (made if it does not exist): model.safetensors, or shards of at most `shard_bytes` (a
/// larger tensor has its own) with their index. Same pieces, errors and clean-up as TensorWriter. UserError if the
/// folder already holds weights: a reader could mix them.
class TensorFolderWriter {
 public:
  static TensorFolderWriter create(const std::filesystem::path& folder, const std::vector<TensorEntry>& entries,
                                   i64 shard_bytes = 5'000'000'000);
  /// Does what TensorWriter::join does.
  static TensorFolderWriter join(const std::filesystem::path& folder, const std::vector<TensorEntry>& entries,
                                 i64 shard_bytes = 5'000'000'000);
  void write(const std::string& name, i64 offset, std::span<const std::byte> bytes);
  void write_box(const std::string& name, std::span<const i64> lo, std::span<const i64> hi,
                 std::span<const std::byte> bytes);
  void finish();

 private:
  using NewFile = TensorWriter (*)(const std::filesystem::path& path, const std::vector<TensorEntry>& entries);
  static TensorFolderWriter of(const std::filesystem::path& folder, const std::vector<TensorEntry>& entries,
                               i64 shard_bytes, NewFile new_file);
  TensorWriter& file_of(const std::string& name);
  std::filesystem::path folder_;
  std::vector<TensorWriter> files_;
  std::map<std::string, size_t> where_;
  std::string index_;
};

}  // namespace switchyard::files
