#include "base/dtype.hpp"

#include "base/errors.hpp"

namespace switchyard {

i64 size_of(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::u8:
      return 1;
  }
  throw InternalError("size_of: unknown dtype");
}

std::string_view name_of(DType type) {
  switch (type) {
    case DType::f64:
      return "f64";
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::i64:
      return "i64";
    case DType::i32:
      return "i32";
    case DType::u8:
      return "u8";
  }
  throw InternalError("name_of: unknown dtype");
}

Precision precision_from(std::string_view name) {
  if (name == "fp64") return {DType::f64, DType::f64};
  if (name == "fp32") return {DType::f32, DType::f32};
  if (name == "bf16") return {DType::bf16, DType::f32};
  user_error("precision \"{}\" is unknown. Use fp64, fp32 or bf16.", name);
}

std::string_view name_of(const Precision& precision) {
  switch (precision.compute) {
    case DType::f64:
      return "fp64";
    case DType::f32:
      return "fp32";
    default:
      return "bf16";
  }
}

}  // namespace switchyard
