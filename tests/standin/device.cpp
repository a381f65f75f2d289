#include "device.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "comm/standin_nccl/stream.hpp"
#include "gpu_operators.hpp"
#include "kernels/device_memory.hpp"
#include "memory.hpp"
#include "ordering.hpp"

namespace switchyard::standin {
namespace {

constexpr std::size_t kCapacity = std::size_t{2} << 30;
constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr int kPoolStreams = 32;  // CUDA's pool has as many

// Copies between the device and pinned host memory that the host hasn't waited for.
class HostCopies {
 public:
  /// The host sees `values` at `to` once it has waited for `mark`; until then it finds NaN there.
  void to_host(Clock mark, void* to, std::vector<std::byte> values) {
    std::memset(to, 0xff, values.size());
    const std::lock_guard lock(mutex_);
    copies_.push_back({std::move(mark), to, nullptr, std::move(values)});
  }
  /// The host must leave `from` as it is until the mark.
  void from_host(Clock mark, const void* from, std::size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(from);
    const std::lock_guard lock(mutex_);
    copies_.push_back({std::move(mark), nullptr, from, {begin, begin + bytes}});
  }
  /// The host has waited for what `ordering` knows.
  void settle(const Ordering& ordering) {
    const std::lock_guard lock(mutex_);
    std::erase_if(copies_, [&](const Copy& copy) {
      if (!ordering.host_knows(copy.mark)) return false;
      if (copy.to) std::memcpy(copy.to, copy.values.data(), copy.values.size());
      if (copy.from && std::memcmp(copy.from, copy.values.data(), copy.values.size()) != 0)
        fault_ = "stand-in device: pinned memory changed while the device may still have read it";
      return true;
    });
  }
  std::string take_fault() {
    const std::lock_guard lock(mutex_);
    return std::exchange(fault_, {});
  }

 private:
  struct Copy {
    Clock mark;
    void* to;
    const void* from;
    std::vector<std::byte> values;
  };
  std::mutex mutex_;
  std::vector<Copy> copies_;
  std::string fault_;
};

// A stream as the stand-in for NCCL takes it. The device's other work is done where it is given; messages may have to
// wait for their peers, which only another thread can do.
class MessageStream final : public comm::StandinStream {
 public:
  explicit MessageStream(int number) : number_(number) {}
  ~MessageStream() override {
    if (thread_.joinable()) thread_.join();
  }

  void run(std::function<void()> work) override {
    if (thread_.joinable()) thread_.join();
    free_ = false;
    thread_ = std::thread([this, does = std::move(work)] {
      try {
        does();
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex_);
        if (fault_.empty()) fault_ = error.what();
      }
      free_ = true;
    });
  }
  bool is_free() override { return free_; }
  std::byte* use(std::byte* data, std::int64_t bytes, bool write) override;

  std::string take_fault() {
    const std::lock_guard lock(mutex_);
    return std::exchange(fault_, {});
  }

 private:
  const int number_;
  std::atomic<bool> free_ = true;
  std::thread thread_;
  std::mutex mutex_;
  std::string fault_;
};

struct Event {
  Clock mark;
  int asked = 0;
  std::chrono::steady_clock::time_point time;
};

// What the host learns by asking whether an event was reached: no work and no memory is ordered by that.
class Questions {
 public:
  /// Yes to whoever asks again, and from then on for what the event follows.
  bool answer(Event& event) {
    const std::lock_guard lock(mutex_);
    told_.resize(std::max(told_.size(), event.mark.size()));
    bool known = true;
    for (std::size_t s = 0; s < event.mark.size(); ++s) known = known && event.mark[s] <= told_[s];
    if (!known && ++event.asked > 1) {
      for (std::size_t s = 0; s < event.mark.size(); ++s) told_[s] = std::max(told_[s], event.mark[s]);
      known = true;
    }
    return known;
  }

