// Order and times of work on a device: streams of threads, marks between them, waits of the host. On CPUs a call
// returns when its work is done: there is nothing to order.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <chrono>
#include <memory>

namespace switchyard::runtime {

/// A point in the work of a device's stream: the mark is reached when all that the stream had been given before is
/// done.
class Mark {
 public:
  /// A mark with no work before it, as all marks of a CPU are: it is reached.
  Mark() = default;
  /// A mark behind all that the calling thread's stream has been given.
  static Mark here(const at::Device& device);
  /// Makes all work that the calling thread gives to the device from now on start after the mark. Returns at once.
  void wait() const;
  /// The same for what it gives to another device of the kind.
  void wait(const at::Device& device) const;
  /// Whether the device has reached it.
  bool reached() const { return !event_ || event_->query(); }

 private:
  std::shared_ptr<const c10::Event> event_;
};

/// When the calling thread was there; on a device, when its stream gets there.
class Instant {
 public:
  Instant() = default;
  static Instant here(const at::Device& device);
  /// Whether the device has got there.
  bool reached() const { return !event_ || event_->query(); }
  /// Both are of the same device, and reached.
  double seconds_since(const Instant& earlier) const;

 private:
  std::chrono::steady_clock::time_point time_;
  std::shared_ptr<const c10::Event> event_;
};

/// From now on the calling thread works with this device: libraries that ask for the current one, as NCCL does, get it.
void use_device(const at::Device& device);
/// The same, and the calling thread gives its work on the device to a stream of its own.
void use_own_stream(const at::Device& device);
/// The calling thread's stream uses the tensor's memory: the allocator gives that to nobody else before the stream has
/// done what it has when the memory is freed. For tensors that another stream's thread made, unless that stream waits
/// for this one before it is freed.
void record_use(const at::Tensor& tensor);
/// The host waits until the calling thread's stream has done all that it was given.
void wait_for_stream(const at::Device& device);
/// The host waits for all streams of the device.
void wait_for_device(const at::Device& device);

}  // namespace switchyard::runtime
