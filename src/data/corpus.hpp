// The tokens a run trains on: a pair of .bin and .idx files, memory-mapped, and a .mask file where not all tokens
// count.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "base/dtype.hpp"
#include "base/fingerprint.hpp"
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

/// What meta.json says, as far as it is there. vocab_size: the tokenizer's; largest_id: of the corpus's tokens;
/// tokenizer: checksum of tokenizer.json.
struct CorpusMeta {
  std::optional<i64> vocab_size, largest_id;
  std::optional<std::string> tokenizer;
};

/// Immutable and safe to share between threads.
class Corpus {
 public:
  /// path   the folder that holds corpus.bin and corpus.idx, or their path without (or with) the ending
  /// errors UserError naming the file: missing, unreadable, not such files (see parse_index), a mask of another size
  static Corpus open(const std::filesystem::path& path);

  i64 documents() const { return index_.documents(); }
  /// Tokens of all documents.
  i64 all_tokens() const;
  /// Tokens of a document, 1 or more.
  i64 length(i64 document) const { return index_.length(document); }
  Tokens tokens(i64 document) const;
  /// errors  UserError if the files say that a token isn't in [0, vocab). Files of other programs don't say it.
  void expect_vocabulary(i64 vocab) const;
  /// Copies tokens first, first + stride, ... of a document.
  /// errors  UserError naming document, position and id if one is not in [0, vocab)
  void read(i64 document, i64 first, i64 stride, i64 vocab, std::span<i64> out) const;
  /// Whether not all tokens count in the loss.
  bool masked() const { return mask_.has_value(); }
  /// Whether each of the tokens first, first + 1, ... of a document counts as a label, 1 or 0; only of a corpus that is
  /// masked.
  /// errors  UserError naming document and position of a byte that is neither
  void read_mask(i64 document, i64 first, std::span<std::uint8_t> out) const;
  /// Labels of a sequence of so many tokens: those after its first one that count.
  i64 labels(i64 document, i64 first, i64 count) const;
  const CorpusMeta& meta() const { return meta_; }
  /// Adds samples of its files, by which ranks recognize the same corpus.
  void add_to(Fingerprint& fingerprint) const;
  /// Where it came from, for messages: the path without ending.
  const std::string& origin() const { return origin_; }
  /// The folder of its files.
  std::string folder() const { return std::filesystem::path(origin_).parent_path().string(); }

 private:
  Corpus(std::string origin, MappedFile data, MappedFile index_file);
  void take_mask(MappedFile mask);
  /// How a vocabulary is enlarged that lacks a token.
  std::string remedy() const;
  std::span<const std::byte> mask(i64 document, i64 first, i64 count) const;

  std::string origin_;
  MappedFile data_, index_file_;
  Index index_;
  std::optional<MappedFile> mask_;  // a byte for each token of .bin
  CorpusMeta meta_;
};

}  // namespace switchyard::data
