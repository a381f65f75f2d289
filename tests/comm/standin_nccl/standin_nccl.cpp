// A stand-in for libnccl.so.2: it has the functions that the fabric uses, and moves bytes between ranks that are
// threads or processes of one machine, over sockets. Like NCCL's communicators that don't block, it connects and hands
// work to streams only while it is asked for its state. A communicator ends when nothing is under way on its device, as
// it gives memory back, for which CUDA waits. It makes sums in the order of ranks. Faults can be asked for
// (standin_nccl_fault), and calls are counted (standin_nccl_calls).
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
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/bfloat16.hpp"
#include "comm/nccl_library.hpp"
#include "stream.hpp"

#ifndef STANDIN_NCCL_VERSION
#define STANDIN_NCCL_VERSION 22705
#endif

namespace {

using switchyard::comm::StandinStream;
using switchyard::comm::nccl::Config;
using switchyard::comm::nccl::DataType;
using switchyard::comm::nccl::RedOp;
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

// Calls by function. A process that has STANDIN_NCCL_CALLS writes them at its end to a file of this name and its
// number.
class Calls {
 public:
  void count(const std::string& function) {
    const std::lock_guard lock(mutex_);
    ++counts_[function];
  }
  long of(const std::string& function) {
    const std::lock_guard lock(mutex_);
    return counts_[function];
  }
  void write() const {
    const std::string path = from_environment("STANDIN_NCCL_CALLS", "");
    if (path.empty()) return;
    std::ofstream file(path + "." + std::to_string(getpid()));
    for (const auto& [function, count] : counts_) file << function << " " << count << "\n";
  }

 private:
  std::mutex mutex_;
  std::map<std::string, long> counts_;
};
Calls calls;
// So ends the program.
[[maybe_unused]] const int written = std::at_quick_exit([] { calls.write(); });

std::size_t bytes_of(DataType type) {
  switch (type) {
    case DataType::float64:
    case DataType::int64:
      return 8;
    case DataType::float32:
    case DataType::int32:
      return 4;
    case DataType::bfloat16:
      return 2;
    case DataType::int8:
    case DataType::uint8:
      break;
  }
  return 1;
}

template <class T>
void add(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes / sizeof(T); ++i)
    reinterpret_cast<T*>(to)[i] += reinterpret_cast<const T*>(from)[i];
}

void add_bf16(std::byte* to, const std::byte* from, std::size_t bytes) {
  auto* x = reinterpret_cast<std::uint16_t*>(to);
  const auto* y = reinterpret_cast<const std::uint16_t*>(from);
  for (std::size_t i = 0; i < bytes / 2; ++i)
    x[i] = switchyard::bfloat16_bits(switchyard::bfloat16_value(x[i]) + switchyard::bfloat16_value(y[i]));
}

void add(DataType type, std::byte* to, const std::byte* from, std::size_t bytes) {
  switch (type) {
    case DataType::float64:
      return add<double>(to, from, bytes);
    case DataType::float32:
      return add<float>(to, from, bytes);
    case DataType::bfloat16:
      return add_bf16(to, from, bytes);
    case DataType::int64:
      return add<std::int64_t>(to, from, bytes);
    case DataType::int32:
      return add<std::int32_t>(to, from, bytes);
    case DataType::int8:
    case DataType::uint8:
      return add<std::uint8_t>(to, from, bytes);
  }
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
  std::uint64_t kind = 0;  // what it is a part of: a message, or such a collective
};

// What each rank gives and gets; bytes: of a piece.
struct Collective {
  enum class Kind { gather, scatter, reduce } kind;
  std::byte *in, *out;
  std::size_t bytes;
  DataType type;
};

std::uint64_t kind_of(const Collective& c) {
  return 1 + 16 * static_cast<std::uint64_t>(c.kind) + static_cast<std::uint64_t>(c.type);
}

// The work of one call on a stream: collectives that were issued in one group follow each other between all ranks.
struct Group {
  std::vector<Move> moves;
  std::vector<Collective> collectives;
  StandinStream* stream = nullptr;
};