 private:
  std::mutex mutex_;
  Clock told_;
};

struct State {
  Questions questions;
  Ordering ordering{kCapacity};
  Memory memory{kCapacity, ordering};
  HostCopies host_copies;
  std::atomic<std::int64_t> synchronizations = 0, operators = 0;
  std::atomic<bool> lost = false;
  std::vector<int> streams;
  std::atomic<int> next_stream = 0;
  std::mutex message_mutex;
  std::map<int, MessageStream> message_streams;
  std::mutex pinned_mutex;
  std::map<const void*, std::size_t> pinned;  // begin -> bytes

  State() {
    for (int s = 0; s <= kPoolStreams; ++s) streams.push_back(ordering.new_stream());
  }
  bool is_pinned(const void* address) {
    const std::lock_guard lock(pinned_mutex);
    const auto after = pinned.upper_bound(address);
    if (after == pinned.begin()) return false;
    const auto& [begin, bytes] = *std::prev(after);
    return static_cast<const std::byte*>(address) < static_cast<const std::byte*>(begin) + bytes;
  }
  void host_waits_for(const Clock& mark) {
    ++synchronizations;
    ordering.host_waits_for(mark);
    host_copies.settle(ordering);
  }
};

State& state() {
  static State& all = *new State;  // tensors of static objects are freed when the process ends
  return all;
}

std::byte* MessageStream::use(std::byte* data, std::int64_t bytes, bool write) {
  const Region region{{state().memory.offset_of(data)}, static_cast<std::size_t>(bytes)};
  if (write)
    state().ordering.work(number_, "receive", {}, {region});
  else
    state().ordering.work(number_, "send", {region}, {});
  return state().memory.inside(data);
}

MessageStream& message_stream(int number) {
  const std::lock_guard lock(state().message_mutex);
  return state().message_streams.try_emplace(number, number).first->second;
}

thread_local int current_stream = 0;
thread_local bool chosen = false;
std::atomic<bool> must_choose = false, worked_unchosen = false;
thread_local int waited_on = -1;

class DeviceAllocator final : public c10::DeviceAllocator, public kernels::LimitedAllocator {
 public:
  void limit(c10::DeviceIndex, i64 bytes) override { state().memory.budget(bytes); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    state().memory.used_on(data.get(), static_cast<int>(stream.id()));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = state().memory.live();
    stats.allocated_bytes[0].peak = state().memory.peak();
    stats.reserved_bytes[0].current = state().memory.live();
    return stats;
  }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex) override {
    constexpr std::size_t all = std::size_t{64} << 30;
    return {all - static_cast<std::size_t>(state().memory.live()), all};
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override { state().memory.reset_peak(); }

  c10::DataPtr allocate(std::size_t bytes) override {
    void* block = state().memory.allocate(bytes, current_stream);
    return {block, block, &release, c10::Device(kType, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void*, const void*, std::size_t) const override {
    throw std::logic_error("stand-in device: copy_data");
  }

 private:
  static void release(void* block) {
    if (state().lost) state().host_waits_for(state().ordering.mark_of_all());  // it does nothing any more
    state().memory.release(block);
  }
};

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* block = std::aligned_alloc(64, std::max<std::size_t>(64, (bytes + 63) / 64 * 64));
    const std::lock_guard lock(state().pinned_mutex);
    state().pinned[block] = std::max<std::size_t>(1, bytes);
    return {block, block, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

 private:
  // Never reused, as copies on their way may still name it; tests have little of it.
  static void release(void*) {}
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  bool isPinnedPtr(const void* address) const override { return state().is_pinned(address); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return at::getHostAllocator(kType); }
  at::Device getDeviceFromPtr(void*) const override { return {kType, 0}; }
};

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {kType, 0}; }
  void setDevice(c10::Device) const override { chosen = true; }
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const override {
    const auto index = std::max<c10::DeviceIndex>(0, device.index());
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index), current_stream);
  }
  c10::Stream getDefaultStream(c10::Device) const override { return stream_of(0); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream_of(state().ordering.new_stream()); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    return stream_of(1 + state().next_stream++ % kPoolStreams);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_of(std::exchange(current_stream, static_cast<int>(stream.id())));
  }
  void* getStreamNativeHandle(c10::Stream stream) const override {
    return static_cast<comm::StandinStream*>(&message_stream(static_cast<int>(stream.id())));
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    expect_device();
    expect_choice();
    if (!*event) *event = new Event;
    of(*event).mark = state().ordering.mark(static_cast<int>(stream.id()));
    of(*event).asked = 0;
    of(*event).time = std::chrono::steady_clock::now();
  }
  void block(void* event, const c10::Stream& stream) const override {
    expect_device();
    waited_on = stream.device_index();
    if (event) state().ordering.wait_for(static_cast<int>(stream.id()), of(event).mark);
  }
  bool queryEvent(void* event) const override {
    expect_choice();
    return !event || state().ordering.host_knows(of(event).mark) || state().questions.answer(of(event));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    expect_choice();
    delete static_cast<Event*>(event);
  }
  void synchronizeEvent(void* event) const override {
    if (event) state().host_waits_for(of(event).mark);
  }
  double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
    return std::chrono::duration<double, std::milli>(of(to).time - of(from).time).count();
  }
  bool queryStream(const c10::Stream& stream) const override {
    return state().ordering.host_knows(state().ordering.mark(static_cast<int>(stream.id())));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    state().host_waits_for(state().ordering.mark(static_cast<int>(stream.id())));
  }
  void synchronizeDevice(c10::DeviceIndex) const override {
    expect_device();
    state().host_waits_for(state().ordering.mark_of_all());
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    state().memory.used_on(data.get(), static_cast<int>(stream.id()));
  }

 private:
  static void expect_device() {
    if (state().lost) throw std::runtime_error("stand-in device: it is lost");
  }
  // CUDA makes a context of the first device for a thread that has chosen none, as it goes back to that.
  static void expect_choice() noexcept {
    if (must_choose && !chosen) worked_unchosen = true;
  }
  static Event& of(void* event) { return *static_cast<Event*>(event); }
  static c10::Stream stream_of(int number) { return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, 0), number); }
};

