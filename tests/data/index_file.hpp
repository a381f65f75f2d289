// Writes small token files for the tests of this layer.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "../scratch.hpp"
#include "base/dtype.hpp"

namespace switchyard::data {

/// The fields of an .idx file, in order; each may be damaged before they are written.
struct IndexFile {
  std::string magic{"MMIDIDX\0\0", 9};
  std::uint64_t version = 1;
  std::uint8_t code = 8;
  std::vector<std::int32_t> sizes;
  std::vector<i64> pointers;
  std::vector<i64> marks;

  /// One sequence a document, one after another, of tokens of token_bytes bytes.
  static IndexFile of_lengths(const std::vector<i64>& lengths, i64 token_bytes = 2) {
    IndexFile file;
    file.marks.push_back(0);
    i64 at = 0;
    for (const i64 length : lengths) {
      file.sizes.push_back(static_cast<std::int32_t>(length));
      file.pointers.push_back(at);
      at += length * token_bytes;
      file.marks.push_back(static_cast<i64>(file.sizes.size()));
    }
    return file;
  }

  std::string bytes() const {
    std::string out = magic;
    const auto put = [&](auto value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); };
    put(version);
    put(code);
    put(static_cast<std::uint64_t>(sizes.size()));
    put(static_cast<std::uint64_t>(marks.size()));
    for (const auto size : sizes) put(size);
    for (const auto pointer : pointers) put(pointer);
    for (const auto mark : marks) put(mark);
    return out;
  }
};

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Tokens as bytes of type T.
template <class T>
std::string token_bytes(const std::vector<i64>& tokens) {
  std::string out;
  for (const i64 token : tokens) {
    const T value = static_cast<T>(token);
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return out;
}

/// A corpus of uint16 tokens in folder: token i of document d is 10 * d + i.
inline void write_corpus(const std::filesystem::path& folder, const std::vector<i64>& lengths) {
  std::vector<i64> tokens;
  for (std::size_t d = 0; d < lengths.size(); ++d)
    for (i64 i = 0; i < lengths[d]; ++i) tokens.push_back(static_cast<i64>(10 * d) + i);
  write_file(folder / "corpus.idx", IndexFile::of_lengths(lengths).bytes());
  write_file(folder / "corpus.bin", token_bytes<std::uint16_t>(tokens));
}

/// The mask of that corpus: whether each token counts.
inline void write_mask(const std::filesystem::path& folder, const std::vector<int>& counts) {
  write_file(folder / "corpus.mask", std::string(counts.begin(), counts.end()));
}

}  // namespace switchyard::data
