// CRC-32C (Castagnoli), as in RFC 3720, and TensorFlow's masked form of it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace switchyard::files {

/// By the processor's instruction where it has one (SSE 4.2).
std::uint32_t crc32c(std::span<const std::byte> bytes);
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes);
std::uint32_t crc32c(std::string_view text);
/// The checksum rotated and offset, so that data with embedded checksums can be checked reliably. Source: TFRecord
/// format.
std::uint32_t masked_crc32c(std::string_view text);

}  // namespace switchyard::files
