#include "files/crc32c.hpp"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace switchyard::files {

namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, bits reversed

constexpr size_t kWord = 8;  // bytes that are taken at a time

// table[n][byte]: what a byte adds that n further bytes of the same word follow (Kounavis and Berry, "A Systematic
// Approach to Building High Performance Software-Based CRC Generators").
constexpr auto kTables = [] {
  std::array<std::array<std::uint32_t, 256>, kWord> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = value;
  }
  for (size_t n = 1; n < kWord; ++n)
    for (size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[n - 1][byte];
      tables[n][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  return tables;
}();

std::uint64_t word_at(const std::byte* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

std::uint32_t add_byte(std::uint32_t value, std::byte byte) {
  return (value >> 8) ^ kTables[0][(value ^ static_cast<std::uint32_t>(byte)) & 0xff];
}

std::uint32_t add_words_by_table(std::uint32_t value, std::span<const std::byte> bytes) {
  for (size_t i = 0; i + kWord <= bytes.size(); i += kWord) {
    const std::uint64_t word = word_at(bytes.data() + i) ^ value;
    value = 0;
    for (size_t n = 0; n < kWord; ++n) value ^= kTables[kWord - 1 - n][word >> (8 * n) & 0xff];
  }
  return value;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t add_words_by_instruction(std::uint32_t value,
                                                                         std::span<const std::byte> bytes) {
  std::uint64_t wide = value;
  for (size_t i = 0; i + kWord <= bytes.size(); i += kWord) wide = _mm_crc32_u64(wide, word_at(bytes.data() + i));
  return static_cast<std::uint32_t>(wide);
}

bool has_instruction() { return __builtin_cpu_supports("sse4.2") != 0; }
#else
std::uint32_t add_words_by_instruction(std::uint32_t value, std::span<const std::byte> bytes) {
  return add_words_by_table(value, bytes);
}

bool has_instruction() { return false; }
#endif

std::uint32_t checksum(std::span<const std::byte> bytes, bool by_instruction) {
  const std::uint32_t start = ~std::uint32_t{0};
  std::uint32_t value = by_instruction ? add_words_by_instruction(start, bytes) : add_words_by_table(start, bytes);
  for (const std::byte byte : bytes.last(bytes.size() % kWord)) value = add_byte(value, byte);
  return ~value;
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  static const bool by_instruction = has_instruction();
  return checksum(bytes, by_instruction);
}

std::uint32_t crc32c_by_table(std::span<const std::byte> bytes) { return checksum(bytes, false); }

std::uint32_t crc32c(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

std::uint32_t masked_crc32c(std::string_view text) {
  const std::uint32_t value = crc32c(text);
  return ((value >> 15) | (value << 17)) + 0xa282ead8;
}

}  // namespace switchyard::files
