#include "comm/thread_fabric.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <shared_mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "comm/block.hpp"
#include "comm/protocol.hpp"
#include "comm/silence.hpp"

namespace switchyard::comm {
namespace {

// To be woken takes longer than most waits among ranks that do the same. Ranks that share a core let each other go on.
constexpr std::chrono::microseconds kAwake{500};

template <class Done>
void stay_awake_until(const Done& done) {
  for (const auto until = Clock::now() + kAwake; !done() && Clock::now() < until;) std::this_thread::yield();
}

// A sender's run() waits here until the last of its sends was taken.
struct Receipt {
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<int> open = 0;  // changes under the mutex
};

// A send that waits for its receiver. Lives in the sender's run(), which doesn't end before `done`.
struct Posting {
  const Op* op;
  Envelope envelope;
  Receipt* receipt;
  BlockDevice::Mark ready{}, taken{};  // for blocks on a device: when it may be read, and when it has been
  bool done = false;                   // under receipt->mutex
};

// Posted sends of one sender to one receiver on one channel.
struct Mailbox {
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<Posting*> queue;
  std::atomic<bool> any = false;  // in the queue; changes under the mutex
};

void settle(Posting& posting) {
  std::lock_guard lock(posting.receipt->mutex);
  posting.done = true;
  --posting.receipt->open;
  posting.receipt->changed.notify_all();  // under the lock: the receipt may be gone once it is released
}

// What the ranks share.
class Hub {
 public:
  Hub(cluster::Cluster cluster, FabricOptions options)
      : cluster_(std::move(cluster)), options_(options), work_(static_cast<size_t>(cluster_.ranks())) {
    cluster_.overlaps_collectives = false;  // the ranks' own threads copy messages, which is computing
  }

  const cluster::Cluster& cluster() const { return cluster_; }
  const FabricOptions& options() const { return options_; }

  Mailbox& mailbox(int channel, int from, int to) {
    const auto key = std::make_tuple(channel, from, to);
    {
      std::shared_lock lock(mutex_);
      const auto found = mailboxes_.find(key);
      if (found != mailboxes_.end()) return found->second;
    }
    std::unique_lock lock(mutex_);
    return mailboxes_[key];
  }

  void enter(Receipt& receipt) {
    std::unique_lock lock(mutex_);
    receipts_.insert(&receipt);
  }
  void leave(Receipt& receipt) {
    std::unique_lock lock(mutex_);
    receipts_.erase(&receipt);
  }

  i64 work() const {
    return std::transform_reduce(work_.begin(), work_.end(), i64{0}, std::plus<>(),
                                 [](const Work& of_rank) { return of_rank.count.load(std::memory_order_relaxed); });
  }
  void works(int rank) { work_[static_cast<size_t>(rank)].count.fetch_add(1, std::memory_order_relaxed); }
  /// Waits for `done`, at most until no rank has worked for the timeout, and gives whether it is so.
  template <class Done>
  bool wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, const Done& done) const {
    i64 known = work();
    return wait_within(changed, lock, options_.timeout, done, [&] {
      const i64 now = work();
      return std::exchange(known, now) != now;
    });
  }

  bool failed() const { return failed_; }
  std::string reason() const {
    std::shared_lock lock(mutex_);
    return reason_;
  }

  // The first reason wins. Sleepers look at failed() under the lock of what they sleep on, so taking it loses no
  // wake-up.
  void fail(const std::string& reason) {
    std::unique_lock lock(mutex_);
    if (failed_) return;
    reason_ = reason;
    failed_ = true;
    for (auto& [key, mailbox] : mailboxes_) {
      std::lock_guard inner(mailbox.mutex);
      mailbox.arrived.notify_all();
    }
    for (Receipt* receipt : receipts_) {
      std::lock_guard inner(receipt->mutex);
      receipt->changed.notify_all();
    }
  }

 private:
  struct alignas(64) Work {  // a cache line
    std::atomic<i64> count = 0;
  };

