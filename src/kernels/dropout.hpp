// Dropout that depends on an element's position, not on the rank that computes it.
#pragma once

namespace at {
class Tensor;
}  // namespace at

#include "base/dtype.hpp"

namespace switchyard::kernels {

/// kept = 1 with probability 1 - p, else 0, by a hash of a row's key, a column's number and the site.
/// kept (R, C) u8   keys (R) i64, random   columns (C) i64
void dropout_choice(at::Tensor& kept, const at::Tensor& keys, const at::Tensor& columns, i64 site, double p);

/// y = x * kept / (1 - p), for values and gradients; y may be x.   x, y (R, C)
void dropout(at::Tensor& y, const at::Tensor& x, const at::Tensor& kept, double p);

}  // namespace switchyard::kernels
