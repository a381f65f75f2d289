#include "runtime/device_order.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace switchyard::runtime {
namespace {

c10::impl::VirtualGuardImpl guard_of(const at::Device& device) { return c10::impl::VirtualGuardImpl(device.type()); }

// An event that is recorded in the calling thread's stream.
std::shared_ptr<const c10::Event> recorded(const at::Device& device, c10::EventFlag flag) {
  const auto event = std::make_shared<c10::Event>(device.type(), flag);
  event->record(guard_of(device).getStream(device));
  return event;
}

}  // namespace

Mark Mark::here(const at::Device& device) {
  Mark mark;
  if (!device.is_cpu()) mark.event_ = recorded(device, c10::EventFlag::PYTORCH_DEFAULT);
  return mark;
}

void Mark::wait() const {
  if (event_) wait(event_->device());
}

void Mark::wait(const at::Device& device) const {
  if (event_) event_->block(guard_of(device).getStream(device));
}

Instant Instant::here(const at::Device& device) {
  Instant instant;
  if (device.is_cpu())
    instant.time_ = std::chrono::steady_clock::now();
  else
    instant.event_ = recorded(device, c10::EventFlag::BACKEND_DEFAULT);  // which keeps its time
  return instant;
}

double Instant::seconds_since(const Instant& earlier) const {
  if (event_) return earlier.event_->elapsedTime(*event_) / 1000;  // milliseconds
  return std::chrono::duration<double>(time_ - earlier.time_).count();
}

void use_device(const at::Device& device) {
  if (!device.is_cpu()) guard_of(device).setDevice(device);
}

void use_own_stream(const at::Device& device) {
  if (device.is_cpu()) return;
  use_device(device);
  const auto guard = guard_of(device);
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