  cluster::Cluster cluster_;
  FabricOptions options_;
  std::vector<Work> work_;  // by rank
  mutable std::shared_mutex mutex_;
  std::map<std::tuple<int, int, int>, Mailbox> mailboxes_;
  std::set<Receipt*> receipts_;
  std::string reason_;
  std::atomic<bool> failed_ = false;
};

// The sends of one transaction: posted at construction; at destruction those that nobody took are withdrawn, and those
// being read are waited for, so that the caller may reuse its blocks.
class Sends {
 public:
  Sends(Hub& hub, int rank, const Channel& channel, const Transaction& transaction) : hub_(hub) {
    BlockDevice::Mark ready;
    for (const Op& op : transaction.ops) {
      if (op.kind != Op::Kind::send) continue;
      if (op.block.device && !ready) ready = op.block.device->mark();
      postings_.push_back({.op = &op,
                           .envelope = envelope_of(transaction, op),
                           .receipt = &receipt_,
                           .ready = op.block.device ? ready : nullptr});
    }
    if (postings_.empty()) return;
    receipt_.open = static_cast<int>(postings_.size());
    hub_.enter(receipt_);
    for (Posting& posting : postings_) {
      Mailbox& mailbox = hub_.mailbox(channel.id, rank, posting.op->peer);
      mailboxes_.push_back(&mailbox);
      std::lock_guard lock(mailbox.mutex);
      mailbox.queue.push_back(&posting);
      mailbox.any = true;
      mailbox.arrived.notify_one();
    }
  }
  Sends(const Sends&) = delete;
  Sends& operator=(const Sends&) = delete;

  ~Sends() {
    if (postings_.empty()) return;
    for (size_t i = 0; i < postings_.size(); ++i) withdraw(postings_[i], *mailboxes_[i]);
    {
      std::unique_lock lock(receipt_.mutex);
      receipt_.changed.wait(lock, [&] { return receipt_.open == 0; });
    }
    hub_.leave(receipt_);
  }

  /// Waits until all were taken; gives the peer of one that was not within the timeout. Where blocks lie on a device,
  /// its stream waits for those who read them.
  std::optional<int> wait() {
    stay_awake_until([&] { return receipt_.open == 0 || hub_.failed(); });
    std::unique_lock lock(receipt_.mutex);
    for (const Posting& posting : postings_) {
      const auto taken = [&] { return posting.done || hub_.failed(); };
      if (!hub_.wait(receipt_.changed, lock, taken)) return posting.op->peer;
      if (!posting.done) return posting.op->peer;
    }
    for (const Posting& posting : postings_)
      if (posting.taken) posting.op->block.device->wait_for(posting.taken);
    return std::nullopt;
  }

 private:
  static void withdraw(Posting& posting, Mailbox& mailbox) {
    {
      std::lock_guard lock(mailbox.mutex);
      if (std::erase(mailbox.queue, &posting) == 0) return;
      mailbox.any = !mailbox.queue.empty();
    }
    settle(posting);
  }

  Hub& hub_;
  Receipt receipt_;
  std::vector<Posting> postings_;
  std::vector<Mailbox*> mailboxes_;
};

class ThreadFabric final : public Fabric {
 public:
  ThreadFabric(std::shared_ptr<Hub> hub, int rank)
      : hub_(std::move(hub)), rank_(rank), label_(rank_label(rank, hub_->cluster())) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_->cluster().ranks(); }
  const cluster::Cluster& cluster() const override { return hub_->cluster(); }
  void works() override { hub_->works(rank_); }
  i64 work_heard() const override { return hub_->work(); }
  void abort(const std::string& reason) override { hub_->fail(reason_of(label_, reason)); }
  std::optional<std::string> failure() const override {
    return hub_->failed() ? std::optional(hub_->reason()) : std::nullopt;
  }
  bool moves_device_memory() const override { return true; }

  Traffic traffic() const override {
    std::lock_guard lock(traffic_mutex_);
    return traffic_;
  }

