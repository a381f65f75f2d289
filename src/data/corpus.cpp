#include "data/corpus.hpp"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.hpp"

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

std::optional<i64> read_vocab_size(const std::filesystem::path& meta) {
  if (!std::filesystem::exists(meta)) return std::nullopt;
  std::ifstream file(meta);
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("vocab_size") || !json["vocab_size"].is_number_integer() ||
      json["vocab_size"].get<i64>() < 1)
    user_error("{}: no readable vocab_size. Recreate it with `switchyard data prepare --force`, or delete the file.",
               meta.string());
  return json["vocab_size"].get<i64>();
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

Corpus Corpus::open(const std::filesystem::path& path) {
  constexpr const char* kRemedy = "Give the folder that `switchyard data prepare` wrote, in a job as data.path.";
  const std::filesystem::path prefix = prefix_of(path);
  const std::string origin = prefix.string();
  if (prefix == path && !std::filesystem::exists(origin + ".bin"))
    user_error("there is no data at {}: no such folder, and no {}.bin. {}", origin, origin, kRemedy);
  MappedFile data(origin + ".bin", kRemedy), index(origin + ".idx", kRemedy);
  Corpus corpus(origin, std::move(data), std::move(index));
  corpus.vocab_size_ = read_vocab_size(prefix.parent_path() / "meta.json");
  return corpus;
}

Tokens Corpus::tokens(i64 document) const {
  const auto offset = static_cast<std::size_t>(index_.offset(document));
  const auto bytes = static_cast<std::size_t>(index_.length(document) * size_of(index_.type()));
  return {index_.type(), data_.bytes().subspan(offset, bytes)};
}

void Corpus::read(i64 document, i64 first, i64 stride, i64 vocab, std::span<i64> out) const {
  const Tokens all = tokens(document);
  const auto count = static_cast<i64>(out.size());
  check(count == 0 || (first >= 0 && stride >= 1 && first + (count - 1) * stride < all.size()),
        "tokens {} + {} * {} of document {} of {} tokens", first, count, stride, document, all.size());
  for (i64 i = 0; i < count; ++i) {
    const i64 id = all[first + i * stride];
    if (id < 0 || id >= vocab)
      user_error(
          "{}.bin: token {} of document {} is {}, outside the vocabulary of {}. Set model.vocab_size to the "
          "tokenizer's size{}.",
          origin_, first + i * stride, document, id, vocab, vocab_size_ ? fmt::format(" ({})", *vocab_size_) : "");
    out[static_cast<std::size_t>(i)] = id;
  }
}

}  // namespace switchyard::data
