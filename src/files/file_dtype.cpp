#include "files/file_dtype.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "base/bfloat16.hpp"
#include "base/errors.hpp"

namespace switchyard::files {

namespace {

struct TypeRow {
  FileDType type;
  std::string_view name;  // in the header
  i64 bytes;
};
constexpr TypeRow kTypes[] = {
    {FileDType::f64, "F64", 8},      {FileDType::f32, "F32", 4},         {FileDType::bf16, "BF16", 2},
    {FileDType::f16, "F16", 2},      {FileDType::i64, "I64", 8},         {FileDType::i32, "I32", 4},
    {FileDType::u64, "U64", 8},      {FileDType::u32, "U32", 4},         {FileDType::i16, "I16", 2},
    {FileDType::u16, "U16", 2},      {FileDType::i8, "I8", 1},           {FileDType::u8, "U8", 1},
    {FileDType::boolean, "BOOL", 1}, {FileDType::f8_e5m2, "F8_E5M2", 1}, {FileDType::f8_e4m3, "F8_E4M3", 1},
};

const TypeRow& row_of(FileDType type) {
  const auto* row = std::ranges::find(kTypes, type, &TypeRow::type);
  check(row != std::end(kTypes), "unknown file dtype");
  return *row;
}

/// 1 sign bit, 5 of exponent (bias 15), 10 of fraction. Source: IEEE 754 binary16.
struct Half {
  std::uint16_t bits;
  operator double() const {
    const int exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == 31) return fraction != 0 ? std::nan("") : sign * INFINITY;
    if (exponent == 0) return sign * std::ldexp(fraction, -24);
    return sign * std::ldexp(1024 + fraction, exponent - 25);
  }
};

struct Bfloat {
  std::uint16_t bits;
  Bfloat() = default;
  explicit Bfloat(double value) : bits(bfloat16_bits(static_cast<float>(value))) {}  // by way of fp32, as torch does
  operator double() const { return bfloat16_value(bits); }
};

template <class From, class To>
void convert_all(std::span<const std::byte> in, std::span<std::byte> out) {
  for (size_t i = 0; i < in.size() / sizeof(From); ++i) {
    From from;
    std::memcpy(&from, in.data() + i * sizeof(From), sizeof(From));  // files don't promise alignment
    const To to = static_cast<To>(static_cast<double>(from));
    std::memcpy(out.data() + i * sizeof(To), &to, sizeof(To));
  }
}

template <class From>
bool convert_from(std::span<const std::byte> in, DType to, std::span<std::byte> out) {
  switch (to) {
    case DType::f64:
      convert_all<From, double>(in, out);
      return true;
    case DType::f32:
      convert_all<From, float>(in, out);
      return true;
    case DType::bf16:
      convert_all<From, Bfloat>(in, out);
      return true;
    default:
      return false;
  }
}

bool convert_any(FileDType from, std::span<const std::byte> in, DType to, std::span<std::byte> out) {
  switch (from) {
    case FileDType::f64:
      return convert_from<double>(in, to, out);
    case FileDType::f32:
      return convert_from<float>(in, to, out);
    case FileDType::bf16:
      return convert_from<Bfloat>(in, to, out);
    case FileDType::f16:
      return convert_from<Half>(in, to, out);
    default:
      return false;
  }
}

}  // namespace

std::optional<FileDType> file_dtype_from(std::string_view name) {
  const auto* row = std::ranges::find(kTypes, name, &TypeRow::name);
  return row == std::end(kTypes) ? std::nullopt : std::optional(row->type);
}

i64 size_of(FileDType type) { return row_of(type).bytes; }

std::string_view name_of(FileDType type) { return row_of(type).name; }

FileDType stored_as(DType type) {
  switch (type) {
    case DType::f64:
      return FileDType::f64;
    case DType::f32:
      return FileDType::f32;
    case DType::bf16:
      return FileDType::bf16;
    case DType::i64:
      return FileDType::i64;
    case DType::i32:
      return FileDType::i32;
    case DType::u8:
      break;
  }
  throw InternalError("stored_as: unknown dtype");
}

void convert(FileDType from, std::span<const std::byte> in, DType to, std::span<std::byte> out,
             const std::string& origin) {
  const size_t elements = in.size() / static_cast<size_t>(size_of(from));
  check(elements * static_cast<size_t>(size_of(from)) == in.size() &&
            elements * static_cast<size_t>(size_of(to)) == out.size(),
        "convert {}: {} bytes of {} do not fill {} bytes of {}", origin, in.size(), name_of(from), out.size(),
        switchyard::name_of(to));
  if (stored_as(to) == from) {
    std::copy(in.begin(), in.end(), out.begin());
  } else if (!convert_any(from, in, to, out)) {
    user_error(
        "{} holds {}, where {} is needed. Only F64, F32, BF16 and F16 can be converted into each other: store it as "
        "one of "
        "them.",
        origin, name_of(from), switchyard::name_of(to));
  }
}

}  // namespace switchyard::files
