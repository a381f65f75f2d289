#include "comm/protocol.hpp"

#include <algorithm>

#include "base/errors.hpp"
#include "base/names_rank.hpp"
#include "comm/block.hpp"

namespace switchyard::comm {
namespace {

// Whether rows don't overlap. Blocks may have empty rows or no rows.
bool well_formed(const Block& b) {
  if (b.rows < 0 || b.row_bytes < 0) return false;
  return b.bytes() == 0 || (b.data != nullptr && (b.rows == 1 || b.stride >= b.row_bytes));
}

std::string seconds(std::chrono::milliseconds time) {
  return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000.0);
}

std::string ranks(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

void check_collective(int rank, const Channel& channel, const Transaction& transaction, const Collective& c) {
  const size_t n = c.ranks.size();
  check(place_in(c, rank) < n &&
            std::ranges::all_of(c.ranks, [&](int r) { return std::ranges::count(channel.ranks, r) == 1; }),
        "rank {}: \"{}\" {}: not a group of channel {} with this rank: {}", rank, transaction.name, name_of(c.call),
        channel.id, fmt::join(c.ranks, ", "));
  const auto have = [&](const std::vector<Block>& blocks, size_t count) {
    return blocks.size() == count && std::ranges::all_of(blocks, [&](const Block& b) {
             return well_formed(b) && b.bytes() > 0 && b.bytes() == c.in[0].bytes();
           });
  };
  check(have(c.in, c.call == GroupCall::reduce_scatter ? n : 1) && have(c.out, c.call == GroupCall::all_gather ? n : 1),
        "rank {}: \"{}\" {}: blocks that are not those of {} ranks", rank, transaction.name, name_of(c.call), n);
}

std::string describe(const Envelope& e) {
  return fmt::format("transaction {}, {} bytes, {}", e.number, e.bytes, name_of(e.dtype));
}

}  // namespace

Envelope envelope_of(const Transaction& transaction, const Op& op) {
  return {transaction.number, op.decode ? op.encoded : op.block.bytes(), op.dtype};
}

void take_size(Envelope& expected, const Envelope& said, bool at_most) {
  if (at_most && said.bytes <= expected.bytes) expected.bytes = said.bytes;
}

size_t place_in(const Collective& collective, int rank) {
  return static_cast<size_t>(std::ranges::find(collective.ranks, rank) - collective.ranks.begin());
}

Envelope envelope_of(const Transaction& transaction, const Collective& collective) {
  return {transaction.number, collective.in[0].bytes(), collective.dtype};
}

void check_transaction(int rank, const Channel& channel, const Transaction& transaction, bool serves) {
  check(serves || transaction.collectives.empty(), "rank {}: \"{}\" has collectives, which its fabric does not serve",
        rank, transaction.name);
  for (const Collective& collective : transaction.collectives) check_collective(rank, channel, transaction, collective);
  const auto member = [&](int r) {
    return std::find(channel.ranks.begin(), channel.ranks.end(), r) != channel.ranks.end();
  };
  for (size_t i = 0; i < transaction.ops.size(); ++i) {
    const Op& op = transaction.ops[i];
    check(well_formed(op.block), "rank {}: \"{}\" operation {}: rows of {} bytes, {} apart", rank, transaction.name, i,
          op.block.row_bytes, op.block.stride);
    if (op.kind == Op::Kind::local) {
      check(well_formed(op.source) && op.source.bytes() == op.block.bytes(),
            "rank {}: \"{}\" operation {}: local of {} bytes from {} bytes", rank, transaction.name, i,
            op.block.bytes(), op.source.bytes());
    } else {
      check(op.peer != rank && member(op.peer),
            "rank {}: \"{}\" operation {}: rank {} is not another member of channel {} ({})", rank, transaction.name, i,
            op.peer, channel.id, fmt::join(channel.ranks, ", "));
    }
  }
}

void check_sends_unwritten(int rank, const Transaction& transaction) {
  for (const Op& send : transaction.ops) {
    if (send.kind != Op::Kind::send) continue;
    for (const Op& op : transaction.ops)
      check(op.kind == Op::Kind::send || !overlap(op.block, send.block),
            "rank {}: \"{}\" writes a block that it sends to rank {}", rank, transaction.name, send.peer);
  }
}

bool may_arrive_early(const Transaction& transaction, size_t index) {
  const Op& op = transaction.ops[index];
  if (op.kind != Op::Kind::recv || op.add || op.decode) return false;
  return std::none_of(transaction.ops.begin(), transaction.ops.begin() + static_cast<std::ptrdiff_t>(index),
                      [&](const Op& earlier) {
                        if (earlier.kind == Op::Kind::send) return false;
                        return overlap(earlier.block, op.block) ||
                               (earlier.kind == Op::Kind::local && overlap(earlier.source, op.block));
                      });
}

void poison_receives(const Transaction& transaction) {
  for (size_t i = 0; i < transaction.ops.size(); ++i)
    if (may_arrive_early(transaction, i)) fill_block(transaction.ops[i].block, 0xFF);
  for (const Collective& c : transaction.collectives)
    for (const Block& out : c.out)
      if (!c.add && std::ranges::none_of(c.in, [&](const Block& in) { return overlap(in, out); }))
        fill_block(out, 0xFF);
}

void TransactionOrder::check_next(int rank, const Channel& channel, const Transaction& transaction) {
  std::lock_guard lock(mutex_);
  const auto [at, first] = last_.try_emplace(channel.id, transaction.number);
  check(first || transaction.number >= at->second, "rank {}: \"{}\" has number {} on channel {} after number {}", rank,
        transaction.name, transaction.number, channel.id, at->second);
  at->second = transaction.number;
}

void count_traffic(Traffic& traffic, int rank, const Transaction& transaction, const cluster::Cluster& cluster) {
  for (const Op& op : transaction.ops) {
    if (op.kind == Op::Kind::send) traffic[static_cast<size_t>(cluster.link(rank, op.peer))] += op.block.bytes();
  }
  for (const Collective& c : transaction.collectives) {
    const i64 n = static_cast<i64>(c.ranks.size()), bytes = c.in[0].bytes();
    const auto part = [&](i64 place) { return bytes * (place + 1) / n - bytes * place / n; };  // the whole sum's part
    const i64 mine = static_cast<i64>(place_in(c, rank));
    for (i64 place = 0; place < n; ++place) {
      if (place == mine) continue;
      const int peer = c.ranks[static_cast<size_t>(place)];
      traffic[static_cast<size_t>(cluster.link(rank, peer))] +=
          c.call == GroupCall::all_reduce ? part(place) + part(mine) : bytes;
    }
  }
}

std::string rank_label(int rank, const cluster::Cluster& cluster) {
  const int host = cluster.host[static_cast<size_t>(rank)];
  if (static_cast<size_t>(host) < cluster.names.size())
    return fmt::format("rank {} (host {})", rank, cluster.names[static_cast<size_t>(host)]);
  return fmt::format("rank {} (host {})", rank, host);
}

std::string reason_of(const std::string& who, const std::string& error) {
  return names_rank(error) ? error : fmt::format("{}: {}", who, error);
}

bool ended_the_job(const Fabric& fabric, const std::exception& error) {
  const auto reason = fabric.failure();
  const std::string text = error.what();
  return reason && (*reason == text ||
                    (reason->starts_with(fmt::format("rank {} ", fabric.rank())) && reason->ends_with(": " + text)));
}

std::string heard_nothing(const std::string& who, const Transaction& transaction, int peer,
                          std::chrono::milliseconds timeout) {
  return fmt::format("{}: \"{}\" heard nothing from rank {} for {}. See its log, or raise fabric.timeout.", who,
                     transaction.name, peer, seconds(timeout));
}

std::string not_taken(const std::string& who, const Transaction& transaction, int peer,
                      std::chrono::milliseconds timeout) {
  return fmt::format(
      "{}: \"{}\" waits for rank {}, which has not taken its data for {}. See its log, or raise fabric.timeout.", who,
      transaction.name, peer, seconds(timeout));
}

std::string not_exchanged(const std::string& who, const std::string& name, const std::vector<int>& peers,
                          std::chrono::milliseconds timeout) {
  return fmt::format("{}: \"{}\" has exchanged nothing with {} for {}. See {}, or raise fabric.timeout.", who, name,
                     ranks(peers), seconds(timeout), peers.size() == 1 ? "its log" : "their logs");
}

std::string device_failed(const std::string& who, const std::string& name, const std::vector<int>& peers,
                          const std::string& text) {
  return fmt::format("{}: \"{}\"{} failed on the device: {}. See the logs of all ranks; NCCL_DEBUG=WARN says more.",
                     who, name, peers.empty() ? "" : " with " + ranks(peers), text);
}

std::string not_ended(const std::string& who, const std::string& peer, std::chrono::milliseconds timeout) {
  return fmt::format("{}: all work is done, but {} has not ended for {}. See its log.", who, peer, seconds(timeout));
}

std::string disagreement(const std::string& who, const Transaction& transaction, int peer, const Envelope& mine,
                         const Envelope& theirs) {
  return fmt::format(
      "{}: \"{}\" expects {} from rank {}, which sends {}. Do all ranks run the same job file and program?", who,
      transaction.name, describe(mine), peer, describe(theirs));
}

std::string stopped(const std::string& who, const std::string& name, const std::string& reason) {
  return fmt::format("{}: \"{}\" stopped: {}", who, name, reason);
}

}  // namespace switchyard::comm
