// Element types, and the one policy that says which precision is used where.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace switchyard {

using i64 = std::int64_t;

enum class DType { f64, f32, bf16, i64, i32, u8 };

/// Bytes of one element.
i64 size_of(DType type);
std::string_view name_of(DType type);

/// Data types of a run. `compute`: working parameters and activations. `state`: master weights, moments, accumulated
/// gradients, statistics of norms and softmax; fp32 or wider, so that sums over micro-batches keep their bits.
struct Precision {
  DType compute = DType::f32;
  DType state = DType::f32;
  bool operator==(const Precision&) const = default;
};

/// "fp64", "fp32" or "bf16"; UserError otherwise.
Precision precision_from(std::string_view name);
std::string_view name_of(const Precision& precision);

}  // namespace switchyard
