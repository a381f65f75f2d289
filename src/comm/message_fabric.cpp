#include "comm/message_fabric.hpp"

#include <deque>
#include <exception>
#include <utility>

#include "base/errors.hpp"
#include "comm/block.hpp"
#include "comm/silence.hpp"

namespace switchyard::comm {
namespace {

constexpr i64 kKeptBytes = i64{256} << 20;   // staging kept between transactions
constexpr i64 kStagedBytes = i64{64} << 20;  // receives that are posted early

}  // namespace

void Arrivals::finish(Message& message) {
  std::lock_guard lock(mutex_);
  message.done = true;
  changed_.notify_all();
}

void Arrivals::moved(int peer, bool send) {
  std::lock_guard lock(mutex_);
  ++moves_[{peer, send}];
}

void Arrivals::fail(const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (!failure_) failure_ = reason;
  changed_.notify_all();
}

std::optional<std::string> Arrivals::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

Arrivals::Outcome Arrivals::wait(const Message& message, std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  const i64& moves = moves_[{message.peer, message.send}];
  const auto signs = [&] { return moves + work_.load(std::memory_order_relaxed); };
  i64 known = signs();
  if (!wait_within(
          changed_, lock, timeout, [&] { return message.done || failure_; },
          [&] {
            const i64 now = signs();
            return std::exchange(known, now) != now;
          }))
    return Outcome::late;
  return message.done ? Outcome::done : Outcome::failed;
}

StagingPool::Buffer StagingPool::take(i64 bytes) {
  {
    std::lock_guard lock(mutex_);
    const auto fit = free_.lower_bound(bytes);
    if (fit != free_.end()) {
      Buffer buffer = std::move(fit->second);
      free_.erase(fit);
      kept_ -= buffer.capacity;
      return buffer;
    }
  }
  return {std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes)), bytes};
}

void StagingPool::give(Buffer buffer) {
  if (!buffer.memory) return;
  std::lock_guard lock(mutex_);
  kept_ += buffer.capacity;
  free_.emplace(buffer.capacity, std::move(buffer));
  while (kept_ > kKeptBytes) {
    const auto smallest = free_.begin();  // large ones are expensive to allocate
    kept_ -= smallest->first;
    free_.erase(smallest);
  }
}

i64 StagingPool::bytes_kept() const {
  std::lock_guard lock(mutex_);
  return kept_;
}

// One transaction under way: its messages and their staging. Outlives everything the transport does with them.
class MessageFabric::InFlightTransaction {
 public:
  InFlightTransaction(MessageFabric& fabric, const Channel& channel, const Transaction& transaction)
      : fabric_(fabric), channel_(channel), transaction_(transaction) {}
  InFlightTransaction(const InFlightTransaction&) = delete;
  InFlightTransaction& operator=(const InFlightTransaction&) = delete;
  ~InFlightTransaction() {
    for (Item& item : items_) fabric_.staging_.give(std::move(item.staging));
  }

  void go() {
    add_sends();
    post_with_receives();
    for (size_t i = 0; i < transaction_.ops.size(); ++i) {
      const Op& op = transaction_.ops[i];
      if (op.kind == Op::Kind::recv) receive(i);
      if (op.kind == Op::Kind::local) apply(op, op.source);
    }
    for (const Item& item : items_)
      if (item.message.send) wait(item.message, &not_taken);
  }

 private:
  struct Item {
    Message message;
    StagingPool::Buffer staging;
  };

  Item& add_item(const Op& op, bool in_place) {
    Item& item = items_.emplace_back();
    const Envelope envelope = envelope_of(transaction_, op);
    if (!in_place) item.staging = fabric_.staging_.take(envelope.bytes);
    item.message = {.send = op.kind == Op::Kind::send,
                    .peer = op.peer,
                    .channel = channel_.id,
                    .envelope = envelope,
                    .data = in_place ? op.block.data : item.staging.memory.get(),
                    .at_most = op.at_most};
    return item;
  }

  void add_sends() {
    for (const Op& op : transaction_.ops) {
      if (op.kind != Op::Kind::send) continue;
      Item& item = add_item(op, is_contiguous(op.block));
      if (item.staging.memory) copy_block(contiguous(item.message.data, op.block.bytes()), op.block);
      added_.push_back(&item.message);
    }
  }

