// Any bytes as a safetensors file: a UserError, or tensors that lie inside the file.
#include <cstdint>

#include "base/errors.hpp"
#include "files/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  using namespace switchyard;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const auto header = files::parse_header(bytes, static_cast<i64>(size), "fuzz");
    for (const auto& [name, info] : header.tensors) {
      check(8 <= info.begin && info.begin <= info.end && info.end <= static_cast<i64>(size), "{} lies outside", name);
      check(info.elements() * files::size_of(info.dtype) == info.end - info.begin, "{} has a torn element", name);
    }
  } catch (const UserError&) {
  }
  return 0;
}