bool is_here(const at::Tensor& t) { return t.defined() && t.device().type() == kType; }

// Where the elements of a tensor lie, in runs of neighbours.
Region region_of(const at::Tensor& t) {
  Region region;
  if (t.numel() == 0) return region;
  const std::size_t item = t.element_size();
  int dense = static_cast<int>(t.dim());  // dims from here on are contiguous
  std::int64_t run = 1;
  for (; dense > 0 && (t.size(dense - 1) == 1 || t.stride(dense - 1) == run); --dense) run *= t.size(dense - 1);
  region.bytes = item * static_cast<std::size_t>(run);
  region.begins = {state().memory.offset_of(t.const_data_ptr())};
  for (int d = 0; d < dense; ++d) {
    std::vector<std::size_t> next;
    const std::int64_t stride = t.stride(d), size = stride == 0 ? 1 : t.size(d);
    for (const std::size_t begin : region.begins)
      for (std::int64_t i = 0; i < size; ++i) next.push_back(begin + item * static_cast<std::size_t>(i * stride));
    region.begins = std::move(next);
  }
  return region;
}

// The same elements, as the CPU finds them.
at::Tensor on_cpu(const at::Tensor& t) {
  const auto options = t.options().device(at::kCPU);
  if (t.numel() == 0) return at::empty_strided(t.sizes(), t.strides(), options);
  return at::from_blob(
      state().memory.inside(t.const_data_ptr()), t.sizes(), t.strides(), [](void*) {}, options);
}

void begin(const std::string& name, const std::vector<Region>& reads, const std::vector<Region>& writes) {
  state().ordering.work(current_stream, name, reads, writes);
}

at::Tensor made(at::IntArrayRef size, at::IntArrayRef stride, const at::TensorOptions& options) {
  return at::empty_strided(size, stride, options.device(at::Device(kType, 0)).pinned_memory(false));
}

