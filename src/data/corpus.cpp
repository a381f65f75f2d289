#include "data/corpus.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.hpp"
#include "base/file_sample.hpp"

namespace switchyard::data {
namespace {

template <class T>
i64 token(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Path of the two files without their ending.
std::filesystem::path prefix_of(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return path / "corpus";
  if (path.extension() == ".bin" || path.extension() == ".idx") return std::filesystem::path(path).replace_extension();
  return path;
}

// A corpus that Megatron made has no meta.json.
nlohmann::json read_meta(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return nlohmann::json::object();
  std::ifstream file(path);
  nlohmann::json json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("vocab_size") || !json["vocab_size"].is_number_integer() ||
      json["vocab_size"].get<i64>() < 1)
    user_error("{}: no readable vocab_size. Recreate it with `switchyard data prepare --force`, or delete the file.",
               path.string());
  return json;
}

CorpusMeta meta_of(const nlohmann::json& json) {
  CorpusMeta meta;
  if (json.contains("vocab_size")) meta.vocab_size = json["vocab_size"].get<i64>();
  if (json.contains("largest_id") && json["largest_id"].is_number_integer())
    meta.largest_id = json["largest_id"].get<i64>();
  if (json.contains("tokenizer_sha256") && json["tokenizer_sha256"].is_string())
    meta.tokenizer = json["tokenizer_sha256"].get<std::string>();
  return meta;
}

}  // namespace

i64 Tokens::operator[](i64 position) const {
  const std::byte* at = bytes_.data() + position * size_of(type_);
  switch (type_) {
    case TokenType::u8:
      return token<std::uint8_t>(at);
    case TokenType::i8:
      return token<std::int8_t>(at);
    case TokenType::i16:
      return token<std::int16_t>(at);
    case TokenType::u16:
      return token<std::uint16_t>(at);
    case TokenType::i32:
      return token<std::int32_t>(at);
    case TokenType::i64:
      return token<std::int64_t>(at);
  }
  throw InternalError("unknown token type");
}

Corpus::Corpus(std::string origin, MappedFile data, MappedFile index_file)
    : origin_(std::move(origin)),
      data_(std::move(data)),
      index_file_(std::move(index_file)),
      index_(parse_index(index_file_.bytes(), origin_ + ".idx", static_cast<i64>(data_.bytes().size()))) {}

i64 Corpus::all_tokens() const { return static_cast<i64>(data_.bytes().size()) / size_of(index_.type()); }

Corpus Corpus::open(const std::filesystem::path& path) {
  constexpr const char* kRemedy = "Give the folder that `switchyard data prepare` wrote, in a job as data.path.";
  const std::filesystem::path prefix = prefix_of(path);
  const std::string origin = prefix.string();
  if (prefix == path && !std::filesystem::exists(origin + ".bin"))
    user_error("there is no data at {}: no such folder, and no {}.bin. {}", origin, origin, kRemedy);
  MappedFile data(origin + ".bin", kRemedy), index(origin + ".idx", kRemedy);
  Corpus corpus(origin, std::move(data), std::move(index));
  const nlohmann::json meta = read_meta(prefix.parent_path() / "meta.json");
  corpus.meta_ = meta_of(meta);
  const std::string mask = origin + ".mask", name = std::filesystem::path(mask).filename().string();
  const bool prepared = meta.contains("bytes") && meta["bytes"].contains(name);
  if (prepared || std::filesystem::exists(mask)) corpus.take_mask(MappedFile(mask, kRemedy));
  return corpus;
}

void Corpus::take_mask(MappedFile mask) {
  const i64 tokens = all_tokens();
  if (std::cmp_not_equal(mask.bytes().size(), tokens))
    user_error(
        "{0}.mask: {1} bytes, but {0}.bin has {2} tokens: it is of other data. Prepare the data again with "
        "`switchyard data prepare --force`.",
        origin_, mask.bytes().size(), tokens);
  mask_ = std::move(mask);
}

Tokens Corpus::tokens(i64 document) const {
  const auto offset = static_cast<std::size_t>(index_.offset(document));
  const auto bytes = static_cast<std::size_t>(index_.length(document) * size_of(index_.type()));
  return {index_.type(), data_.bytes().subspan(offset, bytes)};
}

void Corpus::add_to(Fingerprint& fingerprint) const {
  for (const char* ending : {".bin", ".idx"}) add_sample(fingerprint, origin_ + ending);
  if (mask_) add_sample(fingerprint, origin_ + ".mask");
}

void Corpus::expect_vocabulary(i64 vocab) const {
  if (meta_.largest_id && *meta_.largest_id >= vocab)
    user_error("{}.bin: its largest token is {}, outside the vocabulary of {}. {}", origin_, *meta_.largest_id, vocab,
               remedy());
}

std::string Corpus::remedy() const {
  return fmt::format(
      "Prepare it with the model's tokenizer; for a new model, set model.vocab_size to the tokenizer's size{}.",
      meta_.vocab_size ? fmt::format(" ({})", *meta_.vocab_size) : "");
}

void Corpus::read(i64 document, i64 first, i64 stride, i64 vocab, std::span<i64> out) const {
  const Tokens all = tokens(document);
  const auto count = static_cast<i64>(out.size());
  check(count == 0 || (first >= 0 && stride >= 1 && first + (count - 1) * stride < all.size()),
        "tokens {} + {} * {} of document {} of {} tokens", first, count, stride, document, all.size());
  for (i64 i = 0; i < count; ++i) {
    const i64 id = all[first + i * stride];
    if (id < 0 || id >= vocab)
      user_error("{}.bin: token {} of document {} is {}, outside the vocabulary of {}. {}", origin_, first + i * stride,
                 document, id, vocab, remedy());
    out[static_cast<std::size_t>(i)] = id;
  }
}

std::span<const std::byte> Corpus::mask(i64 document, i64 first, i64 count) const {
  check(masked() && first >= 0 && count >= 0 && first + count <= length(document),
        "mask of tokens {} + {} of document {} of {} tokens", first, count, document, length(document));
  const i64 begin = index_.offset(document) / size_of(index_.type()) + first;
  const auto bytes = mask_->bytes().subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] > std::byte{1})
      user_error("{}.mask: token {} of document {} is {}, neither 0 nor 1. Prepare the data again.", origin_,
                 first + static_cast<i64>(i), document, std::to_integer<int>(bytes[i]));
  return bytes;
}

void Corpus::read_mask(i64 document, i64 first, std::span<std::uint8_t> out) const {
  const auto bytes = mask(document, first, static_cast<i64>(out.size()));
  std::memcpy(out.data(), bytes.data(), bytes.size());
}

i64 Corpus::labels(i64 document, i64 first, i64 count) const {
  if (!masked()) return count - 1;
  const auto bytes = mask(document, first + 1, count - 1);
  return std::count(bytes.begin(), bytes.end(), std::byte{1});
}

}  // namespace switchyard::data
