// Tensors for boxes: views of a shard's part, torch's types.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "base/dtype.hpp"
#include "layout/shape.hpp"

namespace switchyard::runtime {

at::ScalarType scalar_type(DType type);
/// The inverse. InternalError for other types than ours.
DType dtype_of(const at::Tensor& tensor);
/// An uninitialised (empty) or zeroed (zeros) tensor of the given sizes.
at::Tensor empty(const std::vector<i64>& size, DType type, const at::Device& device);
at::Tensor zeros(const std::vector<i64>& size, DType type, const at::Device& device);

/// The part `box` of a shard that holds `shard_box`, as a view. Both boxes are in coordinates of the whole tensor.
/// errors  InternalError if `box` is not inside `shard_box`
at::Tensor view_of(const at::Tensor& shard, const layout::Box& shard_box, const layout::Box& box);

/// to = from. Both are views of equal size, dtype and device, with one or two dims, dense in the last.
void copy_view(at::Tensor to, const at::Tensor& from);

}  // namespace switchyard::runtime
