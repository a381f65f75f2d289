// A communicator of NCCL whose calls never block: what the library does in threads of its own is asked for.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>

#include "base/dtype.hpp"
#include "base/group_call.hpp"
#include "comm/nccl_library.hpp"

namespace switchyard::comm {

/// A message of contiguous bytes of a device's memory.
struct NcclMessage {
  bool send = false;
  int peer = -1;
  std::byte* data = nullptr;
  i64 bytes = 0;
};

/// A collective of all ranks of a communicator, on contiguous elements of a device's memory. `out` may be `in` of
/// all_reduce; `in` of all_gather may be the rank's piece of `out`.
struct NcclCollective {
  GroupCall call = GroupCall::all_gather;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  i64 elements = 0;  // elements of a piece
  DType dtype = DType::f32;
};

/// What the library says of an error, or that a communicator was aborted. remote: a peer is gone, or the way to it;
/// which one, the library does not say.
class NcclError : public std::runtime_error {
 public:
  explicit NcclError(const std::string& what, bool remote = false) : std::runtime_error(what), remote_(remote) {}
  bool remote() const { return remote_; }

 private:
  bool remote_;
};

/// Thread-safe: calls of the library for one communicator take turns.
class NcclCommunicator {
 public:
  /// Begins to connect the ranks. Messages use at most `blocks` thread blocks of the device at once. `library` outlives
  /// it.
  NcclCommunicator(const NcclLibrary& library, int ranks, const nccl::UniqueId& id, int rank, int blocks);
  /// Aborts it if it was not closed.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  /// Whether all that was asked for, connecting and messages, has been done, the latter in so far that the stream has
  /// got them. NcclError if the library found an error, also in messages that a stream has got.
  bool ready();
  /// The same for a thread that only looks; nothing while another one is in a call.
  std::optional<bool> ready_if_free();
  /// Gives the messages to the stream, as a group: they are done together. When ready, it has got them.
  void issue(std::span<const NcclMessage> messages, void* stream);
  void issue(std::span<const NcclCollective> collectives, void* stream);
  /// Begins to end it. All messages are done; when ready, close() returns at once.
  void finalize();
  void close();
  /// Ends messages that are under way; they leave their memory as it happens to be. Also beside a call that doesn't
  /// come back.
  void abort();

 private:
  using Handle = nccl::Communicator*;
  Handle handle() const;
  void expect(nccl::Result result, const char* function) const;
  bool state() const;
  template <class Call, class Issue>
  void issue_group(std::span<const Call> calls, const Issue& issue);

  const NcclLibrary& library_;
  std::mutex mutex_;
  std::atomic<Handle> handle_ = nullptr;
};

}  // namespace switchyard::comm
