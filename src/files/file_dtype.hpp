// Element types of tensor files, and conversion into the types that Switchyard computes with.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.hpp"

namespace switchyard::files {

/// Element types of tensors in files: those of DType; f16, which is only read; and those of tensors that are not read,
/// as of the masks that some versions of transformers wrote beside GPT-2's weights.
enum class FileDType { f64, f32, bf16, f16, i64, i32, u64, u32, i16, u16, i8, u8, boolean, f8_e5m2, f8_e4m3 };
/// The type of this name; nothing for an unknown one.
std::optional<FileDType> file_dtype_from(std::string_view name);
/// Bytes of one element.
i64 size_of(FileDType type);
/// Name as in the header: "F32".
std::string_view name_of(FileDType type);
FileDType stored_as(DType type);
/// Converts elements of `from` into elements of `to`, rounded to nearest even. Any float converts to any float, and a
/// type to itself; UserError for the rest, naming `origin`. out.size() must fit (InternalError).
void convert(FileDType from, std::span<const std::byte> in, DType to, std::span<std::byte> out,
             const std::string& origin);

}  // namespace switchyard::files
