#include "runtime/transfer.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "comm/block.hpp"
#include "runtime/device_order.hpp"
#include "runtime/tensor_device.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {
namespace {

using Kind = comm::Op::Kind;

codecs::Elements elements_of(const at::Tensor& t) {
  const comm::Block block = block_of(t);
  const i64 item = static_cast<i64>(t.element_size());
  return {.data = block.data,
          .type = dtype_of(t),
          .rows = block.rows,
          .columns = block.row_bytes / item,
          .stride = block.stride / item};
}

at::Tensor pinned_like(const at::Tensor& view) {
  return at::empty(view.sizes(), view.options().device(at::kCPU).pinned_memory(true));
}

}  // namespace

std::span<std::byte> Transfer::room_for(i64 bytes) {
  check(room_.defined() && used_ + bytes <= room_.numel(), "{} bytes of an encoded message do not fit behind {} of {}",
        bytes, used_, room_.defined() ? room_.numel() : 0);
  const i64 first = std::exchange(used_, used_ + bytes);
  return {static_cast<std::byte*>(room_.data_ptr()) + first, static_cast<size_t>(bytes)};
}

void Transfer::send(int peer, const at::Tensor& view, codecs::Codec codec, const at::Tensor& residual) {
  if (view.numel() == 0) return;
  Part part{.op = {.kind = Kind::send, .peer = peer, .dtype = dtype_of(view)}, .view = view, .codec = codec};
  if (codec != codecs::Codec::none) {
    const std::span<std::byte> room = room_for(codecs::encoded_bytes(codec, dtype_of(view), view.numel()));
    const double began = thread_seconds();
    const codecs::Elements lost = residual.defined() ? elements_of(residual) : codecs::Elements{};
    const i64 bytes = codecs::encode(codec, elements_of(view.is_cpu() ? view : view.cpu().contiguous()), room,
                                     residual.defined() ? &lost : nullptr);
    coding_seconds_ += thread_seconds() - began;
    part.op.block = comm::contiguous(room.data(), bytes);
    part.op.dtype = DType::u8;
  }
  parts_.push_back(std::move(part));
}

void Transfer::receive(int peer, at::Tensor view, bool add, codecs::Codec codec) {
  if (view.numel() == 0) return;
  comm::Op op{.kind = Kind::recv, .peer = peer, .add = add, .dtype = dtype_of(view)};
  parts_.push_back({.op = std::move(op), .view = std::move(view), .codec = codec});
}

void Transfer::local(at::Tensor to, const at::Tensor& from, bool add) {
  if (to.numel() == 0) return;
  check(to.device() == from.device(), "a local copy between a device and the host");
  comm::Op op{.kind = Kind::local, .add = add, .dtype = dtype_of(to)};
  parts_.push_back({.op = std::move(op), .view = std::move(to), .source = from});
}

void Transfer::collective(GroupCall call, const std::vector<int>& ranks, const std::vector<at::Tensor>& in,
                          const std::vector<at::Tensor>& out, bool add) {
  comm::Collective made{.call = call, .ranks = ranks, .add = add, .dtype = dtype_of(in[0])};
  for (const auto& [views, blocks] : {std::pair(&in, &made.in), std::pair(&out, &made.out)})
    for (const at::Tensor& view : *views) {
      check(dtype_of(view) == made.dtype, "a collective of {} and {}", name_of(made.dtype), name_of(dtype_of(view)));
      record_use(view);
      blocks->push_back(block_of(view));
    }
  collectives_.push_back(std::move(made));
}

// The message is decoded where it arrives, in its turn.
void Transfer::decode_to(Part& part, const at::Tensor& to, bool add) {
  const codecs::Elements elements = elements_of(to);
  part.op.decode = [this, codec = part.codec, elements, add](std::span<const std::byte> message) {
    const double began = thread_seconds();
    codecs::decode(codec, message, elements, add);
    coding_seconds_ += thread_seconds() - began;
  };
  part.op.encoded = codecs::encoded_bytes(part.codec, elements.type, elements.count());
  part.op.at_most = part.codec == codecs::Codec::lossless;
  part.op.dtype = DType::u8;
}

std::vector<comm::Op> Transfer::direct() {
  std::vector<comm::Op> ops;
  for (Part& part : parts_) {
    record_use(part.view);
    record_use(part.source);
    if (part.op.kind != Kind::send || part.codec == codecs::Codec::none) part.op.block = block_of(part.view);
    if (part.op.kind == Kind::local) part.op.source = block_of(part.source);
    if (part.op.kind == Kind::recv && part.codec != codecs::Codec::none) decode_to(part, part.view, part.op.add);
    ops.push_back(part.op);
  }
  return ops;
}

// Data that is added, or comes by the host, arrives beside its place, and gets there in order when all has come.
// Encoded messages are in host memory; the others go as they would without these, because at their other end there may
// be none.
std::vector<comm::Op> Transfer::staged(bool moves_device_memory) {
  std::vector<comm::Op> ops;
  bool waits = false;
  for (Part& part : parts_) {
    record_use(part.view);
    record_use(part.source);
    const bool encoded = part.codec != codecs::Codec::none, on_host = encoded || !moves_device_memory;
    if (part.op.kind == Kind::local) continue;
    if (part.op.kind == Kind::send && !encoded) {
      if (on_host) part.landing = pinned_like(part.view).copy_(part.view, /*non_blocking=*/true);
      part.op.block = block_of(on_host ? part.landing : part.view);
      waits = waits || on_host;
    }
    if (part.op.kind == Kind::recv) {
      if (on_host)
        part.landing = pinned_like(part.view);
      else if (part.op.add)
        part.landing = at::empty(part.view.sizes(), part.view.options());
      part.op.block = block_of(part.landing.defined() ? part.landing : part.view);
      if (encoded) decode_to(part, part.landing, false);
    }
    ops.push_back(part.op);
    ops.back().add = false;
  }
  if (waits) wait_for_stream(parts_.front().view.device());
  return ops;
}

void Transfer::finish_staged() {
  for (Part& part : parts_) {
    if (part.op.kind != Kind::local && (part.op.kind == Kind::send || !part.landing.defined())) continue;
    const at::Tensor from =
        part.op.kind == Kind::local ? part.source : part.landing.to(part.view.device(), /*non_blocking=*/true);
    part.op.add ? part.view.add_(from) : part.view.copy_(from, /*non_blocking=*/true);
  }
}

void Transfer::run(comm::Fabric& fabric, const comm::Channel& channel, std::string name, i64 number) {
  const bool on_device = !parts_.empty() && !parts_.front().view.is_cpu();
  const bool encodes = std::ranges::any_of(parts_, [](const Part& part) { return part.codec != codecs::Codec::none; });
  const bool stages = on_device && (encodes || !fabric.moves_device_memory());
  check(collectives_.empty() || !stages, "{}: collectives beside messages that are staged", name);
  std::vector<comm::Op> ops = stages ? staged(fabric.moves_device_memory()) : direct();
  fabric.run(channel, {std::move(name), number, std::move(ops), std::move(collectives_)});
  if (stages) finish_staged();
  parts_.clear();
  collectives_.clear();
  used_ = 0;
}

}  // namespace switchyard::runtime
