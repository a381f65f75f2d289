#include "runtime/tensors.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "base/errors.hpp"
#include "comm/block.hpp"
#include "runtime/tensor_device.hpp"

namespace switchyard::runtime {

at::ScalarType scalar_type(DType type) {
  switch (type) {
    case DType::f64:
      return at::kDouble;
    case DType::f32:
      return at::kFloat;
    case DType::bf16:
      return at::kBFloat16;
    case DType::i64:
      return at::kLong;
    case DType::i32:
      return at::kInt;
    case DType::u8:
      return at::kByte;
  }
  throw InternalError("scalar_type: unknown dtype");
}

DType dtype_of(const at::Tensor& t) {
  switch (t.scalar_type()) {
    case at::kDouble:
      return DType::f64;
    case at::kFloat:
      return DType::f32;
    case at::kBFloat16:
      return DType::bf16;
    case at::kLong:
      return DType::i64;
    case at::kByte:
      return DType::u8;
    default:
      throw InternalError("a tensor of an unknown dtype");
  }
}

at::Tensor empty(const std::vector<i64>& size, DType type, const at::Device& device) {
  return at::empty(size, at::TensorOptions().dtype(scalar_type(type)).device(device));
}

at::Tensor zeros(const std::vector<i64>& size, DType type, const at::Device& device) {
  return at::zeros(size, at::TensorOptions().dtype(scalar_type(type)).device(device));
}

at::Tensor view_of(const at::Tensor& shard, const layout::Box& shard_box, const layout::Box& box) {
  check(shard_box.contains(box), "box {} lies outside of shard {}", box, shard_box);
  at::Tensor view = shard;
  for (int d = 0; d < box.dims; ++d) {
    const size_t i = static_cast<size_t>(d);
    if (box.size(d) != shard_box.size(d)) view = view.narrow(d, box.lo[i] - shard_box.lo[i], box.size(d));
  }
  return view;
}

void copy_view(at::Tensor to, const at::Tensor& from) {
  if (to.is_cpu() && from.is_cpu())
    comm::copy_block(block_of(to), block_of(from));
  else
    to.copy_(from);
}

}  // namespace switchyard::runtime
