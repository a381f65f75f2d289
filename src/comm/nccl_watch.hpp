// Watches what devices have under way: a thread that ends the job when something fails or hangs.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "comm/fabric.hpp"
#include "comm/nccl_communicator.hpp"
#include "comm/silence.hpp"

namespace switchyard::comm {

/// "channel 5", "channel 5 of ranks 0, 1".
std::string name_of_queue(const Channel& whose);

/// A rank's communicators, and what they have under way: one for messages on each channel, named by the channel with no
/// ranks, and one for each group with collectives there. Thread-safe.
class NcclWatch {
 public:
  /// Messages, or collectives, that a stream has got: between the marks. Without `done` they are being given to it.
  struct Exchange {
    std::string name;
    std::vector<int> peers;
    BlockDevice::Mark begun, done;
  };

  /// `host` reports failures of all ranks, and gets those that are found here. It and `device` outlive the watch.
  NcclWatch(Fabric& host, const BlockDevice& device, std::chrono::milliseconds timeout);
  /// Aborts what was not closed.
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  void add(const Channel& whose, std::shared_ptr<NcclCommunicator> communicator);
  /// The communicator of a channel; null: there is none.
  std::shared_ptr<NcclCommunicator> of(const Channel& whose) const;
  /// Adds an exchange of a communicator that was added before.
  void add(const Channel& whose, Exchange exchange);
  /// The stream has got what was added last to this communicator.
  void given(const Channel& whose, BlockDevice::Mark done);
  /// ClusterError if the job has failed.
  void stop_if_failed(const std::string& name) const;
  /// After an error of the library: where a peer is gone, waits a moment for the host's reason, which names it.
  void wait_for_reason(const NcclError& error) const;
  /// The job has failed: what the communicators have not handed to a stream yet, they never will.
  void abort_all();
  /// Waits for all that is under way, and ends the communicators: in order if all has gone well, by aborting them if
  /// not.
  void close();

 private:
  struct UnderWay {
    Exchange exchange;
    std::optional<Silence> silence;  // once it has begun
  };
  struct Queue {
    std::shared_ptr<NcclCommunicator> communicator;
    std::deque<UnderWay> under_way;
  };

  struct Fault {
    std::string text;
    std::optional<NcclError> error{};  // an error of the library
  };

  void watch();
  std::optional<Fault> fault();
  std::optional<Fault> fault_of(const Channel& whose, Queue& queue, bool any_works);
  bool idle() const;
  void finish();

  Fabric& host_;
  const BlockDevice& device_;
  const std::chrono::milliseconds timeout_;
  const std::string label_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Channel, Queue> queues_;
  bool closing_ = false;
  i64 work_heard_ = 0;  // only the thread uses it
  std::thread thread_;
};

}  // namespace switchyard::comm
