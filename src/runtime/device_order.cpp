#include "runtime/device_order.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace switchyard::runtime {
namespace {

c10::impl::VirtualGuardImpl guard_of(const at::Device& device) { return c10::impl::VirtualGuardImpl(device.type()); }

}  // namespace

Mark Mark::here(const at::Device& device) {
  Mark mark;
  if (device.is_cpu()) return mark;
  const auto event = std::make_shared<c10::Event>(device.type());
  event->record(guard_of(device).getStream(device));
  mark.event_ = event;
  return mark;
}

void Mark::wait() const {
  if (event_) event_->block(guard_of(event_->device()).getStream(event_->device()));
}

void use_own_stream(const at::Device& device) {
  if (device.is_cpu()) return;
  const auto guard = guard_of(device);
  guard.setDevice(device);
  guard.exchangeStream(guard.getStreamFromGlobalPool(device));
}

void record_use(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return;
  const auto guard = guard_of(tensor.device());
  guard.recordDataPtrOnStream(tensor.storage().data_ptr(), guard.getStream(tensor.device()));
}

void wait_for_stream(const at::Device& device) {
  if (device.is_cpu()) return;
  const auto guard = guard_of(device);
  guard.synchronizeStream(guard.getStream(device));
}

void wait_for_device(const at::Device& device) {
  if (!device.is_cpu()) guard_of(device).synchronizeDevice(device.index());
}

}  // namespace switchyard::runtime