// Exchanges that are under way, by device: each rank has one, and makes its communicators on one thread.
class UnderWay {
 public:
  void add(std::thread::id device, int change) {
    const std::lock_guard lock(mutex_);
    counts_[device] += change;
  }
  void wait_for_none(std::thread::id device) {
    while (!none(device)) std::this_thread::sleep_for(kPause);
  }

 private:
  bool none(std::thread::id device) {
    const std::lock_guard lock(mutex_);
    return counts_[device] == 0;
  }
  std::mutex mutex_;
  std::map<std::thread::id, int> counts_;
};
UnderWay under_way;

class Ranks {
 public:
  Ranks(int size, const UniqueId& id, int rank)
      : rank_(rank), device_(std::this_thread::get_id()), peers_(static_cast<std::size_t>(size), -1) {
    thread_ = std::thread([this, id] { connect(id); });
  }
  ~Ranks() {
    for (const int peer : peers_)
      if (peer >= 0) close(peer);
  }

  int rank() const { return rank_; }
  void give(Move move) {
    group_.moves.push_back(move);
    group_.stream = move.stream;
  }
  void give(Collective collective, StandinStream* stream) {
    group_.collectives.push_back(collective);
    group_.stream = stream;
  }
  void end_group() {
    if (asked_for("async", rank_)) return fail(Result::system_error);
    waiting_ = std::exchange(group_, {});
    asked_ = 0;
    if (waiting_.stream) result_ = Result::in_progress;
  }
  // The third question hands the group to its stream.
  Result state(const std::shared_ptr<Ranks>& self) {
    if (result_ == Result::in_progress && waiting_.stream && ++asked_ == 3) {
      const Group group = std::exchange(waiting_, {});
      taker_ = group.stream;
      taker_->run([self, group] { self->run(group); });
    }
    if (taker_ && taker_->is_free()) {
      taker_ = nullptr;
      if (result_ == Result::in_progress) result_ = Result::success;
    }
    return result_;
  }
  void stop() {
    stopped_ = true;
    under_way.wait_for_none(device_);
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

  // A message in one direction with one peer: its size and kind go first.
  struct Part {
    Move move;
    std::size_t at = 0;
    std::uint64_t size = 0;
  };

  // Moves what can be moved now. False: the peer is gone, or has another size, or makes another call, of which NCCL
  // would make anything.
  bool advance(std::deque<Part>& parts, bool& moved) {
    while (!parts.empty()) {
      Part& part = parts.front();
      const std::size_t head = sizeof part.size, total = head + part.move.bytes;
      const std::uint64_t expected = part.move.bytes | part.move.kind << 56;
      if (part.move.send) part.size = expected;
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
      if (part.at == head && part.size != expected) return false;
      if (part.at == total) parts.pop_front();
    }
    return true;
  }

  // On the stream.
  void run(Group group) {
    const auto used = [&](std::byte* data, std::size_t bytes, bool write) {
      return group.stream->use(data, static_cast<std::int64_t>(bytes), write);
    };
    for (Move& m : group.moves) m.data = used(m.data, m.bytes, !m.send);
    const std::size_t n = peers_.size();
    for (Collective& c : group.collectives) {
      c.in = used(c.in, c.bytes * (c.kind == Collective::Kind::scatter ? n : 1), false);
      c.out = used(c.out, c.bytes * (c.kind == Collective::Kind::gather ? n : 1), true);
    }
    exchange(group.moves);
    for (const Collective& c : group.collectives) run(c);
  }

  void run(const Collective& c) {
    const auto n = peers_.size(), mine = static_cast<std::size_t>(rank_);
    const bool gathers = c.kind == Collective::Kind::gather;
    std::vector<std::byte> came(gathers ? 0 : n * c.bytes);
    std::byte* const to = gathers ? c.out : came.data();
    const auto given = [&](std::size_t rank) {
      return c.kind == Collective::Kind::scatter ? c.in + rank * c.bytes : c.in;
    };
    std::vector<Move> moves;
    for (std::size_t r = 0; r < n; ++r) {
      if (r == mine) continue;
      moves.push_back({true, given(r), c.bytes, static_cast<int>(r), nullptr, kind_of(c)});
      moves.push_back({false, to + r * c.bytes, c.bytes, static_cast<int>(r), nullptr, kind_of(c)});
    }
    std::memmove(to + mine * c.bytes, given(mine), c.bytes);
    exchange(moves);
    if (gathers || stopped_) return;
    std::memcpy(c.out, to, c.bytes);
    for (std::size_t r = 1; r < n; ++r) add(c.type, c.out, to + r * c.bytes, c.bytes);
  }

  // At most for a pause: the communicator may be aborted meanwhile.
  void wait_for_peers(const std::vector<std::deque<Part>>& queues) const {
    std::vector<pollfd> open;
    for (const auto& queue : queues)
      if (!queue.empty()) {
        const Move& move = queue.front().move;
        const short events = move.send ? POLLOUT : POLLIN;
        open.push_back({peers_[static_cast<std::size_t>(move.peer)], events, 0});
      }
    poll(open.data(), open.size(), static_cast<int>(kPause.count()));
  }

  // What can't go on stays there until the communicator is aborted, as on a device.
  void exchange(const std::vector<Move>& moves) {
    std::vector<std::deque<Part>> queues(2 * peers_.size());
    for (const Move& m : moves) queues[static_cast<std::size_t>(2 * m.peer + (m.send ? 1 : 0))].push_back({m});
    bool goes_on = !asked_for("hang", rank_);
    under_way.add(device_, 1);
    while (!stopped_) {
      bool done = true, moved = false;
      for (auto& queue : queues) {
        if (goes_on && !advance(queue, moved)) goes_on = false;
        done = done && queue.empty();
      }
      if (done) break;
      if (!moved) wait_for_peers(goes_on ? queues : decltype(queues)());
    }
    under_way.add(device_, -1);
  }

  const int rank_;
  const std::thread::id device_;
  std::vector<int> peers_;  // sockets
  Group group_, waiting_;
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
  calls.count(move.send ? "ncclSend" : "ncclRecv");
  to->ranks->give(move);
  grouped.push_back(to->ranks.get());
  return Result::success;
}

Result give(const char* function, Communicator* to, Collective::Kind kind, const void* in, void* out, std::size_t count,
            DataType type, void* stream) {
  if (asked_for("collective", to->ranks->rank())) return Result::invalid_argument;
  if (depth == 0 || !stream) return Result::invalid_usage;
  calls.count(function);
  auto* from = const_cast<std::byte*>(static_cast<const std::byte*>(in));
  to->ranks->give({kind, from, static_cast<std::byte*>(out), count * bytes_of(type), type},
                  static_cast<StandinStream*>(stream));
  grouped.push_back(to->ranks.get());
  return Result::success;
}

}  // namespace

