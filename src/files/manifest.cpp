#include "files/manifest.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/errors.hpp"
#include "files/crc32c.hpp"
#include "files/disk.hpp"
#include "files/safetensors.hpp"

namespace switchyard::files {

namespace {

using nlohmann::json;

constexpr const char* kResidual = "residual";
constexpr const char* kChecksums = "crc32c";
constexpr const char* kRemedy = "The checkpoint is damaged: resume from another one.";

std::filesystem::path manifest_path(const std::filesystem::path& checkpoint) {
  return checkpoint / "state" / "manifest.json";
}

std::filesystem::path checksums_of(const std::filesystem::path& checkpoint, const std::string& shard) {
  return (checkpoint / "state" / shard).replace_extension(".json");
}

DType dtype_from(const std::string& name, const std::string& origin) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::i64, DType::i32}) {
    if (name == switchyard::name_of(type)) return type;
  }
  user_error("{}: dtype \"{}\" is unknown. {}", origin, name, kRemedy);
}

/// Elements of a box; nothing if they exceed an i64 or a size is negative.
std::optional<i64> volume(const std::vector<i64>& lo, const std::vector<i64>& hi) {
  i64 elements = 1;
  for (size_t d = 0; d < lo.size(); ++d) {
    if (lo[d] < 0 || hi[d] < lo[d] || __builtin_mul_overflow(elements, hi[d] - lo[d], &elements)) return std::nullopt;
  }
  return elements;
}

bool overlap(const ManifestEntry& a, const ManifestEntry& b) {
  for (size_t d = 0; d < a.lo.size(); ++d) {
    if (std::max(a.lo[d], b.lo[d]) >= std::min(a.hi[d], b.hi[d])) return false;
  }
  return true;
}

std::string box_text(const ManifestEntry& entry) {
  std::vector<std::string> ranges;
  for (size_t d = 0; d < entry.lo.size(); ++d) ranges.push_back(fmt::format("{}:{}", entry.lo[d], entry.hi[d]));
  return fmt::format("[{}] in {}", fmt::join(ranges, ", "), entry.file);
}

void check_entry(const Manifest& manifest, const ManifestEntry& entry, const std::vector<std::string>& parts,
                 const std::string& origin) {
  const auto shape = manifest.shapes.find(entry.tensor);
  if (shape == manifest.shapes.end() || std::ranges::find(parts, entry.part) == parts.end()) {
    user_error("{}: an entry for \"{}\" of \"{}\", which is not a part or tensor of this checkpoint. {}", origin,
               entry.part, entry.tensor, kRemedy);
  }
  bool inside =
      entry.lo.size() == shape->second.size() && entry.hi.size() == shape->second.size() && volume(entry.lo, entry.hi);
  for (size_t d = 0; inside && d < entry.hi.size(); ++d) inside = entry.hi[d] <= shape->second[d];
  if (!inside) {
    user_error("{}: \"{}\" of \"{}\": box from {} to {} does not lie in shape {}. {}", origin, entry.part, entry.tensor,
               entry.lo, entry.hi, shape->second, kRemedy);
  }
  // Shards are in the manifest's folder; a path could lead out of it.
  if (entry.file.empty() || entry.file != std::filesystem::path(entry.file).filename()) {
    user_error("{}: \"{}\" is not a file name. {}", origin, entry.file, kRemedy);
  }
}

/// Checks that the boxes of one part of one tensor cover `shape` once. With boxes sorted by first row, a box can only
/// overlap those that start before it ends.
void check_cover(std::vector<const ManifestEntry*> boxes, const std::vector<i64>& shape, const std::string& what,
                 const std::string& origin) {
  const auto total = volume(std::vector<i64>(shape.size(), 0), shape);
  if (!total) user_error("{}: {} has shape {}. {}", origin, what, shape, kRemedy);
  std::erase_if(boxes, [](const ManifestEntry* box) { return *volume(box->lo, box->hi) == 0; });
  std::sort(boxes.begin(), boxes.end(), [](const ManifestEntry* a, const ManifestEntry* b) { return a->lo < b->lo; });
  i64 covered = 0;
  for (size_t i = 0; i < boxes.size(); ++i) {
    covered += *volume(boxes[i]->lo, boxes[i]->hi);
    for (size_t j = i + 1; j < boxes.size() && (shape.empty() || boxes[j]->lo[0] < boxes[i]->hi[0]); ++j) {
      if (overlap(*boxes[i], *boxes[j])) {
        user_error("{}: {}: boxes {} and {} overlap. {}", origin, what, box_text(*boxes[i]), box_text(*boxes[j]),
                   kRemedy);
      }
    }
  }
  if (covered != *total)
    user_error("{}: {}: {} of {} elements are in no box. {}", origin, what, *total - covered, *total, kRemedy);
}

json json_of(const ManifestEntry& entry) {
  return {{"tensor", entry.tensor}, {"part", entry.part}, {"lo", entry.lo},
          {"hi", entry.hi},         {"file", entry.file}, {"key", entry.key}};
}