  void run(const Channel& channel, const Transaction& transaction) override {
    stop_if_failed(transaction);
    try {
      exchange(channel, transaction);
    } catch (const std::exception& error) {
      abort(error.what());
      throw;
    }
    std::lock_guard lock(traffic_mutex_);
    count_traffic(traffic_, rank_, transaction, cluster());
  }

 private:
  void exchange(const Channel& channel, const Transaction& transaction) {
    check_transaction(rank_, channel, transaction);
    if (hub_->options().strict) {
      order_.check_next(rank_, channel, transaction);
      check_sends_unwritten(rank_, transaction);
      poison_receives(transaction);
    }
    Sends sends(*hub_, rank_, channel, transaction);
    for (const Op& op : transaction.ops) {
      if (op.kind == Op::Kind::recv) receive(channel, transaction, op);
      if (op.kind == Op::Kind::local) apply(op, op.source);
    }
    if (const auto late = sends.wait()) {
      stop_if_failed(transaction);
      throw ClusterError(not_taken(label_, transaction, *late, hub_->options().timeout));
    }
  }

  void receive(const Channel& channel, const Transaction& transaction, const Op& op) {
    Posting& posting = take(hub_->mailbox(channel.id, op.peer, rank_), transaction, op.peer);
    // Settled however this ends: the sender sleeps until its block is free.
    const std::unique_ptr<Posting, decltype(&settle_pointer)> settled(&posting, &settle_pointer);
    Envelope mine = envelope_of(transaction, op);
    take_size(mine, posting.envelope, op.at_most);
    if (mine != posting.envelope)
      throw ClusterError(disagreement(label_, transaction, op.peer, mine, posting.envelope));
    if (posting.ready && op.block.device) op.block.device->wait_for(posting.ready);
    apply(op, posting.op->block);
    if (posting.ready) posting.taken = op.block.device->mark();
  }

  Posting& take(Mailbox& mailbox, const Transaction& transaction, int peer) {
    stay_awake_until([&] { return mailbox.any || hub_->failed(); });
    std::unique_lock lock(mailbox.mutex);
    const auto arrived = [&] { return !mailbox.queue.empty() || hub_->failed(); };
    const bool came = hub_->wait(mailbox.arrived, lock, arrived);
    if (hub_->failed()) {
      lock.unlock();  // fail() takes the locks in the other order
      stop_if_failed(transaction);
    }
    if (!came) throw ClusterError(heard_nothing(label_, transaction, peer, hub_->options().timeout));
    Posting& posting = *mailbox.queue.front();
    mailbox.queue.pop_front();
    mailbox.any = !mailbox.queue.empty();
    return posting;
  }

  static void settle_pointer(Posting* posting) { settle(*posting); }

  static void apply(const Op& op, const Block& from) {
    if (op.decode) return op.decode({from.data, static_cast<size_t>(from.bytes())});
    op.add ? add_block(op.block, from, op.dtype) : copy_block(op.block, from);
  }

  void stop_if_failed(const Transaction& transaction) const {
    if (hub_->failed()) throw ClusterError(stopped(label_, transaction.name, hub_->reason()));
  }

  std::shared_ptr<Hub> hub_;
  int rank_;
  std::string label_;
  TransactionOrder order_;
  mutable std::mutex traffic_mutex_;
  Traffic traffic_{};
};

}  // namespace

std::vector<std::unique_ptr<Fabric>> thread_fabrics(int ranks, cluster::Cluster cluster, FabricOptions options) {
  check(cluster.ranks() == ranks, "thread fabric of {} ranks on a cluster of {}", ranks, cluster.ranks());
  const auto hub = std::make_shared<Hub>(std::move(cluster), options);
  std::vector<std::unique_ptr<Fabric>> fabrics;
  for (int rank = 0; rank < ranks; ++rank) fabrics.push_back(std::make_unique<ThreadFabric>(hub, rank));
  return fabrics;
}

}  // namespace switchyard::comm
