#include "data/index.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/errors.hpp"

namespace switchyard::data {
namespace {

static_assert(std::endian::native == std::endian::little, "index files are little-endian");

constexpr std::array<char, 9> kMagic{'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr std::size_t kHeaderBytes = kMagic.size() + 8 + 1 + 8 + 8;
constexpr const char* kRemedy = "Recreate it with `switchyard data prepare --force`.";

// The fields of the file are unaligned.
template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

TokenType token_type(unsigned char code, std::string_view origin) {
  switch (code) {
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
    case 8:
      return static_cast<TokenType>(code);
    case 6:
    case 7:
      user_error("{}: type code {} is floating point, tokens are integers. {}", origin, code, kRemedy);
    default:
      user_error("{}: type code {} is unknown; 8 (uint16) and 4 (int32) are usual. {}", origin, code, kRemedy);
  }
}

}  // namespace

i64 size_of(TokenType type) {
  switch (type) {
    case TokenType::u8:
    case TokenType::i8:
      return 1;
    case TokenType::i16:
    case TokenType::u16:
      return 2;
    case TokenType::i32:
      return 4;
    case TokenType::i64:
      return 8;
  }
  throw InternalError("unknown token type");
}

i64 Index::size(i64 sequence) const { return load<std::int32_t>(sizes_ + 4 * sequence); }
i64 Index::pointer(i64 sequence) const { return load<i64>(pointers_ + 8 * sequence); }
i64 Index::mark(i64 document) const { return load<i64>(marks_ + 8 * document); }

i64 Index::length(i64 document) const {
  check(document >= 0 && document < documents_, "document {} of {}", document, documents_);
  i64 tokens = 0;
  for (i64 sequence = mark(document); sequence < mark(document + 1); ++sequence) tokens += size(sequence);
  return tokens;
}

i64 Index::offset(i64 document) const {
  check(document >= 0 && document < documents_, "document {} of {}", document, documents_);
  return pointer(mark(document));
}

void Index::check_documents(std::string_view origin, i64 data_bytes) const {
  if (mark(0) != 0 || mark(documents_) != sequences_)
    user_error("{}: the documents are sequences {} to {} of {}: some belong to none. {}", origin, mark(0),
               mark(documents_), sequences_, kRemedy);
  const i64 token_bytes = size_of(type_);
  i64 all_tokens = 0;
  for (i64 document = 0; document < documents_; ++document) {
    const i64 first = mark(document), last = mark(document + 1);
    if (first < 0 || last < first || last > sequences_)
      user_error("{}: document {} is sequences {} to {} of {}. {}", origin, document, first, last, sequences_, kRemedy);
    i64 tokens = 0;
    for (i64 sequence = first; sequence < last; ++sequence) {
      const i64 count = size(sequence), begin = pointer(sequence);
      if (count < 0) user_error("{}: sequence {} has {} tokens. {}", origin, sequence, count, kRemedy);
      if (begin < 0 || begin > data_bytes || count > (data_bytes - begin) / token_bytes)
        user_error(
            "{}: sequence {} ({} tokens at byte {}) is outside the .bin file of {} bytes: cut short, or of another "
            "index. {}",
            origin, sequence, count, begin, data_bytes, kRemedy);
      if (begin % token_bytes != 0)
        user_error("{}: sequence {} starts at byte {}, not at a token of {} bytes. {}", origin, sequence, begin,
                   token_bytes, kRemedy);
      if (sequence > first && begin != pointer(sequence - 1) + token_bytes * size(sequence - 1))
        user_error("{}: document {} is torn: sequence {} does not follow the one before. {}", origin, document,
                   sequence, kRemedy);
      tokens += count;
    }
    if (tokens == 0)
      user_error("{}: document {} is empty. Recreate the files without empty documents.", origin, document);
    all_tokens += tokens;
  }
  if (all_tokens * token_bytes != data_bytes)
    user_error(
        "{}: its documents have {} tokens of {} bytes, but the .bin file has {} bytes: it is of another index. {}",
        origin, all_tokens, token_bytes, data_bytes, kRemedy);
}

Index parse_index(std::span<const std::byte> bytes, std::string_view origin, i64 data_bytes) {
  if (bytes.size() < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    user_error(
        "{}: not an index of a token file (it must start with MMIDIDX). Give the folder that `switchyard data prepare` "
        "wrote.",
        origin);
  if (bytes.size() < kHeaderBytes)
    user_error("{}: cut short: {} bytes, the header has {}. {}", origin, bytes.size(), kHeaderBytes, kRemedy);
  const std::byte* at = bytes.data() + kMagic.size();
  const auto version = load<std::uint64_t>(at);
  if (version != 1) user_error("{}: version {} of the index is unknown, only 1 is. {}", origin, version, kRemedy);
  Index index;
  index.type_ = token_type(load<unsigned char>(at + 8), origin);
  const auto sequences = load<std::uint64_t>(at + 9), marks = load<std::uint64_t>(at + 17);
  // Compared without products, which could overflow: 12 bytes a sequence, 8 a mark.
  const std::uint64_t rest = bytes.size() - kHeaderBytes;
  if (sequences > rest / 12 || marks > (rest - 12 * sequences) / 8)
    user_error("{}: cut short: {} bytes for {} sequences and {} document marks. {}", origin, bytes.size(), sequences,
               marks, kRemedy);
  if (rest != 12 * sequences + 8 * marks)
    user_error("{}: {} bytes follow the end of the index. {}", origin, rest - 12 * sequences - 8 * marks, kRemedy);
  if (marks == 0) user_error("{}: the list of documents is empty; it must at least hold its end. {}", origin, kRemedy);
  index.sequences_ = static_cast<i64>(sequences);
  index.documents_ = static_cast<i64>(marks) - 1;
  index.sizes_ = bytes.data() + kHeaderBytes;
  index.pointers_ = index.sizes_ + 4 * sequences;
  index.marks_ = index.pointers_ + 8 * sequences;
  index.check_documents(origin, data_bytes);
  return index;
}

}  // namespace switchyard::data
