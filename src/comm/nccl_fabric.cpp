#include "comm/nccl_fabric.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <exception>
#include <map>
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
#include "comm/sockets.hpp"

namespace switchyard::comm {
namespace {

constexpr std::chrono::microseconds kPause{50}, kLongestPause{1000};  // between questions to the library
constexpr i64 kAlignment = 256;                                       // alignment of staging: what devices copy fastest

bool on_device(const Op& op) { return !op.decode && (op.block.device || op.source.device); }

bool on_devices(const Transaction& transaction) {
  return !transaction.collectives.empty() || std::any_of(transaction.ops.begin(), transaction.ops.end(), on_device);
}

std::vector<int> peers_of(const Transaction& transaction) {
  std::set<int> peers;
  for (const Op& op : transaction.ops)
    if (op.kind != Op::Kind::local && on_device(op)) peers.insert(op.peer);
  return {peers.begin(), peers.end()};
}

// For sends and receives NCCL rounds the blocks that a communicator may have up to a power of two.
// Source: ncclTopoComputeP2pChannels in its src/graph/paths.cc
unsigned blocks_of_a_channel(const NcclOptions& options) {
  return std::bit_floor(static_cast<unsigned>(
      std::max<i64>(1, options.blocks / std::max<i64>(1, static_cast<i64>(options.channels.size())))));
}

std::vector<int> without(std::vector<int> ranks, int rank) {
  std::erase(ranks, rank);
  return ranks;
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
    if (op.kind == Op::Kind::send) said_[i] = {1, mine.number, mine.bytes, static_cast<i64>(mine.dtype)};
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
  Transaction host_{transaction_.name, transaction_.number, {}};
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

// A rank's memory for a collective: blocks that follow one another serve as they are, others are staged.
class CollectivePart {
 public:
  CollectivePart(const Collective& collective, int rank, const BlockDevice& device)
      : collective_(collective), device_(device), mine_(place_in(collective, rank)) {}

  /// Packs what this rank gives.
  NcclCollective pack() {
    const i64 elements = collective_.in[0].bytes() / size_of(collective_.dtype);
    std::byte* to = collective_.add ? nullptr : run_of(collective_.out);
    if (!to) to = staged_ = stage(collective_.out);
    const std::byte* from = run_of(collective_.in);
    if (collective_.call == GroupCall::all_gather) {
      // The piece goes to its place first, unless it is somewhere else altogether.
      const Block place = block_at(to, mine_);
      if (!from || (staged_ && holds_own())) {
        copy_block(place, collective_.in[0]);
        from = place.data;
      }
    } else if (!from) {
      std::byte* const packed = stage(collective_.in);
      for (size_t i = 0; i < collective_.in.size(); ++i) copy_block(block_at(packed, i), collective_.in[i]);
      from = packed;
    }
    return {.call = collective_.call, .in = from, .out = to, .elements = elements, .dtype = collective_.dtype};
  }

  void unpack() const {
    if (!staged_) return;
    for (size_t i = 0; i < collective_.out.size(); ++i) {
      const Block from = block_at(staged_, i);
      if (collective_.add)
        add_block(collective_.out[i], from, collective_.dtype);
      else if (!(i == mine_ && holds_own()))
        copy_block(collective_.out[i], from);
    }
  }

 private:
  // Whether the rank's piece of what is gathered lies where it is to be.
  bool holds_own() const {
    return collective_.call == GroupCall::all_gather && overlap(collective_.in[0], collective_.out[mine_]);
  }
  // Where blocks begin that follow one another without gaps; null if they don't.
  static std::byte* run_of(const std::vector<Block>& blocks) {
    for (size_t i = 0; i < blocks.size(); ++i)
      if (!is_contiguous(blocks[i]) || blocks[i].data != blocks[0].data + static_cast<i64>(i) * blocks[0].bytes())
        return nullptr;
    return blocks[0].data;
  }
  std::byte* stage(const std::vector<Block>& blocks) {
    const i64 bytes = blocks[0].bytes() * static_cast<i64>(blocks.size());
    return staging_.emplace_back(device_.allocate(bytes)).get();
  }
  Block block_at(std::byte* data, size_t place) const {
    const i64 bytes = collective_.in[0].bytes();
    Block block = contiguous(data + static_cast<i64>(place) * bytes, bytes);
    block.device = collective_.in[0].device;
    return block;
  }

  const Collective& collective_;
  const BlockDevice& device_;
  const size_t mine_;
  std::byte* staged_ = nullptr;  // what comes
  std::vector<std::shared_ptr<std::byte>> staging_;
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
  bool serves(int channel, GroupCall call, std::span<const int> ranks) const override {
    if (sums(call) && options_.deterministic) return false;
    return std::ranges::any_of(options_.groups, [&](const Channel& group) {
      return group.id == channel && std::ranges::equal(group.ranks, ranks);
    });
  }
  bool serves_any() const override { return !options_.groups.empty(); }
  void abort(const std::string& reason) override {
    inner().abort(reason);
    watch_->abort_all();
  }

  Traffic traffic() const override {
    const std::lock_guard lock(traffic_mutex_);
    return traffic_;
  }

  void run(const Channel& channel, const Transaction& transaction) override {
    try {
      watch_->stop_if_failed(transaction.name);
      if (on_devices(transaction))
        exchange(channel, transaction);
      else
        inner().run(channel, transaction);
    } catch (const std::exception& error) {
      // If another reason came first, it stays. The memory of blocks may go with the exception: afterwards the library
      // hands nothing more to a stream.
      abort(error.what());
      throw;
    }
    const std::lock_guard lock(traffic_mutex_);
    count_traffic(traffic_, rank(), transaction, cluster());
  }

 private:
  void connect() {
    // Between hosts without InfiniBand a communicator takes some sockets for each peer and block. NCCL allows them on
    // the first rank alone.
    allow_all_files();
    library_ = std::make_unique<NcclLibrary>(options_.library);
    std::vector<Channel> queues;
    for (const int channel : options_.channels) queues.push_back({channel, {}});
    queues.insert(queues.end(), options_.groups.begin(), options_.groups.end());
    const std::vector<nccl::UniqueId> ids = shared_ids(queues.size());
    watch_ = std::make_unique<NcclWatch>(inner(), device_, options_.timeout);
    const auto blocks = static_cast<int>(blocks_of_a_channel(options_));
    const Channel all = everyone(inner(), kFabricChannel);
    for (size_t i = 0; i < queues.size(); ++i) {
      const std::vector<int>& ranks = queues[i].ranks.empty() ? all.ranks : queues[i].ranks;
      const auto place = std::ranges::find(ranks, rank());
      if (place == ranks.end()) continue;
      const std::vector<int> others = without(ranks, rank());
      const std::string name = "connecting " + name_of_queue(queues[i]);
      try {
        const auto communicator = std::make_shared<NcclCommunicator>(*library_, static_cast<int>(ranks.size()), ids[i],
                                                                     static_cast<int>(place - ranks.begin()), blocks);
        wait_until_ready(*communicator, name, others);
        watch_->add(queues[i], communicator);
      } catch (const NcclError& error) {
        throw ClusterError(device_failed(label_, name, others, error.what()));
      }
    }
  }

  // Made by the first rank.
  std::vector<nccl::UniqueId> shared_ids(size_t count) {
    std::vector<nccl::UniqueId> ids(count);
    if (rank() == 0)
      for (nccl::UniqueId& id : ids)
        if (const nccl::Result result = library_->GetUniqueId(&id); result != nccl::Result::success)
          cluster_error("{}: NCCL makes no id for its ranks to meet: {}. NCCL_DEBUG=WARN says more.", label_,
                        library_->explain(result));
    const auto bytes = std::as_bytes(std::span(ids));
    const auto came = broadcast_blob(inner(), everyone(inner(), kFabricChannel), "NCCL's ids", 0,
                                     rank() == 0 ? bytes : std::span<const std::byte>());
    if (came.size() != bytes.size())
      cluster_error(
          "{}: there are {} channels and groups of devices here, and {} at rank 0. Do all ranks run the same job file?",
          label_, ids.size(), came.size() / sizeof(nccl::UniqueId));
    std::memcpy(ids.data(), came.data(), came.size());
    return ids;
  }

  void wait_until_ready(NcclCommunicator& communicator, const std::string& name, const std::vector<int>& peers) const {
    Silence silence(options_.timeout);
    i64 heard = inner().work_heard();
    for (auto pause = kPause; !communicator.ready(); pause = std::min(pause * 5 / 4, kLongestPause)) {
      watch_->stop_if_failed(name);
      // Peers connect where they first exchange something, which they may have to compute.
      if (const i64 now = inner().work_heard(); std::exchange(heard, now) != now) silence.restart();
      if (silence.over()) throw ClusterError(not_exchanged(label_, name, peers, options_.timeout));
      std::this_thread::sleep_for(pause);
    }
  }

  void exchange(const Channel& channel, const Transaction& transaction) {
    check_transaction(rank(), channel, transaction, true);
    if (options_.strict) {
      order_.check_next(rank(), channel, transaction);
      check_sends_unwritten(rank(), transaction);
      compare_collectives(channel, transaction);
      poison_receives(transaction);
    }
    HostPart host(transaction, options_.strict);
    host.run(inner(), channel, label_);
    const DevicePart device(transaction, device_);
    const std::vector<NcclMessage> messages = device.pack();
    if (!messages.empty()) issue({channel.id, {}}, transaction.name, peers_of(transaction), std::span(messages));
    device.unpack(host);
    if (!transaction.collectives.empty()) run_collectives(channel, transaction);
  }

  // Collectives of one group are given to the library together.
  void run_collectives(const Channel& channel, const Transaction& transaction) {
    std::map<std::span<const int>, std::vector<const Collective*>,
             decltype([](const auto& a, const auto& b) { return std::ranges::lexicographical_compare(a, b); })>
        of_group;
    for (const Collective& collective : transaction.collectives) of_group[collective.ranks].push_back(&collective);
    for (const auto& [ranks, collectives] : of_group) {
      std::vector<CollectivePart> parts;
      parts.reserve(collectives.size());
      std::vector<NcclCollective> calls;
      for (const Collective* collective : collectives)
        calls.push_back(parts.emplace_back(*collective, rank(), device_).pack());
      const std::vector<int> group(ranks.begin(), ranks.end());
      issue({channel.id, group}, transaction.name, without(group, rank()), std::span<const NcclCollective>(calls));
      for (const CollectivePart& part : parts) part.unpack();
    }
  }

  // Each rank sends the next one of the group what it has; if not all have the same, one of them notices.
  void compare_collectives(const Channel& channel, const Transaction& transaction) {
    if (transaction.collectives.empty()) return;
    using Said = std::array<i64, 4>;  // call, and an envelope
    std::vector<Said> mine, theirs(transaction.collectives.size());
    Transaction compared{transaction.name, transaction.number, {}};
    for (const Collective& c : transaction.collectives) {
      const Envelope e = envelope_of(transaction, c);
      mine.push_back({static_cast<i64>(c.call), e.number, e.bytes, static_cast<i64>(e.dtype)});
    }
    for (size_t i = 0; i < mine.size(); ++i) {
      const std::vector<int>& ranks = transaction.collectives[i].ranks;
      const size_t place = place_in(transaction.collectives[i], rank()), n = ranks.size();
      const auto message = [](Op::Kind kind, int peer, Said& said) {
        return Op{.kind = kind, .peer = peer, .block = contiguous(said.data(), sizeof(Said)), .dtype = DType::i64};
      };
      compared.ops.push_back(message(Op::Kind::send, ranks[(place + 1) % n], mine[i]));
      compared.ops.push_back(message(Op::Kind::recv, ranks[(place + n - 1) % n], theirs[i]));
    }
    inner().run(channel, compared);
    for (size_t i = 0; i < mine.size(); ++i) {
      if (mine[i] == theirs[i]) continue;
      const int peer = compared.ops[2 * i + 1].peer;
      const auto envelope = [](const Said& s) { return Envelope{s[1], s[2], static_cast<DType>(s[3])}; };
      if (mine[i][0] == theirs[i][0])
        throw ClusterError(disagreement(label_, transaction, peer, envelope(mine[i]), envelope(theirs[i])));
      cluster_error("{}: \"{}\" has {} with rank {}, which has {}. Do all ranks run the same job file and program?",
                    label_, transaction.name, name_of(static_cast<GroupCall>(mine[i][0])), peer,
                    name_of(static_cast<GroupCall>(theirs[i][0])));
    }
  }

  // Gives calls to the stream of the calling thread. whose: their communicator.
  template <class Call>
  void issue(const Channel& whose, const std::string& name, const std::vector<int>& peers,
             std::span<const Call> calls) {
    const std::shared_ptr<NcclCommunicator> communicator = watch_->of(whose);
    check(communicator != nullptr, "rank {}: \"{}\" moves blocks of devices on {}, but only {} may", rank(), name,
          name_of_queue(whose), fmt::join(options_.channels, ", "));
    watch_->add(whose, {.name = name, .peers = peers, .begun = device_.mark(), .done = {}});
    try {
      communicator->issue(calls, device_.native_stream());
      wait_until_ready(*communicator, name, peers);
    } catch (const NcclError& error) {
      watch_->wait_for_reason(error);
      watch_->stop_if_failed(name);  // an abort is no error of its own
      throw ClusterError(device_failed(label_, name, peers, error.what()));
    }
    watch_->given(whose, device_.mark());
  }

  const BlockDevice& device_;
  NcclOptions options_;
  std::string label_;
  int exceptions_at_start_ = std::uncaught_exceptions();
  std::unique_ptr<NcclLibrary> library_;
  std::unique_ptr<NcclWatch> watch_;
  TransactionOrder order_;
  mutable std::mutex traffic_mutex_;
  Traffic traffic_{};
};

}  // namespace

std::unique_ptr<Fabric> nccl_fabric(Fabric& host, const BlockDevice& device, NcclOptions options) {
  return std::make_unique<NcclFabric>(host, device, std::move(options));
}

}  // namespace switchyard::comm
