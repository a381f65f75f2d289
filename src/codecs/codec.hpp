// Codecs: elements of messages as fewer bytes. A message is encoded once, where it is sent; its receiver decodes it,
// and adds in fp32 where it sums. All are plain loops with equal results on every machine.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/dtype.hpp"

namespace switchyard::codecs {

/// How elements travel. The lossy ones work on blocks of `block_elements` (bf16: on single elements), in the order of
/// the matrix; a is the largest magnitude in a block. fp32's own rounding comes on top of the errors.
///   none      as they are
///   bf16      rounded to nearest even: at most 2^-8 of the element
///   fp8       e4m3 times a scale of the block: at most the larger of 2^-4 of the element and a / 448 / 1000
///   int8      a scale times -127 .. 127: at most a / 252
///   int4      a scale times -7 .. 7: at most a / 13.8
///   zfp16     ZFP's fixed rate (Lindstrom 2014) in one dimension, 16 bits an element, blocks of 4: at most a / 64
///   zfp8      the same with 8 bits: at most 4 a, far less where neighbours are similar
///   top_32    of each block of 256 elements the 8 largest ones, as bf16; the others become 0: at most a
///   top_128   the same with the 2 largest ones
///   lossless  bytes of equal weight together, then zstd: no bit
/// Scales are bf16, rounded up. In a block with a NaN or an infinity every element of fp8, int8, int4 and zfp becomes
/// NaN, so that no step takes such a gradient for a finite one. Numbers near fp32's largest may become infinite in bf16
/// and zfp.
enum class Codec { none, bf16, fp8, int8, int4, zfp16, zfp8, top_32, top_128, lossless };
inline constexpr int kCodecs = 10;

/// Elements of one type in memory: rows of `columns` elements, whose starts are `stride` elements apart.
struct Elements {
  std::byte* data = nullptr;
  DType type = DType::f32;
  i64 rows = 1, columns = 0, stride = 0;
  i64 count() const { return rows * columns; }
};

/// A lossless message is compressed in parts of so many elements.
inline constexpr i64 kLosslessPart = 1 << 16;

/// "none", "bf16", "fp8", "int8", "int4", "zfp16", "zfp8", "top-1-of-32", "top-1-of-128", "lossless".
std::string_view name_of(Codec codec);
/// Whether decoding gives back every bit of elements of this type.
bool is_exact(Codec codec, DType type);
/// Whether it sends only the largest elements.
bool keeps_largest(Codec codec);
/// Elements that share a scale or are chosen among: 1 for none, bf16 and lossless.
i64 block_elements(Codec codec);
/// Bytes of an encoded message; of a lossless one the most that it may have, and its size is encode()'s result.
i64 encoded_bytes(Codec codec, DType type, i64 elements);

/// Writes the elements of `from` (fp64, fp32 or bf16) to the start of `to`, which has room for encoded_bytes, and gives
/// the bytes written. residual: of as many elements, fp32 or fp64, or null. With one, it is added to the elements first
/// and then gets what encoding lost of the sum (error feedback). An element that is lost as NaN leaves 0 there.
/// errors  InternalError if `to` is too small, a shape differs or a type has no codec
i64 encode(Codec codec, const Elements& from, std::span<std::byte> to, const Elements* residual = nullptr);
/// to = what was encoded, or if `summed` to += that: bf16 is summed in fp32 and rounded, others in their own type.
/// errors  InternalError if `from` is no message of so many elements
void decode(Codec codec, std::span<const std::byte> from, const Elements& to, bool summed);

}  // namespace switchyard::codecs
