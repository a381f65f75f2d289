// SHA-256 and what is built on it: proofs that two processes know the same secret.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace switchyard {

using Digest = std::array<std::byte, 32>;

/// source  FIPS 180-4
Digest sha256(std::span<const std::byte> bytes);
Digest sha256(std::string_view text);

/// Keyed hash: it can be computed only with `key`, which may have any length.
/// source  RFC 2104, with SHA-256
Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

/// Comparison whose time does not depend on where the two differ, so that a guess can't be improved byte by byte.
bool equal_in_constant_time(const Digest& a, const Digest& b);

/// Unpredictable bytes from the kernel's random generator.
Digest random_digest();

}  // namespace switchyard
