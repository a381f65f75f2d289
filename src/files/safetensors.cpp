#include "files/safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/errors.hpp"
#include "base/file_sample.hpp"

namespace switchyard::files {

namespace {

using nlohmann::json;

constexpr i64 kLengthBytes = 8;
constexpr i64 kMostHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::string_view kPointer =
    "version https://git-lfs";  // how the text that Git LFS puts in place of a file begins
constexpr const char* kDamaged = "The file is damaged or not complete: copy or download it again.";

/// A JSON number that fits; nothing for another type, sign or size.
std::optional<i64> count_from(const json& value) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > INT64_MAX) return std::nullopt;
  return static_cast<i64>(value.get<std::uint64_t>());
}

std::optional<std::vector<i64>> counts_from(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return std::nullopt;
  std::vector<i64> counts;
  for (const json& value : *found) {
    const auto count = count_from(value);
    if (!count) return std::nullopt;
    counts.push_back(*count);
  }
  return counts;
}

/// Bytes of a tensor; nothing if they exceed an i64.
std::optional<i64> bytes_of(const std::vector<i64>& shape, FileDType dtype) {
  i64 bytes = size_of(dtype);
  for (const i64 size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

/// Offsets stay relative to the end of the header.
TensorInfo tensor_from(const std::string& name, const json& value, const std::string& origin) {
  const auto shape = value.is_object() ? counts_from(value, "shape") : std::nullopt;
  const auto offsets = value.is_object() ? counts_from(value, "data_offsets") : std::nullopt;
  const bool typed = value.is_object() && value.contains("dtype") && value["dtype"].is_string();
  if (!shape || !offsets || offsets->size() != 2 || !typed) {
    user_error("{}: tensor \"{}\" needs a \"dtype\" (text), a \"shape\" and two \"data_offsets\" (whole numbers). {}",
               origin, name, kDamaged);
  }
  const std::string type_name = value["dtype"].get<std::string>();
  const auto dtype = file_dtype_from(type_name);
  if (!dtype) {
    user_error("{}: tensor \"{}\" has dtype \"{}\". Supported are F64, F32, BF16, F16, I64 and I32: convert the file.",
               origin, name, type_name);
  }
  const i64 begin = (*offsets)[0], end = (*offsets)[1];
  const auto bytes = bytes_of(*shape, *dtype);
  if (!bytes || begin > end || end - begin != *bytes) {
    user_error("{}: tensor \"{}\": data_offsets [{}, {}] do not fit shape {} of {}. {}", origin, name, begin, end,
               *shape, type_name, kDamaged);
  }
  return {.dtype = *dtype, .shape = *shape, .begin = begin, .end = end};
}

std::map<std::string, std::string> metadata_from(const json& value, const std::string& origin) {
  std::map<std::string, std::string> metadata;
  if (!value.is_object()) user_error("{}: \"__metadata__\" must be an object of strings. {}", origin, kDamaged);
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      user_error("{}: \"__metadata__\" must be an object of strings; \"{}\" is not a string. {}", origin, key,
                 kDamaged);
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

/// Checks that tensors follow each other without overlap or hole, and that the file ends with the last one.
void check_places(const std::map<std::string, TensorInfo>& tensors, i64 data_bytes, const std::string& origin) {
  std::vector<std::pair<const std::string*, const TensorInfo*>> order;
  for (const auto& [name, info] : tensors) order.emplace_back(&name, &info);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  i64 reached = 0;
  for (const auto& [name, info] : order) {
    if (info->begin != reached) {
      user_error("{}: tensor \"{}\" starts at data byte {}, the tensor before it ends at {}: {}. {}", origin, *name,
                 info->begin, reached, info->begin < reached ? "they overlap" : "there is a hole", kDamaged);
    }
    reached = info->end;
    if (reached > data_bytes) {
      user_error("{}: tensor \"{}\" ends at data byte {}, the file at {}: it was cut off. {}", origin, *name, reached,
                 data_bytes, kDamaged);
    }
  }
  if (reached != data_bytes)
    user_error("{}: {} bytes follow the last tensor. {}", origin, data_bytes - reached, kDamaged);
}

json parse_json(std::span<const std::byte> bytes, const std::string& origin) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  json header = json::parse(text, text + bytes.size(), nullptr, false);
  if (!header.is_object()) user_error("{}: the safetensors header is not a JSON object. {}", origin, kDamaged);
  return header;
}

}  // namespace

i64 TensorInfo::elements() const { return (end - begin) / size_of(dtype); }

TensorHeader parse_header(std::span<const std::byte> prefix, i64 file_size, const std::string& origin) {
  if (std::string_view(reinterpret_cast<const char*>(prefix.data()), prefix.size()).starts_with(kPointer))
    user_error("{}: it is only a pointer to the file, by Git LFS. Fetch the file with git lfs pull.", origin);
  if (file_size < kLengthBytes || prefix.size() < static_cast<size_t>(kLengthBytes)) {
    user_error("{}: {} bytes are too few for a safetensors file. {}", origin, file_size, kDamaged);
  }
  std::uint64_t length = 0;
  for (size_t i = 0; i < static_cast<size_t>(kLengthBytes); ++i)
    length |= static_cast<std::uint64_t>(prefix[i]) << (8 * i);
  const i64 most =
      std::min({kMostHeaderBytes, file_size - kLengthBytes, static_cast<i64>(prefix.size()) - kLengthBytes});
  if (length > static_cast<std::uint64_t>(most)) {
    user_error("{}: the header's length is {} bytes, at most {} are possible. Is it a safetensors file? {}", origin,
               length, most, kDamaged);
  }
  const json parsed =
      parse_json(prefix.subspan(static_cast<size_t>(kLengthBytes), static_cast<size_t>(length)), origin);
  TensorHeader header;
  for (const auto& [name, value] : parsed.items()) {
    if (name == "__metadata__") {
      header.metadata = metadata_from(value, origin);
    } else {
      header.tensors[name] = tensor_from(name, value, origin);
    }
  }
  const i64 data_begin = kLengthBytes + static_cast<i64>(length);
  check_places(header.tensors, file_size - data_begin, origin);
  for (auto& [name, info] : header.tensors) {
    info.begin += data_begin;
    info.end += data_begin;
  }
  return header;
}

TensorFile TensorFile::open(const std::filesystem::path& path) {
  TensorFile result;
  result.path_ = path;
  result.file_ = MappedFile(path);
  const auto bytes = result.file_.bytes();
  result.header_ = parse_header(bytes, static_cast<i64>(bytes.size()), path.string());
  return result;
}

std::vector<std::string> TensorFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, info] : header_.tensors) names.push_back(name);
  return names;
}

