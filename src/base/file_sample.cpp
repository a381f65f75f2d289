#include "base/file_sample.hpp"

#include <fstream>
#include <string>

#include "base/errors.hpp"

namespace switchyard {

void add_sample(Fingerprint& fingerprint, const std::filesystem::path& path) {
  constexpr i64 kPieces = 64, kPiece = 1024;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const i64 size = file ? static_cast<i64>(file.tellg()) : 0;
  fingerprint.add(size);
  const i64 pieces = size > kPieces * kPiece ? kPieces : 1;
  std::string piece(static_cast<size_t>(pieces == 1 ? size : kPiece), '\0');
  for (i64 number = 0; number < pieces; ++number) {
    const i64 between = pieces == 1 ? 0 : (size - kPiece) * number / (pieces - 1);
    file.seekg(between);
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    fingerprint.add(std::as_bytes(std::span(piece)));
  }
  if (!file) user_error("{}: can't read the file. Check the path and its permissions.", path.string());
}

}  // namespace switchyard
