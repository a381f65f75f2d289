#include "comm/nccl_fabric.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "base/errors.hpp"
#include "comm/block.hpp"
#include "comm/collectives.hpp"
#include "comm/forwarding_fabric.hpp"
#include "comm/nccl_library.hpp"
#include "comm/nccl_watch.hpp"
#include "comm/protocol.hpp"

namespace switchyard::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kPause{50};  // between questions to the library
constexpr i64 kAlignment = 256;                  // of staging: what devices copy fastest

bool on_device(const Op& op) { return !op.decode && (op.block.device || op.source.device); }

bool on_devices(const Transaction& transaction) {
  return std::any_of(transaction.ops.begin(), transaction.ops.end(), on_device);
}

std::vector<int> peers_of(const Transaction& transaction) {
  std::set<int> peers;
  for (const Op& op : transaction.ops)
    if (op.kind != Op::Kind::local && on_device(op)) peers.insert(op.peer);
  return {peers.begin(), peers.end()};
}

// Copies or adds.
void apply(const Op& op, const Block& from) {
  op.add ? add_block(op.block, from, op.dtype) : copy_block(op.block, from);
}

// What the host's fabric does of a transaction: messages of hosts and, if ranks compare, envelopes of those of devices.
class HostPart {
 public:
  HostPart(const Transaction& transaction, bool compares)
      : transaction_(transaction), said_(transaction.ops.size()), landed_(transaction.ops.size()) {
    // A function that decodes may use a device's memory: then all that receives waits for its turn between the devices'
    // operations.
    const bool decodes = std::any_of(transaction.ops.begin(), transaction.ops.end(),
                                     [](const Op& op) { return static_cast<bool>(op.decode); });
    for (size_t i = 0; i < transaction.ops.size(); ++i) {
      const Op& op = transaction.ops[i];
      if (on_device(op)) {
        if (compares && op.kind != Op::Kind::local) host_.ops.push_back(envelope_message(i));
      } else if (!decodes || op.kind == Op::Kind::send) {
        host_.ops.push_back(op);
      } else {
        waits_.push_back(i);
        if (op.kind == Op::Kind::recv) host_.ops.push_back(landing(i));
      }
    }
  }
  HostPart(const HostPart&) = delete;
  HostPart& operator=(const HostPart&) = delete;

  void run(Fabric& host, const Channel& channel, const std::string& label) {
    if (host_.ops.empty()) return;
    host.run(channel, host_);
    for (size_t i = 0; i < transaction_.ops.size(); ++i) {
      const Op& op = transaction_.ops[i];
      if (op.kind != Op::Kind::recv || said_[i] == Said{}) continue;
      const Envelope theirs{said_[i][1], said_[i][2], static_cast<DType>(said_[i][3])};
      const Envelope mine = envelope_of(transaction_, op);
      if (mine != theirs) throw ClusterError(disagreement(label, transaction_, op.peer, mine, theirs));
    }
  }

  /// Operation `i`, if it has waited for its turn.
  void take_turn(size_t i) {
    if (!std::binary_search(waits_.begin(), waits_.end(), i)) return;
    const Op& op = transaction_.ops[i];
    if (op.decode) return op.decode(landed_[i]);
    if (op.kind == Op::Kind::local) return apply(op, op.source);
    apply(op, contiguous(landed_[i].data(), static_cast<i64>(landed_[i].size())));
  }

 private:
  using Said = std::array<i64, 4>;  // 1, and an envelope

  Op envelope_message(size_t i) {
    const Op& op = transaction_.ops[i];
    const Envelope mine = envelope_of(transaction_, op);
    if (op.kind == Op::Kind::send) said_[i] = {1, mine.row, mine.bytes, static_cast<i64>(mine.dtype)};
    return {.kind = op.kind, .peer = op.peer, .block = contiguous(said_[i].data(), sizeof(Said)), .dtype = DType::i64};
  }
  Op landing(size_t i) {
    const Op& op = transaction_.ops[i];
    return {.kind = Op::Kind::recv,
            .peer = op.peer,
            .dtype = op.dtype,
            .decode = [this, i](std::span<const std::byte> bytes) { landed_[i].assign(bytes.begin(), bytes.end()); },
            .encoded = envelope_of(transaction_, op).bytes,
            .at_most = op.at_most};
  }