  // Posts what was added, and receives in list order, ahead of their turn as far as the staging memory allows. Both at
  // once: while a receive that is posted later is not known, the link's other direction would be idle.
  void post_with_receives() {
    for (; next_ < transaction_.ops.size() && (staged_ == 0 || staged_ < kStagedBytes); ++next_) {
      const Op& op = transaction_.ops[next_];
      if (op.kind != Op::Kind::recv) continue;
      Item& item = add_item(op, is_contiguous(op.block) && may_arrive_early(transaction_, next_));
      if (item.staging.memory) staged_ += item.staging.capacity;
      received_.emplace(next_, &item);
      added_.push_back(&item.message);
    }
    fabric_.transport_->post(std::exchange(added_, {}));
  }

  void receive(size_t index) {
    if (index >= next_) post_with_receives();
    const Op& op = transaction_.ops[index];
    Item& item = *received_.at(index);
    wait(item.message, &heard_nothing);
    if (item.message.theirs != item.message.envelope)
      throw ClusterError(
          disagreement(fabric_.label_, transaction_, op.peer, item.message.envelope, item.message.theirs));
    if (!item.staging.memory) return;
    apply(op, contiguous(item.message.data, item.message.envelope.bytes));
    staged_ -= item.staging.capacity;
    fabric_.staging_.give(std::exchange(item.staging, {}));
  }

  static void apply(const Op& op, const Block& from) {
    if (op.decode) return op.decode({from.data, static_cast<size_t>(from.bytes())});
    op.add ? add_block(op.block, from, op.dtype) : copy_block(op.block, from);
  }

  void wait(const Message& message, decltype(&heard_nothing) late) const {
    switch (fabric_.arrivals_->wait(message, fabric_.options_.timeout)) {
      case Arrivals::Outcome::done:
        return;
      case Arrivals::Outcome::late:
        throw ClusterError(late(fabric_.label_, transaction_, message.peer, fabric_.options_.timeout));
      case Arrivals::Outcome::failed:
        fabric_.stop_if_failed(transaction_);
    }
  }

  MessageFabric& fabric_;
  const Channel& channel_;
  const Transaction& transaction_;
  std::deque<Item> items_;       // a deque, so that items keep their addresses
  std::vector<Message*> added_;  // not yet posted
  std::map<size_t, Item*> received_;
  size_t next_ = 0;
  i64 staged_ = 0;
};

MessageFabric::MessageFabric(FabricOptions options, std::shared_ptr<Arrivals> arrivals,
                             std::unique_ptr<Transport> transport)
    : options_(options),
      arrivals_(std::move(arrivals)),
      transport_(std::move(transport)),
      label_(rank_label(transport_->rank(), transport_->cluster())) {}

MessageFabric::~MessageFabric() {
  if (std::uncaught_exceptions() > exceptions_at_start_)
    abort(label_ + " was ended by an error of its own. See its log.");
}

void MessageFabric::run(const Channel& channel, const Transaction& transaction) {
  stop_if_failed(transaction);
  InFlightTransaction in_flight(*this, channel, transaction);
  try {
    check_transaction(rank(), channel, transaction);
    if (options_.strict) {
      order_.check_next(rank(), channel, transaction);
      check_sends_unwritten(rank(), transaction);
      poison_receives(transaction);
    }
    in_flight.go();
  } catch (const std::exception& error) {
    abort(error.what());  // before the messages are destroyed: afterwards the transport doesn't use their memory
    throw;
  }
  std::lock_guard lock(traffic_mutex_);
  count_traffic(traffic_, rank(), transaction, cluster());
}

void MessageFabric::works() {
  arrivals_->works();
  transport_->works();
}

void MessageFabric::abort(const std::string& reason) {
  arrivals_->fail(reason_of(label_, reason));
  transport_->stop(*arrivals_->failure());
}

Traffic MessageFabric::traffic() const {
  std::lock_guard lock(traffic_mutex_);
  return traffic_;
}

void MessageFabric::stop_if_failed(const Transaction& transaction) const {
  if (const auto reason = arrivals_->failure()) throw ClusterError(stopped(label_, transaction.name, *reason));
}

}  // namespace switchyard::comm
