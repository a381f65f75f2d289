// A stand-in for libnccl.so.2: it has the functions that the fabric uses, and moves bytes between ranks that are
// threads or processes of one machine, over sockets. Like NCCL's communicators that don't block, it connects and hands
// work to streams only while it is asked for its state. Faults can be asked for (standin_nccl_fault).
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/nccl_library.hpp"
#include "stream.hpp"

#ifndef STANDIN_NCCL_VERSION
#define STANDIN_NCCL_VERSION 22705
#endif

namespace {

using switchyard::comm::StandinStream;
using switchyard::comm::nccl::Config;
using switchyard::comm::nccl::DataType;
using switchyard::comm::nccl::Result;
using switchyard::comm::nccl::UniqueId;

constexpr auto kPause = std::chrono::milliseconds(1);

std::string from_environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

std::mutex fault_mutex;
std::string fault_name = from_environment("STANDIN_NCCL_FAULT", ""), last_error;
int fault_rank = std::stoi(from_environment("STANDIN_NCCL_FAULT_RANK", "-1"));

bool asked_for(const std::string& fault, int rank) {
  const std::lock_guard lock(fault_mutex);
  if (fault_name != fault || (fault_rank >= 0 && fault_rank != rank)) return false;
  last_error = fault + " on purpose";
  return true;
}

// Where rank `rank` of the communicator `id` listens: a name that needs no file.
sockaddr_un address_of(const UniqueId& id, int rank) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "standin-nccl-" + std::string(id.internal) + "-" + std::to_string(rank);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return address;
}

struct Move {
  bool send;
  std::byte* data;
  std::size_t bytes;
  int peer;
  StandinStream* stream;
};

class Ranks {
 public:
  Ranks(int size, const UniqueId& id, int rank) : rank_(rank), peers_(static_cast<std::size_t>(size), -1) {
    thread_ = std::thread([this, id] { connect(id); });
  }
  ~Ranks() {
    for (const int peer : peers_)
      if (peer >= 0) close(peer);
  }

