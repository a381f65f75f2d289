// The .idx file of Megatron's indexed dataset: where each document of the .bin file lies.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/dtype.hpp"

namespace switchyard::data {

/// How a token is stored. Values are the codes in the file.
enum class TokenType : unsigned char { u8 = 1, i8 = 2, i16 = 3, i32 = 4, i64 = 5, u16 = 8 };

/// Bytes of one token.
i64 size_of(TokenType type);

/// A view of a parsed index; valid as long as its bytes. Layout of the file, little-endian and unaligned: magic
/// "MMIDIDX\0\0", version u64 = 1, type code u8, sequences u64, document marks u64, tokens per sequence i32[], byte
/// offsets in .bin i64[], first sequence of each document i64[] with one mark more than documents.
class Index {
 public:
  TokenType type() const { return type_; }
  i64 documents() const { return documents_; }
  /// Tokens of a document, 1 or more: the sum over its sequences.
  i64 length(i64 document) const;
  /// Offset of a document's first byte in the .bin file.
  i64 offset(i64 document) const;

 private:
  friend Index parse_index(std::span<const std::byte>, std::string_view, i64);
  i64 size(i64 sequence) const;
  i64 pointer(i64 sequence) const;
  i64 mark(i64 document) const;
  void check_documents(std::string_view origin, i64 data_bytes) const;

  TokenType type_ = TokenType::u16;
  i64 sequences_ = 0, documents_ = 0;
  const std::byte *sizes_ = nullptr, *pointers_ = nullptr, *marks_ = nullptr;
};

/// Reads an index and checks every field: afterwards each document is one contiguous, aligned range of the .bin file,
/// and together they are as long as the file.
/// origin      file name for messages
/// data_bytes  size of the .bin file
/// errors      UserError naming file, field and remedy: not such a file, other version or type, cut short, bytes after
///             the end, counts or sizes out of range, documents that reach beyond the .bin file, are not contiguous,
///             are empty, or have fewer tokens than the .bin file
Index parse_index(std::span<const std::byte> bytes, std::string_view origin, i64 data_bytes);

}  // namespace switchyard::data
