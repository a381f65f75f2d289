// Safetensors files and folders of them, as Hugging Face writes them: raw bytes with names, types and shapes.
// Source: https://github.com/huggingface/safetensors (format); index files as in transformers.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/fingerprint.hpp"
#include "files/disk.hpp"
#include "files/file_dtype.hpp"

namespace switchyard::files {

/// One tensor of a file. begin, end: bytes from the start of the file.
struct TensorInfo {
  FileDType dtype = FileDType::f32;
  std::vector<i64> shape;
  i64 begin = 0, end = 0;
  i64 elements() const;
};
struct TensorHeader {
  std::map<std::string, TensorInfo> tensors;
  std::map<std::string, std::string> metadata;
};
/// The header of a file of `file_size` bytes that starts with `prefix` (header included, rest optional). UserError
/// naming origin, tensor and remedy: cut off, not JSON, unknown type, shape and bytes disagree, overlap, holes.
TensorHeader parse_header(std::span<const std::byte> prefix, i64 file_size, const std::string& origin);

/// A memory-mapped file; spans live as long as it does. Reading is thread-safe.
class TensorFile {
 public:
  /// UserError as parse_header, or if there is no such file.
  static TensorFile open(const std::filesystem::path& path);
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const;
  /// UserError naming file and tensor if there is none of this name.
  const TensorInfo& info(const std::string& name) const;
  std::span<const std::byte> data(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  MappedFile file_;
  TensorHeader header_;
};

/// A Hugging Face folder: model.safetensors, or the shards that model.safetensors.index.json names.
class TensorFolder {
 public:
  /// UserError if neither file exists, or a shard is missing or lacks a tensor that the index names.
  static TensorFolder open(const std::filesystem::path& folder);
  const std::filesystem::path& path() const { return folder_; }
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const;
  /// UserError naming folder and tensor if there is none of this name.
  const TensorInfo& info(const std::string& name) const;
  std::span<const std::byte> data(const std::string& name) const;
  /// Adds samples of its files, by which ranks recognize the same weights.
  void add_to(Fingerprint& fingerprint) const;

 private:
  const TensorFile& file_of(const std::string& name) const;
  std::filesystem::path folder_;
  std::vector<TensorFile> files_;
  std::map<std::string, size_t> where_;
};

}  // namespace switchyard::files
