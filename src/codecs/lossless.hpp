// The lossless codec: parts of kLosslessPart elements. Of a part, first its bytes of the same weight lie together, as
// signs and exponents of neighbours are similar, then zstd compresses them. A part is its length in bytes (32 bits, low
// byte first), then its bytes; one that would not become shorter stays as it is.
#pragma once

#include <span>

#include "codecs/codec.hpp"

namespace switchyard::codecs {

i64 lossless_bound(DType type, i64 elements);
i64 encode_lossless(const Elements& from, std::span<std::byte> to);
void decode_lossless(std::span<const std::byte> from, const Elements& to, bool summed);

}  // namespace switchyard::codecs