  const Transaction& transaction_;
  Transaction host_{transaction_.name, transaction_.row, {}};
  std::vector<Said> said_;
  std::vector<std::vector<std::byte>> landed_;
  std::vector<size_t> waits_;  // ascending
};

// What a device does of a transaction, in the order of the calling thread's stream.
class DevicePart {
 public:
  DevicePart(const Transaction& transaction, const BlockDevice& device) : transaction_(transaction) {
    i64 staged = 0;
    for (size_t i = 0; i < transaction.ops.size(); ++i) {
      const Op& op = transaction.ops[i];
      // Both sides leave out what has no bytes.
      if (op.kind == Op::Kind::local || !on_device(op) || op.block.bytes() == 0) continue;
      const bool in_place = is_contiguous(op.block) && (op.kind == Op::Kind::send || may_arrive_early(transaction, i));
      moves_.push_back({i, in_place ? -1 : staged});
      if (!in_place) staged += (op.block.bytes() + kAlignment - 1) / kAlignment * kAlignment;
    }
    if (staged > 0) staging_ = device.allocate(staged);
  }

  /// Packs what is sent, and gives the messages that are to be exchanged.
  std::vector<NcclMessage> pack() const {
    std::vector<NcclMessage> messages;
    for (const Move& move : moves_) {
      const Op& op = transaction_.ops[move.op];
      const bool sends = op.kind == Op::Kind::send;
      if (sends && move.staged >= 0) copy_block(staged(move), op.block);
      messages.push_back({.send = sends,
                          .peer = op.peer,
                          .data = move.staged < 0 ? op.block.data : staged(move).data,
                          .bytes = op.block.bytes()});
    }
    return messages;
  }

  /// What came takes effect, in the order of the list.
  void unpack(HostPart& host) const {
    auto next = moves_.begin();
    for (size_t i = 0; i < transaction_.ops.size(); ++i) {
      const Op& op = transaction_.ops[i];
      const bool moved = next != moves_.end() && next->op == i;
      if (!on_device(op))
        host.take_turn(i);
      else if (op.kind == Op::Kind::local)
        apply(op, op.source);
      else if (moved && op.kind == Op::Kind::recv && next->staged >= 0)
        apply(op, staged(*next));
      if (moved) ++next;
    }
  }

 private:
  struct Move {
    size_t op;
    i64 staged;  // where in the staging; -1: in place
  };
  Block staged(const Move& move) const {
    Block block = contiguous(staging_.get() + move.staged, transaction_.ops[move.op].block.bytes());
    block.device = transaction_.ops[move.op].block.device;
    return block;
  }

  const Transaction& transaction_;
  std::vector<Move> moves_;
  std::shared_ptr<std::byte> staging_;
};

class NcclFabric final : public ForwardingFabric {
 public:
  NcclFabric(Fabric& host, const BlockDevice& device, NcclOptions options)
      : ForwardingFabric(host), device_(device), options_(std::move(options)), label_(rank_label(rank(), cluster())) {
    try {
      connect();
    } catch (const std::exception& error) {
      inner().abort(error.what());
      throw;
    }
  }

  /// If an exception is in flight, reports to the other ranks that this one is gone.
  ~NcclFabric() override {
    if (std::uncaught_exceptions() > exceptions_at_start_)
      abort(label_ + " was ended by an error of its own. See its log.");
    watch_->close();
  }

  bool moves_device_memory() const override { return true; }
  void abort(const std::string& reason) override {
    inner().abort(reason);
    watch_->look();
  }

  Traffic traffic() const override {
    const std::lock_guard lock(traffic_mutex_);
    return traffic_;
  }

  void run(const Channel& channel, const Transaction& transaction) override {
    watch_->stop_if_failed(transaction.name);
    try {
      if (on_devices(transaction))
        exchange(channel, transaction);
      else
        inner().run(channel, transaction);
    } catch (const std::exception& error) {
      abort(error.what());  // if another reason came first, it stays
      throw;
    }
    const std::lock_guard lock(traffic_mutex_);
    count_traffic(traffic_, rank(), transaction, cluster());
  }