bool TensorFile::contains(const std::string& name) const { return header_.tensors.contains(name); }

const TensorInfo& TensorFile::info(const std::string& name) const {
  const auto found = header_.tensors.find(name);
  if (found == header_.tensors.end()) {
    user_error("{}: there is no tensor \"{}\" among its {}. Is it the file of another model?", path_.string(), name,
               header_.tensors.size());
  }
  return found->second;
}

std::span<const std::byte> TensorFile::data(const std::string& name) const {
  const TensorInfo& found = info(name);
  return file_.bytes().subspan(static_cast<size_t>(found.begin), static_cast<size_t>(found.end - found.begin));
}

namespace {

/// Tensor name -> file name, from model.safetensors.index.json.
std::map<std::string, std::string> weight_map(const std::filesystem::path& path) {
  const json index = json::parse(read_text(path), nullptr, false);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    user_error("{}: it must be a JSON object with a \"weight_map\". {}", path.string(), kDamaged);
  }
  std::map<std::string, std::string> result;
  for (const auto& [name, file] : index["weight_map"].items()) {
    const std::string file_name = file.is_string() ? file.get<std::string>() : "";
    // A shard is in the folder of its index; a path could lead out of it.
    if (file_name.empty() || file_name != std::filesystem::path(file_name).filename()) {
      user_error("{}: tensor \"{}\" must name a file of the same folder. {}", path.string(), name, kDamaged);
    }
    result[name] = file_name;
  }
  return result;
}

}  // namespace

TensorFolder TensorFolder::open(const std::filesystem::path& folder) {
  TensorFolder result;
  result.folder_ = folder;
  if (std::filesystem::exists(folder / "model.safetensors")) {
    result.files_.push_back(TensorFile::open(folder / "model.safetensors"));
    for (const std::string& name : result.files_[0].names()) result.where_[name] = 0;
    return result;
  }
  const auto index = folder / "model.safetensors.index.json";
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
    if (!std::filesystem::exists(index) && std::filesystem::exists(folder / name))
      user_error(
          "{}: its weights are in {}, and not in safetensors. Write them so in Python, with the package transformers: "
          "from transformers import AutoModelForCausalLM; AutoModelForCausalLM.from_pretrained('{}', dtype='auto')"
          ".save_pretrained(FOLDER)",
          folder.string(), name, folder.string());
  if (!std::filesystem::exists(index)) {
    user_error(
        "{}: neither model.safetensors nor model.safetensors.index.json is there. Give a Hugging Face folder with "
        "safetensors weights.",
        folder.string());
  }
  std::map<std::string, size_t> number;
  for (const auto& [name, file] : weight_map(index)) {
    if (!number.contains(file)) {
      if (!std::filesystem::exists(folder / file)) {
        user_error("{}: shard {}, which {} names for \"{}\", is missing. Copy or download it.", folder.string(), file,
                   index.filename().string(), name);
      }
      number[file] = result.files_.size();
      result.files_.push_back(TensorFile::open(folder / file));
    }
    result.files_[number[file]].info(name);
    result.where_[name] = number[file];
  }
  return result;
}

std::vector<std::string> TensorFolder::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : where_) names.push_back(name);
  return names;
}

bool TensorFolder::contains(const std::string& name) const { return where_.contains(name); }

const TensorFile& TensorFolder::file_of(const std::string& name) const {
  const auto found = where_.find(name);
  if (found == where_.end()) {
    user_error("{}: there is no tensor \"{}\" among its {}. Does config.json describe these weights?", folder_.string(),
               name, where_.size());
  }
  return files_[found->second];
}

const TensorInfo& TensorFolder::info(const std::string& name) const { return file_of(name).info(name); }

std::span<const std::byte> TensorFolder::data(const std::string& name) const { return file_of(name).data(name); }

void TensorFolder::add_to(Fingerprint& fingerprint) const {
  for (const TensorFile& file : files_) add_sample(fingerprint, file.path());
}

}  // namespace switchyard::files
