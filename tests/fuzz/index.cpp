// Any bytes as an .idx file of a corpus: a UserError, or documents that lie inside the .bin file.
#include "data/index.hpp"

#include <cstdint>

#include "base/errors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  using namespace switchyard;
  // The last byte stands for the size of the .bin file, so that small indices can fit it.
  if (size == 0) return 0;
  const i64 data_bytes = data[size - 1];
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size - 1);
  try {
    const auto index = data::parse_index(bytes, "fuzz", data_bytes);
    for (i64 document = 0; document < index.documents(); ++document) {
      const i64 begin = index.offset(document), end = begin + index.length(document) * data::size_of(index.type());
      check(0 <= begin && begin < end && end <= data_bytes, "document {} lies outside", document);
    }
  } catch (const UserError&) {
  }
  return 0;
}
