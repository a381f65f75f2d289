#include "files/crc32c.hpp"

#include <array>

namespace switchyard::files {

namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, bits reversed

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    table[byte] = value;
  }
  return table;
}

constexpr auto kTable = make_table();

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  std::uint32_t value = ~std::uint32_t{0};
  for (const std::byte byte : bytes) value = (value >> 8) ^ kTable[(value ^ static_cast<std::uint32_t>(byte)) & 0xff];
  return ~value;
}

std::uint32_t crc32c(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

std::uint32_t masked_crc32c(std::string_view text) {
  const std::uint32_t value = crc32c(text);
  return ((value >> 15) | (value << 17)) + 0xa282ead8;
}

}  // namespace switchyard::files
