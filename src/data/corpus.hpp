// The tokens a run trains on: a pair of .bin and .idx files, memory-mapped.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "base/dtype.hpp"
#include "base/mapped_file.hpp"
#include "data/index.hpp"

namespace switchyard::data {

/// The tokens of one document, whatever their stored type; valid as long as the corpus.
class Tokens {
 public:
  Tokens(TokenType type, std::span<const std::byte> bytes) : type_(type), bytes_(bytes) {}
  i64 size() const { return static_cast<i64>(bytes_.size()) / size_of(type_); }
  /// Unchecked, as for a span.
  i64 operator[](i64 position) const;

 private:
  TokenType type_;
  std::span<const std::byte> bytes_;
};

/// Immutable and safe to share between threads.
class Corpus {
 public:
  /// path   the folder that holds corpus.bin and corpus.idx, or their path without (or with) the ending
  /// errors UserError naming the file: missing, unreadable, not such files (see parse_index)
  static Corpus open(const std::filesystem::path& path);

  i64 documents() const { return index_.documents(); }
  /// Tokens of a document, 1 or more.
  i64 length(i64 document) const { return index_.length(document); }
  Tokens tokens(i64 document) const;
  /// Copies tokens first, first + stride, ... of a document.
  /// errors  UserError naming document, position and id if one is not in [0, vocab)
  void read(i64 document, i64 first, i64 stride, i64 vocab, std::span<i64> out) const;
  /// Vocabulary size of the tokenizer, from meta.json beside the files; nothing without one.
  std::optional<i64> vocab_size() const { return vocab_size_; }
  /// Where it came from, for messages: the path without ending.
  const std::string& origin() const { return origin_; }

 private:
  Corpus(std::string origin, MappedFile data, MappedFile index_file);

  std::string origin_;
  MappedFile data_, index_file_;
  Index index_;
  std::optional<i64> vocab_size_;
};

}  // namespace switchyard::data