extern "C" {

/// From now on this goes wrong on `rank` of communicators, or on all if it is negative: "unique_id", "init",
/// "init_hang", "send", "collective", "async" or "hang". Empty: nothing. Processes start with STANDIN_NCCL_FAULT on
/// STANDIN_NCCL_FAULT_RANK.
void standin_nccl_fault(const char* fault, int rank) {
  const std::lock_guard lock(fault_mutex);
  fault_name = fault, fault_rank = rank;
}

/// How often a function was called in this process.
long standin_nccl_calls(const char* function) { return calls.of(function); }

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
  // NCCL would take the next power of two: more blocks than it was told.
  if ((config->max_ctas & (config->max_ctas - 1)) != 0) return Result::invalid_argument;
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

Result ncclAllGather(const void* in, void* out, std::size_t count, DataType type, Communicator* to, void* stream) {
  return give("ncclAllGather", to, Collective::Kind::gather, in, out, count, type, stream);
}

Result ncclReduceScatter(const void* in, void* out, std::size_t count, DataType type, RedOp, Communicator* to,
                         void* stream) {
  return give("ncclReduceScatter", to, Collective::Kind::scatter, in, out, count, type, stream);
}

Result ncclAllReduce(const void* in, void* out, std::size_t count, DataType type, RedOp, Communicator* to,
                     void* stream) {
  return give("ncclAllReduce", to, Collective::Kind::reduce, in, out, count, type, stream);
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