 private:
  void connect() {
    library_ = std::make_unique<NcclLibrary>(options_.library);
    const std::vector<nccl::UniqueId> ids = shared_ids();
    watch_ = std::make_unique<NcclWatch>(inner(), device_, options_.timeout);
    const int blocks = std::max(1, options_.blocks / std::max(1, static_cast<int>(ids.size())));
    std::vector<int> others;
    for (int r = 0; r < size(); ++r)
      if (r != rank()) others.push_back(r);
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string name = fmt::format("connecting channel {}", options_.channels[i]);
      try {
        const auto communicator = std::make_shared<NcclCommunicator>(*library_, size(), ids[i], rank(), blocks);
        wait_until_ready(*communicator, name, others);
        watch_->add(options_.channels[i], communicator);
      } catch (const NcclError& error) {
        throw ClusterError(device_failed(label_, name, others, error.what()));
      }
    }
  }

  // One for each channel, made by the first rank.
  std::vector<nccl::UniqueId> shared_ids() {
    std::vector<nccl::UniqueId> ids(options_.channels.size());
    if (rank() == 0)
      for (nccl::UniqueId& id : ids)
        if (const nccl::Result result = library_->GetUniqueId(&id); result != nccl::Result::success)
          cluster_error("{}: NCCL makes no id for its ranks to meet: {}. NCCL_DEBUG=WARN says more.", label_,
                        library_->explain(result));
    const auto bytes = std::as_bytes(std::span(ids));
    const auto came = broadcast_blob(inner(), everyone(inner(), kFabricChannel), "NCCL's ids", 0,
                                     rank() == 0 ? bytes : std::span<const std::byte>());
    if (came.size() != bytes.size())
      cluster_error("{}: there are {} channels of devices here, and {} at rank 0. Do all ranks run the same job file?",
                    label_, ids.size(), came.size() / sizeof(nccl::UniqueId));
    std::memcpy(ids.data(), came.data(), came.size());
    return ids;
  }

  void wait_until_ready(NcclCommunicator& communicator, const std::string& name, const std::vector<int>& peers) const {
    const auto deadline = Clock::now() + options_.timeout;
    while (!communicator.ready()) {
      watch_->stop_if_failed(name);
      if (Clock::now() > deadline) throw ClusterError(not_exchanged(label_, name, peers, options_.timeout));
      std::this_thread::sleep_for(kPause);
    }
  }

  void exchange(const Channel& channel, const Transaction& transaction) {
    check_transaction(rank(), channel, transaction);
    if (options_.strict) {
      rows_.check_next(rank(), channel, transaction);
      check_sends_unwritten(rank(), transaction);
      poison_receives(transaction);
    }
    HostPart host(transaction, options_.strict);
    host.run(inner(), channel, label_);
    const DevicePart device(transaction, device_);
    const std::vector<NcclMessage> messages = device.pack();
    if (!messages.empty()) move(channel, transaction, messages);
    device.unpack(host);
  }

  void move(const Channel& channel, const Transaction& transaction, const std::vector<NcclMessage>& messages) {
    const std::shared_ptr<NcclCommunicator> communicator = watch_->of(channel.id);
    check(communicator != nullptr, "rank {}: \"{}\" moves blocks of devices on channel {}, but only {} may", rank(),
          transaction.name, channel.id, fmt::join(options_.channels, ", "));
    const std::vector<int> peers = peers_of(transaction);
    const BlockDevice::Mark begun = device_.mark();
    try {
      communicator->issue(messages, device_.native_stream());
      wait_until_ready(*communicator, transaction.name, peers);
    } catch (const NcclError& error) {
      watch_->stop_if_failed(transaction.name);  // an abort is no error of its own
      throw ClusterError(device_failed(label_, transaction.name, peers, error.what()));
    }
    watch_->add(channel.id, {transaction.name, peers, begun, device_.mark()});
  }

  const BlockDevice& device_;
  NcclOptions options_;
  std::string label_;
  int exceptions_at_start_ = std::uncaught_exceptions();
  std::unique_ptr<NcclLibrary> library_;
  std::unique_ptr<NcclWatch> watch_;
  RowOrder rows_;
  mutable std::mutex traffic_mutex_;
  Traffic traffic_{};
};

}  // namespace

std::unique_ptr<Fabric> nccl_fabric(Fabric& host, const BlockDevice& device, NcclOptions options) {
  return std::make_unique<NcclFabric>(host, device, std::move(options));
}

}  // namespace switchyard::comm