bool is_product(const std::string& operator_name) {
  return operator_name == "aten::mm" || operator_name == "aten::addmm" || operator_name == "aten::addmm_";
}

// GPUs don't read what lies between rows; oneDNN may, on processors with AMX (kernels/linear.cpp).
void close_gaps(c10::IValue& value) {
  if (!value.isTensor() || value.toTensor().dim() != 2) return;
  const at::Tensor rows = value.toTensor();
  if (rows.scalar_type() == at::kBFloat16 && rows.stride(1) == 1 && rows.stride(0) > rows.size(1))
    value = rows.contiguous();
}

// Any operator: the CPU's kernel on the same memory.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack* stack) : op_(op), stack_(*stack) {}

  void run() {
    const c10::FunctionSchema& schema = op_.schema();
    const std::size_t count = schema.arguments().size(), first = stack_.size() - count;
    for (std::size_t i = 0; i < count; ++i) {
      const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
      replace(stack_[first + i], alias && alias->isWrite());
      if (!alias && is_product(schema.name())) close_gaps(stack_[first + i]);
    }
    ++state().operators;
    begin(schema.name(), reads_, writes_);
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
    const std::size_t results = schema.returns().size(), from = stack_.size() - results;
    for (std::size_t i = 0; i < results; ++i) give_back(stack_[from + i], schema.returns()[i].alias_info() != nullptr);
    if (!made_.empty()) begin(schema.name(), {}, made_);
  }

 private:
  void replace(c10::IValue& value, bool writes) {
    if (value.isTensor() && is_here(value.toTensor())) {
      const at::Tensor t = value.toTensor();
      value = stand_for(t, writes);
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      if (value.isTensorList()) {
        std::vector<at::Tensor> list = value.toTensorVector();
        for (at::Tensor& t : list)
          if (is_here(t)) t = stand_for(t, writes);
        value = c10::IValue(list);
      } else {
        c10::List<std::optional<at::Tensor>> list;
        for (const auto& t : value.toOptionalTensorVector())
          list.push_back(t && is_here(*t) ? std::optional(stand_for(*t, writes)) : t);
        value = c10::IValue(list);
      }
    } else if (value.isDevice() && value.toDevice().type() == kType) {
      value = c10::IValue(c10::Device(at::kCPU));
    }
  }

  at::Tensor stand_for(const at::Tensor& t, bool writes) {
    (writes ? writes_ : reads_).push_back(region_of(t));
    if (writes) reads_.push_back(region_of(t));
    const at::Tensor cpu = on_cpu(t);
    stands_.emplace_back(cpu, t);
    return cpu;
  }

  void give_back(c10::IValue& value, bool aliases) {
    if (!value.isTensor()) {
      if (value.isTensorList()) throw std::logic_error("stand-in device: " + op_.schema().name() + " returns a list");
      return;
    }
    const at::Tensor result = value.toTensor();
    if (!result.defined() || !result.is_cpu()) return;
    for (const auto& [cpu, t] : stands_) {
      if (!result.is_same(cpu)) continue;
      if (cpu.sizes() != t.sizes()) take_over(t, result);
      value = t;
      return;
    }
    if (aliases) throw std::logic_error("stand-in device: " + op_.schema().name() + " returns a view");
    value = copied(result);
  }

  at::Tensor copied(const at::Tensor& result) {
    const at::Tensor copy = made(result.sizes(), result.strides(), result.options());
    on_cpu(copy).copy_(result);
    made_.push_back(region_of(copy));
    return copy;
  }

  // An empty output that the kernel has given another size.
  void take_over(const at::Tensor& t, const at::Tensor& result) {
    if (t.numel() > 0) throw std::logic_error("stand-in device: " + op_.schema().name() + " resizes");
    const at::Tensor copy = copied(result);
    t.unsafeGetTensorImpl()->set_storage_keep_dtype(copy.storage());
    t.unsafeGetTensorImpl()->set_sizes_and_strides(copy.sizes(), copy.strides());
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  std::vector<Region> reads_, writes_, made_;
  std::vector<std::pair<at::Tensor, at::Tensor>> stands_;  // for the CPU, of the device
};