ManifestEntry entry_of(const json& entry) {
  return {.tensor = entry.at("tensor").get<std::string>(),
          .part = entry.at("part").get<std::string>(),
          .lo = entry.at("lo").get<std::vector<i64>>(),
          .hi = entry.at("hi").get<std::vector<i64>>(),
          .file = entry.at("file").get<std::string>(),
          .key = entry.at("key").get<std::string>()};
}

}  // namespace

std::string shard_name(int rank, int ranks) { return fmt::format("home-{:05}-of-{:05}.safetensors", rank, ranks); }

void write_manifest(const std::filesystem::path& checkpoint, const Manifest& manifest) {
  json entries = json::array(), residuals = json::array();
  for (const ManifestEntry& entry : manifest.entries) entries.push_back(json_of(entry));
  for (const ResidualEntry& residual : manifest.residuals) {
    residuals.push_back(json_of(residual.entry));
    residuals.back()["rank"] = residual.rank;
  }
  json object = {{"format", 1},
                 {"dtype", switchyard::name_of(manifest.dtype)},
                 {"parts", manifest.parts},
                 {"shapes", manifest.shapes},
                 {"entries", entries}};
  if (!residuals.empty()) object["residuals"] = std::move(residuals);
  write_text(manifest_path(checkpoint), object.dump(1) + "\n");
}

Manifest read_manifest(const std::filesystem::path& checkpoint) {
  const auto path = manifest_path(checkpoint);
  const std::string text = read_text(path);
  Manifest manifest;
  try {
    const json object = json::parse(text);
    manifest.dtype = dtype_from(object.at("dtype").get<std::string>(), path.string());
    object.at("parts").get_to(manifest.parts);
    object.at("shapes").get_to(manifest.shapes);
    for (const json& entry : object.at("entries")) manifest.entries.push_back(entry_of(entry));
    for (const json& residual : object.value("residuals", json::array()))
      manifest.residuals.push_back({residual.at("rank").get<int>(), entry_of(residual)});
  } catch (const json::exception& error) {
    user_error("{}: {}. {}", path.string(), error.what(), kRemedy);
  }
  validate(manifest, path.string());
  return manifest;
}

void validate(const Manifest& manifest, const std::string& origin) {
  std::map<std::pair<std::string, std::string>, std::vector<const ManifestEntry*>> boxes;
  for (const auto& [tensor, shape] : manifest.shapes) {
    for (const std::string& part : manifest.parts) boxes[{tensor, part}] = {};
  }
  for (const ManifestEntry& entry : manifest.entries) {
    check_entry(manifest, entry, manifest.parts, origin);
    boxes[{entry.tensor, entry.part}].push_back(&entry);
  }
  for (const ResidualEntry& residual : manifest.residuals)
    check_entry(manifest, residual.entry, {std::string(kResidual)}, origin);
  for (const auto& [key, list] : boxes) {
    check_cover(list, manifest.shapes.at(key.first), fmt::format("\"{}\" of \"{}\"", key.second, key.first), origin);
  }
}

void validate_shards(const std::filesystem::path& checkpoint, const Manifest& manifest) {
  std::map<std::string, TensorFile> shards;
  const auto check_shard = [&](const ManifestEntry& entry) {
    const auto path = checkpoint / "state" / entry.file;
    if (!shards.contains(entry.file)) {
      if (!std::filesystem::exists(path)) {
        user_error(
            "{} is missing, which the manifest names. If ranks run on several hosts, the run folder must be one that "
            "all of them share. {}",
            path.string(), kRemedy);
      }
      shards.emplace(entry.file, TensorFile::open(path));
    }
    const TensorInfo& info = shards.at(entry.file).info(entry.key);
    std::vector<i64> shape;
    for (size_t d = 0; d < entry.lo.size(); ++d) shape.push_back(entry.hi[d] - entry.lo[d]);
    if (info.shape != shape || info.dtype != stored_as(manifest.dtype)) {
      user_error("{}: tensor \"{}\" is {} {}, the manifest says {} {}. {}", path.string(), entry.key,
                 name_of(info.dtype), info.shape, name_of(stored_as(manifest.dtype)), shape, kRemedy);
    }
  };
  for (const ManifestEntry& entry : manifest.entries) check_shard(entry);
  for (const ResidualEntry& residual : manifest.residuals) check_shard(residual.entry);
}

void write_checksums(const std::filesystem::path& checkpoint, const std::string& shard, const Checksums& checksums) {
  write_text(checksums_of(checkpoint, shard), json{{kChecksums, checksums}}.dump(1) + "\n");
}

void verify_checksums(const std::filesystem::path& checkpoint, const std::string& shard) {
  const std::filesystem::path path = checksums_of(checkpoint, shard);
  if (!std::filesystem::exists(path)) return;
  Checksums checksums;
  try {
    json::parse(read_text(path)).at(kChecksums).get_to(checksums);
  } catch (const json::exception& error) {
    user_error("{} is damaged: {}.", path.string(), error.what());
  }
  const TensorFile file = TensorFile::open(checkpoint / "state" / shard);
  for (const auto& [key, checksum] : checksums)
    if (crc32c(file.data(key)) != checksum)
      user_error("{} is damaged: the checksum of \"{}\" differs.", file.path().string(), key);
}

}  // namespace switchyard::files
