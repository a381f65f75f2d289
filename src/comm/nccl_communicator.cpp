#include "comm/nccl_communicator.hpp"

#include <fmt/core.h>

#include <chrono>
#include <thread>
#include <utility>

namespace switchyard::comm {
namespace {

constexpr std::chrono::seconds kPatience{2};  // with a call that an abort waits for
constexpr std::chrono::milliseconds kPause{1};

nccl::DataType type_of(DType type) {
  switch (type) {
    case DType::f64:
      return nccl::DataType::float64;
    case DType::f32:
      return nccl::DataType::float32;
    case DType::bf16:
      return nccl::DataType::bfloat16;
    case DType::i64:
      return nccl::DataType::int64;
    case DType::i32:
      return nccl::DataType::int32;
    case DType::u8:
      break;
  }
  return nccl::DataType::uint8;
}

}  // namespace

NcclCommunicator::NcclCommunicator(const NcclLibrary& library, int ranks, const nccl::UniqueId& id, int rank,
                                   int blocks)
    : library_(library) {
  nccl::Config config{.blocking = 0, .max_ctas = blocks};
  Handle made = nullptr;
  const nccl::Result result = library_.CommInitRankConfig(&made, ranks, id, rank, &config);
  handle_ = made;
  expect(result, "ncclCommInitRankConfig");
}

NcclCommunicator::~NcclCommunicator() { abort(); }

NcclCommunicator::Handle NcclCommunicator::handle() const {
  const Handle handle = handle_;
  if (!handle) throw NcclError("the communicator was aborted");
  return handle;
}

void NcclCommunicator::expect(nccl::Result result, const char* function) const {
  if (result != nccl::Result::success && result != nccl::Result::in_progress)
    throw NcclError(fmt::format("{}: {}", function, library_.explain(result)), result == nccl::Result::remote_error);
}

bool NcclCommunicator::state() const {
  nccl::Result result = nccl::Result::success;
  expect(library_.CommGetAsyncError(handle(), &result), "ncclCommGetAsyncError");
  expect(result, "asynchronous error");
  return result == nccl::Result::success;
}

bool NcclCommunicator::ready() {
  const std::lock_guard lock(mutex_);
  return state();
}

std::optional<bool> NcclCommunicator::ready_if_free() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !handle_) return std::nullopt;
  return state();
}

template <class Call, class Issue>
void NcclCommunicator::issue_group(std::span<const Call> calls, const Issue& issue) {
  const std::lock_guard lock(mutex_);
  const Handle to = handle();
  expect(library_.GroupStart(), "ncclGroupStart");
  nccl::Result failed = nccl::Result::success;
  const char* function = nullptr;
  for (const Call& call : calls) {
    const auto [result, name] = issue(call, to);
    if (result == nccl::Result::success || result == nccl::Result::in_progress) continue;
    failed = result, function = name;
    break;
  }
  const nccl::Result ended = library_.GroupEnd();  // also after an error: groups are the thread's
  if (function) expect(failed, function);
  expect(ended, "ncclGroupEnd");
}

void NcclCommunicator::issue(std::span<const NcclMessage> messages, void* stream) {
  issue_group(messages, [&](const NcclMessage& m, Handle to) {
    const auto bytes = static_cast<std::size_t>(m.bytes);
    return m.send ? std::pair(library_.Send(m.data, bytes, nccl::DataType::int8, m.peer, to, stream), "ncclSend")
                  : std::pair(library_.Recv(m.data, bytes, nccl::DataType::int8, m.peer, to, stream), "ncclRecv");
  });
}

void NcclCommunicator::issue(std::span<const NcclCollective> collectives, void* stream) {
  issue_group(collectives, [&](const NcclCollective& c, Handle to) {
    const auto elements = static_cast<std::size_t>(c.elements);
    const nccl::DataType type = type_of(c.dtype);
    switch (c.call) {
      case GroupCall::all_gather:
        return std::pair(library_.AllGather(c.in, c.out, elements, type, to, stream), "ncclAllGather");
      case GroupCall::reduce_scatter:
        return std::pair(library_.ReduceScatter(c.in, c.out, elements, type, nccl::RedOp::sum, to, stream),
                         "ncclReduceScatter");
      case GroupCall::all_reduce:
        break;
    }
    return std::pair(library_.AllReduce(c.in, c.out, elements, type, nccl::RedOp::sum, to, stream), "ncclAllReduce");
  });
}

void NcclCommunicator::finalize() {
  const std::lock_guard lock(mutex_);
  expect(library_.CommFinalize(handle()), "ncclCommFinalize");
}

void NcclCommunicator::close() {
  const std::lock_guard lock(mutex_);
  if (const Handle closed = handle_.exchange(nullptr)) expect(library_.CommDestroy(closed), "ncclCommDestroy");
}

void NcclCommunicator::abort() {
  std::unique_lock lock(mutex_, std::defer_lock);
  for (const auto until = std::chrono::steady_clock::now() + kPatience;
       !lock.try_lock() && std::chrono::steady_clock::now() < until;)
    std::this_thread::sleep_for(kPause);
  if (const Handle aborted = handle_.exchange(nullptr)) library_.CommAbort(aborted);
}

}  // namespace switchyard::comm
