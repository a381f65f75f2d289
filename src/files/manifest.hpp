// Which shard file of a checkpoint holds which box of the training state: state/manifest.json; and the checksums of
// what a shard has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.hpp"

namespace switchyard::files {

/// Box [lo, hi) of part ("master", "m", "v") of `tensor` is tensor `key` of state/`file`.
struct ManifestEntry {
  std::string tensor, part;
  std::vector<i64> lo, hi;
  std::string file, key;
  bool operator==(const ManifestEntry&) const = default;
};
/// What a rank keeps of its gradients (error feedback): boxes of several ranks may overlap. The entry's part is
/// "residual".
struct ResidualEntry {
  int rank = 0;
  ManifestEntry entry;
  bool operator==(const ResidualEntry&) const = default;
};
/// dtype of all parts and residuals; shapes: of every tensor, by Hugging Face name.
struct Manifest {
  DType dtype = DType::f32;
  std::vector<std::string> parts{"master", "m", "v"};
  std::map<std::string, std::vector<i64>> shapes;
  std::vector<ManifestEntry> entries;
  std::vector<ResidualEntry> residuals{};
  bool operator==(const Manifest&) const = default;
};
void write_manifest(const std::filesystem::path& checkpoint, const Manifest& manifest);
/// The manifest, parsed and validated. UserError naming file, tensor and remedy.
Manifest read_manifest(const std::filesystem::path& checkpoint);
/// Checks that every element of every part of every tensor is in exactly one entry, and that residuals lie in their
/// tensors. UserError naming origin, tensor, part and box.
void validate(const Manifest& manifest, const std::string& origin);
/// Checks that the shards hold what the manifest says: files, keys, shapes, types. UserError naming the file.
void validate_shards(const std::filesystem::path& checkpoint, const Manifest& manifest);
/// "home-00003-of-00008.safetensors"
std::string shard_name(int rank, int ranks);

/// CRC-32C of a shard's tensors, by key: state/home-00003-of-00008.json.
using Checksums = std::map<std::string, std::uint32_t>;
void write_checksums(const std::filesystem::path& checkpoint, const std::string& shard, const Checksums& checksums);
/// Reads the whole shard. UserError naming the file and a tensor whose checksum differs. Earlier versions wrote no
/// checksums: then nothing is read.
void verify_checksums(const std::filesystem::path& checkpoint, const std::string& shard);

}  // namespace switchyard::files
