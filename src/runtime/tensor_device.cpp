#include "runtime/tensor_device.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>

#include "base/errors.hpp"
#include "runtime/device_order.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {
namespace {

using comm::Block;

// The widest integers that rows of both blocks consist of: few wide elements are copied faster than many bytes.
at::ScalarType widest(const Block& a, const Block& b) {
  for (const auto& [type, bytes] : {std::pair{at::kLong, i64{8}}, {at::kInt, 4}, {at::kShort, 2}}) {
    const auto fits = [size = bytes](const Block& block) {
      return block.row_bytes % size == 0 && (block.rows < 2 || block.stride % size == 0) &&
             reinterpret_cast<std::uintptr_t>(block.data) % static_cast<std::uintptr_t>(size) == 0;
    };
    if (fits(a) && fits(b)) return type;
  }
  return at::kByte;
}

class TensorDevice final : public comm::BlockDevice {
 public:
  explicit TensorDevice(const at::Device& device) : device_(device) {}

  void adopt_thread() const noexcept override {
    try {
      use_device(device_);
    } catch (const std::exception&) {  // whoever works with a device that is lost says so
    }
  }

  void copy(const Block& to, const Block& from) const override {
    check(to.bytes() == from.bytes(), "a block of {} bytes is copied to one of {}", from.bytes(), to.bytes());
    if (to.bytes() == 0) return;
    const at::ScalarType type = widest(to, from);
    at::Tensor target = tensor_of(to, type);
    target.copy_(like(tensor_of(from, type), target), /*non_blocking=*/true);
  }
  void add(const Block& to, const Block& from, DType dtype) const override {
    check(to.bytes() == from.bytes(), "a block of {} bytes is added to one of {}", from.bytes(), to.bytes());
    if (to.bytes() == 0) return;
    at::Tensor target = tensor_of(to, scalar_type(dtype));
    target.add_(like(tensor_of(from, scalar_type(dtype)), target).to(device_, /*non_blocking=*/true));
  }
  void fill(const Block& to, unsigned char byte) const override {
    if (to.bytes() > 0) tensor_of(to, at::kByte).fill_(static_cast<i64>(byte));
  }

  Mark mark() const override { return std::make_shared<const runtime::Mark>(runtime::Mark::here(device_)); }
  void wait_for(const Mark& mark) const override { of(mark).wait(device_); }
  bool reached(const Mark& mark) const override { return of(mark).reached(); }

  std::shared_ptr<std::byte> allocate(i64 bytes) const override {
    const auto memory =
        std::make_shared<at::Tensor>(at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device_)));
    return {memory, static_cast<std::byte*>(memory->data_ptr())};
  }
  void* native_stream() const override {
    const c10::impl::VirtualGuardImpl guard(device_.type());
    return guard.getStreamNativeHandle(guard.getStream(device_));
  }

 private:
  static const runtime::Mark& of(const Mark& mark) { return *static_cast<const runtime::Mark*>(mark.get()); }

  static at::Tensor tensor_of(const Block& block, at::ScalarType type) {
    const auto item = static_cast<i64>(c10::elementSize(type));
    const at::Device device = static_cast<const TensorDevice*>(block.device)->device_;
    return at::from_blob(
        block.data, {block.rows, block.row_bytes / item}, {block.stride / item, 1}, [](void*) {},
        at::TensorOptions().dtype(type).device(device), device);
  }
  // The same elements in the same order, in rows of another length.
  static at::Tensor like(const at::Tensor& from, const at::Tensor& to) { return from.reshape(to.sizes()); }

  at::Device device_;
};

}  // namespace

const comm::BlockDevice* block_device(const at::Device& device) {
  if (device.is_cpu()) return nullptr;
  static std::mutex mutex;
  static std::map<std::pair<at::DeviceType, at::DeviceIndex>, TensorDevice>& devices =
      *new std::map<std::pair<at::DeviceType, at::DeviceIndex>, TensorDevice>;
  const std::lock_guard lock(mutex);
  return &devices.try_emplace({device.type(), device.index()}, device).first->second;
}

Block block_of(const at::Tensor& t) {
  check(t.dim() >= 1 && t.dim() <= 2 && (t.numel() == 0 || t.stride(-1) == 1 || t.size(-1) == 1),
        "a block of {} dims, last stride {}", t.dim(), t.dim() ? t.stride(-1) : 0);
  const i64 item = static_cast<i64>(t.element_size());
  Block block;
  block.data = static_cast<std::byte*>(t.data_ptr());
  block.rows = t.dim() == 2 ? t.size(0) : 1;
  block.row_bytes = t.size(-1) * item;
  block.stride = t.dim() == 2 ? t.stride(0) * item : block.row_bytes;
  block.device = block_device(t.device());
  if (t.dim() == 2 && t.is_contiguous()) {
    block.row_bytes *= block.rows;
    block.stride = block.row_bytes;
    block.rows = 1;
  }
  return block;
}

}  // namespace switchyard::runtime