  int rank() const { return rank_; }
  void give(Move move) { group_.push_back(move); }
  void end_group() {
    if (asked_for("async", rank_)) return fail(Result::system_error);
    waiting_ = std::move(group_);
    group_.clear();
    asked_ = 0;
    if (!waiting_.empty()) result_ = Result::in_progress;
  }
  // The third question hands the group to its stream.
  Result state(const std::shared_ptr<Ranks>& self) {
    if (result_ == Result::in_progress && !waiting_.empty() && ++asked_ == 3) {
      const std::vector<Move> moves = std::move(waiting_);
      waiting_.clear();
      taker_ = moves.front().stream;
      taker_->run([self, moves] { self->exchange(moves); });
    }
    if (taker_ && taker_->is_free()) {
      taker_ = nullptr;
      if (result_ == Result::in_progress) result_ = Result::success;
    }
    return result_;
  }
  void stop() {
    stopped_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  void fail(Result result) { result_ = result; }

  void connect(const UniqueId& id) {
    if (asked_for("init", rank_)) return fail(Result::unhandled_cuda_error);
    while (asked_for("init_hang", rank_) && !stopped_) std::this_thread::sleep_for(kPause);
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    const sockaddr_un mine = address_of(id, rank_);
    bind(listener, reinterpret_cast<const sockaddr*>(&mine), sizeof mine);
    listen(listener, 64);
    for (int peer = 0; peer < rank_ && !stopped_; ++peer) call(id, peer);
    for (int left = static_cast<int>(peers_.size()) - rank_ - 1; left > 0 && !stopped_;) {
      pollfd ready{listener, POLLIN, 0};
      if (poll(&ready, 1, 1) != 1) continue;
      const int from = accept(listener, nullptr, nullptr);
      int peer = -1;
      if (recv(from, &peer, sizeof peer, MSG_WAITALL) == sizeof peer) peers_[static_cast<std::size_t>(peer)] = from;
      --left;
    }
    close(listener);
    result_ = Result::success;
  }

  void call(const UniqueId& id, int peer) {
    const sockaddr_un theirs = address_of(id, peer);
    while (!stopped_) {
      const int to = socket(AF_UNIX, SOCK_STREAM, 0);
      if (::connect(to, reinterpret_cast<const sockaddr*>(&theirs), sizeof theirs) == 0) {
        peers_[static_cast<std::size_t>(peer)] = to;
        send(to, &rank_, sizeof rank_, MSG_NOSIGNAL);
        return;
      }
      close(to);
      std::this_thread::sleep_for(kPause);
    }
  }

  // A message in one direction with one peer: its size goes first.
  struct Part {
    Move move;
    std::size_t at = 0;
    std::uint64_t size = 0;
  };

  // Moves what can be moved now. False: the peer is gone, or has another size.
  bool advance(std::deque<Part>& parts, bool& moved) {
    while (!parts.empty()) {
      Part& part = parts.front();
      const std::size_t head = sizeof part.size, total = head + part.move.bytes;
      if (part.move.send) part.size = part.move.bytes;
      std::byte* const at =
          part.at < head ? reinterpret_cast<std::byte*>(&part.size) + part.at : part.move.data + (part.at - head);
      const std::size_t left = (part.at < head ? head : total) - part.at;
      const int peer = peers_[static_cast<std::size_t>(part.move.peer)];
      const ssize_t n =
          part.move.send ? send(peer, at, left, MSG_DONTWAIT | MSG_NOSIGNAL) : recv(peer, at, left, MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
      if (n <= 0) {
        fail(Result::remote_error);
        return false;
      }
      moved = true;
      part.at += static_cast<std::size_t>(n);
      if (part.at == head && part.size != part.move.bytes) return false;
      if (part.at == total) parts.pop_front();
    }
    return true;
  }

  // On the stream. What can't go on stays there until the communicator is aborted, as on a device.
  void exchange(std::vector<Move> moves) {
    for (Move& m : moves) m.data = m.stream->use(m.data, static_cast<std::int64_t>(m.bytes), !m.send);
    std::vector<std::deque<Part>> queues(2 * peers_.size());
    for (const Move& m : moves) queues[static_cast<std::size_t>(2 * m.peer + (m.send ? 1 : 0))].push_back({m});
    bool goes_on = !asked_for("hang", rank_);
    while (!stopped_) {
      bool done = true, moved = false;
      for (auto& queue : queues) {
        if (goes_on && !advance(queue, moved)) goes_on = false;
        done = done && queue.empty();
      }
      if (done) return;
      if (!moved) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  const int rank_;
  std::vector<int> peers_;  // sockets
  std::vector<Move> group_, waiting_;
  int asked_ = 0;
  StandinStream* taker_ = nullptr;  // got the last group, and may not be free
  std::atomic<Result> result_ = Result::in_progress;
  std::atomic<bool> stopped_ = false;
  std::thread thread_;
};

thread_local int depth = 0;
thread_local std::vector<Ranks*> grouped;

}  // namespace

namespace switchyard::comm::nccl {
// Work on a stream may outlive it.
struct Communicator {
  std::shared_ptr<Ranks> ranks;
};
}  // namespace switchyard::comm::nccl

using switchyard::comm::nccl::Communicator;

namespace {

Result give(Communicator* to, Move move) {
  if (asked_for("send", to->ranks->rank())) return Result::invalid_argument;
  if (depth == 0 || !move.stream) return Result::invalid_usage;
  to->ranks->give(move);
  grouped.push_back(to->ranks.get());
  return Result::success;
}

}  // namespace

extern "C" {

/// From now on this goes wrong on `rank`, or on all if it is negative: "unique_id", "init", "init_hang", "send",
/// "async" or "hang". Empty: nothing. Processes start with STANDIN_NCCL_FAULT on STANDIN_NCCL_FAULT_RANK.
void standin_nccl_fault(const char* fault, int rank) {
  const std::lock_guard lock(fault_mutex);
  fault_name = fault, fault_rank = rank;
}

Result ncclGetVersion(int* version) {
  *version = STANDIN_NCCL_VERSION;
  return Result::success;
}

Result ncclGetUniqueId(UniqueId* id) {
  if (asked_for("unique_id", -1)) return Result::system_error;
  static std::atomic<int> made = 0;
  const std::string name = std::to_string(std::random_device{}()) + "-" + std::to_string(++made);
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, name.data(), name.size());
  return Result::success;
}

Result ncclCommInitRankConfig(Communicator** made, int size, UniqueId id, int rank, Config* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0 || config->max_ctas < 1) return Result::invalid_argument;
  *made = new Communicator{std::make_shared<Ranks>(size, id, rank)};
  return Result::in_progress;
}

Result ncclCommGetAsyncError(Communicator* of, Result* result) {
  *result = of->ranks->state(of->ranks);
  return Result::success;
}

Result ncclCommFinalize(Communicator*) { return Result::success; }

Result ncclCommDestroy(Communicator* of) {
  of->ranks->stop();
  delete of;
  return Result::success;
}

#ifndef STANDIN_NCCL_WITHOUT_ABORT
Result ncclCommAbort(Communicator* of) { return ncclCommDestroy(of); }
#endif

Result ncclGroupStart() {
  ++depth;
  return Result::success;
}

Result ncclGroupEnd() {
  if (--depth > 0) return Result::success;
  std::sort(grouped.begin(), grouped.end());
  grouped.erase(std::unique(grouped.begin(), grouped.end()), grouped.end());
  for (Ranks* ranks : grouped) ranks->end_group();
  const bool any = !grouped.empty();
  grouped.clear();
  return any ? Result::in_progress : Result::success;
}

Result ncclSend(const void* data, std::size_t count, DataType, int peer, Communicator* to, void* stream) {
  auto* bytes = const_cast<std::byte*>(static_cast<const std::byte*>(data));
  return give(to, {true, bytes, count, peer, static_cast<StandinStream*>(stream)});
}

Result ncclRecv(void* data, std::size_t count, DataType, int peer, Communicator* to, void* stream) {
  return give(to, {false, static_cast<std::byte*>(data), count, peer, static_cast<StandinStream*>(stream)});
}

const char* ncclGetErrorString(Result result) {
  switch (result) {
    case Result::unhandled_cuda_error:
      return "unhandled cuda error";
    case Result::system_error:
      return "unhandled system error";
    case Result::remote_error:
      return "remote process exited or there was a network error";
    case Result::invalid_argument:
      return "invalid argument";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(Communicator*) {
  const std::lock_guard lock(fault_mutex);
  thread_local std::string text;
  text = last_error;
  return text.c_str();
}
}
