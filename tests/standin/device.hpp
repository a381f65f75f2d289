// A device for tests, of libtorch's kind PrivateUse1: what works on it without a fault has every wait that a GPU needs.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace switchyard::standin {

/// The device; registers it with libtorch at the first call. Its memory may not be touched by the host. Operators run
/// when they are called, by libtorch's CPU kernels, but count as work of the calling thread's current stream:
/// standin::Ordering refuses what a real device could do in the wrong order. What is copied to pinned host memory
/// without blocking is NaN until the host waits for it, and what is copied from there must not change before.
at::Device device();

/// Whether the calling thread has chosen the device for what it does: without that, a device of many would be the
/// first.
bool is_chosen();
/// Whether it is a fault from now on if a thread that has not chosen the device makes, asks or drops its events.
void expect_choices(bool on);
/// The device whose stream the calling thread has made wait for an event, last; -1: none.
int waiting_device();
/// How often the host has waited for the device, or read from it, since the process began.
std::int64_t host_synchronizations();
/// Operators and copies that the device was given, since the process began.
std::int64_t operators();
/// Bytes of memory that tensors have, and the most that they had at once since reset_peak.
std::int64_t live_bytes();
std::int64_t peak_bytes();
void reset_peak();
/// Memory that is new for its stream lies below this many bytes, until start_over.
void limit_memory(std::int64_t bytes);
/// From now on the device refuses events and waits, as CUDA's do after a fault of a kernel, until start_over.
void lose();
/// The host waits for the device, faults so far are forgotten, and so is the use of memory, if all is free.
void start_over();
/// Memory that was freed too early since the last call, pinned memory that changed, or messages out of order, or
/// events of threads that should have chosen; empty: none.
std::string take_fault();

}  // namespace switchyard::standin
