// The fabric of ranks that share no memory, on any transport that moves contiguous bytes: staging of strided blocks,
// sums in list order, timeouts and abort are here, once; a Transport only brings messages.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "comm/fabric.hpp"
#include "comm/protocol.hpp"

namespace switchyard::comm {

/// One message on its way: envelope.bytes at `data`, to or from `peer`. Messages of one pair of ranks, channel and
/// direction keep their order.
struct Message {
  bool send = false;
  int peer = -1, channel = 0;
  Envelope envelope{};  // what is sent, or expected
  std::byte* data = nullptr;
  bool at_most = false;  // receive: the sender says how many of envelope.bytes come
  Envelope theirs{};     // receive: what the sender said
  bool done = false;     // belongs to Arrivals

  /// The sender said that this comes.
  void announce(const Envelope& said) {
    theirs = said;
    take_size(envelope, said, at_most);
  }
};

/// Where transports report and run() sleeps. Thread-safe.
class Arrivals {
 public:
  /// Bytes of a large message to or from a peer went on their way. Messages of one direction follow each other, so all
  /// that wait for this peer there wait for these bytes.
  void moved(int peer, bool send);
  /// A rank works (Fabric::works): what any message waits for may depend on it.
  void works() { work_.fetch_add(1, std::memory_order_relaxed); }
  /// How often it was called.
  i64 work() const { return work_.load(std::memory_order_relaxed); }
  /// Marks a receive complete, or a send buffer reusable. A receive is complete, too, when `theirs` differs from what
  /// it expects.
  void finish(Message& message);
  /// Ends all waits, also later ones. The first reason stays.
  void fail(const std::string& reason);
  std::optional<std::string> failure() const;
  enum class Outcome { done, late, failed };
  /// late: the message has not ended, nothing has moved in its direction, and no rank has worked, for so long.
  Outcome wait(const Message& message, std::chrono::milliseconds timeout) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::optional<std::string> failure_;
  mutable std::map<std::pair<int, bool>, i64> moves_;  // by peer and whether it is sent
  std::atomic<i64> work_ = 0;
};

/// Moves messages between processes. Reports to the Arrivals it was made with; calls fail() there when another rank
/// aborted or the network broke.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual const cluster::Cluster& cluster() const = 0;
  /// Starts moving; returns at once. Messages and their memory stay until finished or until stop() has returned.
  virtual void post(std::span<Message* const> messages) = 0;
  /// Informs all other ranks that this one works, at least once in each Silence::step_of() the timeout.
  virtual void works() = 0;
  /// Sends `reason` to all other ranks and releases all messages. Returns within seconds; called again, waits for the
  /// first call.
  virtual void stop(const std::string& reason) = 0;
};

/// Buffers that are handed out again and again, up to 256 MiB kept. Thread-safe.
class StagingPool {
 public:
  struct Buffer {
    std::unique_ptr<std::byte[]> memory;
    i64 capacity = 0;
  };
  /// A buffer of at least `bytes`, uninitialised, aligned for every element type.
  Buffer take(i64 bytes);
  void give(Buffer buffer);
  i64 bytes_kept() const;

 private:
  mutable std::mutex mutex_;
  std::multimap<i64, Buffer> free_;
  i64 kept_ = 0;
};

class MessageFabric final : public Fabric {
 public:
  MessageFabric(FabricOptions options, std::shared_ptr<Arrivals> arrivals, std::unique_ptr<Transport> transport);
  /// If an exception is in flight, reports to the other ranks that this one is gone.
  ~MessageFabric() override;
  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->cluster().ranks(); }
  const cluster::Cluster& cluster() const override { return transport_->cluster(); }
  void run(const Channel& channel, const Transaction& transaction) override;
  void works() override;
  i64 work_heard() const override { return arrivals_->work(); }
  void abort(const std::string& reason) override;
  std::optional<std::string> failure() const override { return arrivals_->failure(); }
  Traffic traffic() const override;

 private:
  class InFlightTransaction;

  void stop_if_failed(const Transaction& transaction) const;

  FabricOptions options_;
  int exceptions_at_start_ = std::uncaught_exceptions();
  std::shared_ptr<Arrivals> arrivals_;
  std::unique_ptr<Transport> transport_;
  std::string label_;
  StagingPool staging_;
  TransactionOrder order_;
  mutable std::mutex traffic_mutex_;
  Traffic traffic_{};
};

}  // namespace switchyard::comm
