#include "runtime/tensors.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "comm/block.hpp"

namespace switchyard::runtime {
namespace {

comm::Block block_of(const at::Tensor& t) {
  check(t.dim() >= 1 && t.dim() <= 2 && (t.numel() == 0 || t.stride(-1) == 1 || t.size(-1) == 1),
        "a block of {} dims, last stride {}", t.dim(), t.dim() ? t.stride(-1) : 0);
  const i64 item = static_cast<i64>(t.element_size());
  comm::Block block;
  block.data = static_cast<std::byte*>(t.data_ptr());
  block.rows = t.dim() == 2 ? t.size(0) : 1;
  block.row_bytes = t.size(-1) * item;
  block.stride = t.dim() == 2 ? t.stride(0) * item : block.row_bytes;
  if (t.dim() == 2 && t.is_contiguous()) {
    block.row_bytes *= block.rows;
    block.stride = block.row_bytes;
    block.rows = 1;
  }
  return block;
}

codecs::Elements elements_of(const at::Tensor& t) {
  const comm::Block block = block_of(t);
  const i64 item = static_cast<i64>(t.element_size());
  return {.data = block.data,
          .type = dtype_of(t),
          .rows = block.rows,
          .columns = block.row_bytes / item,
          .stride = block.stride / item};
}

}  // namespace

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

at::Tensor Transfer::host_copy(const at::Tensor& view) {
  staged_.push_back(view.is_cpu() ? view : view.cpu().contiguous());
  return staged_.back();
}

std::span<std::byte> Transfer::room_for(i64 bytes) {
  check(room_.defined() && used_ + bytes <= room_.numel(), "{} bytes of an encoded message do not fit behind {} of {}",
        bytes, used_, room_.defined() ? room_.numel() : 0);
  const i64 first = std::exchange(used_, used_ + bytes);
  return {static_cast<std::byte*>(room_.data_ptr()) + first, static_cast<size_t>(bytes)};
}

void Transfer::send(int peer, const at::Tensor& view, codecs::Codec codec) {
  if (view.numel() == 0) return;
  comm::Op op{.kind = comm::Op::Kind::send, .peer = peer};
  if (codec == codecs::Codec::none) {
    op.block = block_of(host_copy(view));
    op.dtype = dtype_of(view);
  } else {
    const std::span<std::byte> room = room_for(codecs::encoded_bytes(codec, dtype_of(view), view.numel()));
    const double began = thread_seconds();
    const i64 bytes = codecs::encode(codec, elements_of(view.is_cpu() ? view : view.cpu().contiguous()), room);
    coding_seconds_ += thread_seconds() - began;
    op.block = comm::contiguous(room.data(), bytes);
    op.dtype = DType::u8;
  }
  ops_.push_back(std::move(op));
}

void Transfer::receive(int peer, at::Tensor view, bool add, codecs::Codec codec) {
  if (view.numel() == 0) return;
  const at::Tensor host = host_copy(view);
  comm::Op op{
      .kind = comm::Op::Kind::recv, .peer = peer, .block = block_of(host), .add = add, .dtype = dtype_of(view)};
  if (codec != codecs::Codec::none) {
    const codecs::Elements to = elements_of(host);
    op.decode = [this, codec, to, add](std::span<const std::byte> message) {
      const double began = thread_seconds();
      codecs::decode(codec, message, to, add);
      coding_seconds_ += thread_seconds() - began;
    };
    op.encoded = codecs::encoded_bytes(codec, to.type, to.count());
    op.at_most = codec == codecs::Codec::lossless;
    op.dtype = DType::u8;
  }
  ops_.push_back(std::move(op));
  if (!view.is_cpu()) returns_.emplace_back(std::move(view), host);
}

void Transfer::local(at::Tensor to, const at::Tensor& from, bool add) {
  if (to.numel() == 0) return;
  check(to.is_cpu() == from.is_cpu(), "a local copy between a device and the host");
  const at::Tensor target = host_copy(to);
  ops_.push_back({.kind = comm::Op::Kind::local,
                  .block = block_of(target),
                  .source = block_of(host_copy(from)),
                  .add = add,
                  .dtype = dtype_of(to)});
  if (!to.is_cpu()) returns_.emplace_back(std::move(to), target);
}

void Transfer::run(comm::Fabric& fabric, const comm::Channel& channel, std::string name, i64 row) {
  fabric.run(channel, {std::move(name), row, std::move(ops_)});
  for (auto& [device, host] : returns_) device.copy_(host);
  ops_.clear();
  used_ = 0;
  staged_.clear();
  returns_.clear();
}

}  // namespace switchyard::runtime