void call_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) { Call(op, stack).run(); }

at::Tensor empty_here(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                      std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, c10::GetAllocator(kType), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}

at::Tensor empty_strided_here(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                              std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(kType),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           type.value_or(at::kFloat));
}

Clock mark_here() { return state().ordering.mark(current_stream); }

at::Tensor copy_here(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  ++state().operators;
  const at::Tensor source = is_here(from) ? on_cpu(from) : from, target = is_here(to) ? on_cpu(to) : to;
  if (is_here(from) && is_here(to)) {
    begin("copy_", {region_of(from)}, {region_of(to)});
    target.copy_(source);
  } else if (is_here(to)) {
    begin("copy_ from the host", {}, {region_of(to)});
    target.copy_(source);
    if (non_blocking && from.is_contiguous() && state().is_pinned(from.const_data_ptr()))
      state().host_copies.from_host(mark_here(), from.const_data_ptr(), from.nbytes());
    else
      state().host_waits_for(mark_here());
  } else {
    begin("copy_ to the host", {region_of(from)}, {});
    if (non_blocking && to.is_contiguous() && state().is_pinned(to.const_data_ptr())) {
      const at::Tensor values = at::empty(to.sizes(), to.options().pinned_memory(false)).copy_(source);
      const auto* bytes = static_cast<const std::byte*>(values.const_data_ptr());
      state().host_copies.to_host(mark_here(), to.mutable_data_ptr(), {bytes, bytes + values.nbytes()});
    } else {
      state().host_waits_for(mark_here());
      target.copy_(source);
    }
  }
  return to;
}

at::Scalar scalar_of(const at::Tensor& t) {
  begin("item", {region_of(t)}, {});
  state().host_waits_for(mark_here());
  return on_cpu(t).item();
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&call_on_cpu>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty_here));
  m.impl("empty_strided", TORCH_FN(empty_strided_here));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("_copy_from", TORCH_FN(copy_here));
  m.impl("_local_scalar_dense", TORCH_FN(scalar_of));
}

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

void register_all() {
  static DeviceAllocator memory;
  static PinnedAllocator pinned;
  static Hooks hooks;
  c10::SetAllocator(kType, &memory);
  at::setHostAllocator(kType, &pinned);
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::register_privateuse1_backend("standin");
  register_gpu_operators();
}

}  // namespace

at::Device device() {
  static const bool registered = (register_all(), true);
  static_cast<void>(registered);
  return {kType, 0};
}

bool is_chosen() { return chosen; }
void expect_choices(bool on) { must_choose = on; }
int waiting_device() { return waited_on; }
std::int64_t host_synchronizations() { return state().synchronizations; }
std::int64_t operators() { return state().operators; }
std::int64_t live_bytes() { return state().memory.live(); }
std::int64_t peak_bytes() { return state().memory.peak(); }
void reset_peak() { state().memory.reset_peak(); }

void limit_memory(std::int64_t bytes) { state().memory.limit(static_cast<std::size_t>(bytes)); }

void lose() { state().lost = true; }

void start_over() {
  state().lost = false;
  state().host_waits_for(state().ordering.mark_of_all());
  take_fault();
  state().memory.start_over();
}

std::string take_fault() {
  std::string fault = state().ordering.take_fault();
  const auto add = [&](const std::string& found) {
    if (fault.empty()) fault = found;
  };
  add(state().host_copies.take_fault());
  if (worked_unchosen.exchange(false)) add("stand-in device: events of a thread that has chosen no device");
  const std::lock_guard lock(state().message_mutex);
  for (auto& [number, stream] : state().message_streams) add(stream.take_fault());
  return fault;
}

}  // namespace switchyard::standin
