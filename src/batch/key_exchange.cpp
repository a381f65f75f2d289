#include "batch/key_exchange.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "base/errors.hpp"
#include "batch/ring_map.hpp"

namespace switchyard::batch {
namespace {

// A piece with its first row in a ring rank's shard. entry: by host, the rank that gets it from another host.
struct Placed {
  int rank = 0;
  i64 row = 0;
  Piece piece{};
  std::vector<int> entry{};
};

std::vector<Placed> placed(std::span<const Piece> shard, int rank) {
  std::vector<Placed> pieces;
  i64 row = 0;
  for (const Piece& piece : shard) {
    check(piece.stride == 1, "a piece of document {} with stride {}", piece.doc, piece.stride);
    if (piece.doc >= 0) pieces.push_back({rank, row, piece});
    row += piece.count;
  }
  return pieces;
}

// Tokens of a document up to the last one that a shard has: what its queries see.
std::map<i64, i64> ends_of(std::span<const Piece> shard) {
  std::map<i64, i64> ends;
  for (const Piece& piece : shard)
    if (piece.doc >= 0) ends[piece.doc] = std::max<i64>(ends[piece.doc], end_of(piece));
  return ends;
}

// `count` rows of a piece from `offset` on, on their way to a rank: `round` brings them, their gradients go back with
// returns[back].
struct Part {
  const Placed* keys = nullptr;
  int from = 0, round = 0, back = 0;
  bool passed_on = false;
  int offset = 0, count = 0, share = 0;  // share: which of those that come one after the other
};

// The pieces of a document that a rank gets from one holder, side by side from row `at` on, for its blocks[step].
// last_round: the last one that reads them.
struct Delivery {
  int to = 0, holder = 0, step = 0;
  i64 doc = 0, at = 0;
  std::vector<Part> parts{};
  int last_round = 0;

  i64 rows() const {
    i64 sum = 0;
    for (const Part& part : parts) sum += part.count;
    return sum;
  }
  int first_round() const { return std::ranges::min(parts, {}, &Part::round).round; }
  int last_back() const { return std::ranges::max(parts, {}, &Part::back).back; }
  i64 row_of(const Placed& keys) const {
    i64 row = at;
    for (const Part& part : parts) {
      if (part.keys == &keys) return row;
      row += part.count;
    }
    throw InternalError("a piece that did not come");
  }
};

// The keys that a rank receives in a step have the same place in its memory for keys and in that for their gradients:
// the first that is free in both for as long as it is needed, the largest step first.
struct Needed {
  i64 rows = 0;
  int keys_from = 0, keys_until = 0, gradients_until = 0;  // rounds and steps; gradients are made in the step
};
class StepPlaces {
 public:
  explicit StepPlaces(const std::map<int, Needed>& steps) {
    std::vector<std::pair<int, Needed>> order(steps.begin(), steps.end());
    std::ranges::stable_sort(order, std::greater<>(), [](const auto& step) { return step.second.rows; });
    for (const auto& [step, needed] : order) {
      i64 at = 0;
      for (const Taken& other : taken_) {  // ascending
        if (!overlap(step, needed, other.step, other.needed)) continue;
        if (at + needed.rows <= other.at) break;
        at = std::max(at, other.at + other.needed.rows);
      }
      taken_.insert(std::ranges::upper_bound(taken_, at, {}, &Taken::at), {step, at, needed});
      most_ = std::max(most_, at + needed.rows);
    }
  }
  i64 of(int step) const { return std::ranges::find(taken_, step, &Taken::step)->at; }
  i64 rows() const { return most_; }

 private:
  struct Taken {
    int step = 0;
    i64 at = 0;
    Needed needed{};
  };
  // A round goes on while the step of its number is computed.
  static bool overlap(int a, const Needed& of_a, int b, const Needed& of_b) {
    return (of_a.keys_from <= of_b.keys_until && of_b.keys_from <= of_a.keys_until) ||
           (a <= of_b.gradients_until && b <= of_a.gradients_until);
  }
  std::vector<Taken> taken_;
  i64 most_ = 0;
};

class Planner {
 public:
  Planner(const MicroBatch& micro_batch, const RingHosts& hosts) : hosts_(hosts) {
    exchange_.seen.resize(micro_batch.shard.size());
    for (size_t rank = 0; rank < micro_batch.shard.size(); ++rank) {
      of_rank_.push_back(placed(micro_batch.shard[rank], static_cast<int>(rank)));
      for (const Placed& piece : of_rank_.back()) of_document_[piece.piece.doc].push_back(piece);
      ends_.push_back(ends_of(micro_batch.shard[rank]));
    }
    for (auto& [doc, pieces] : of_document_)
      for (Placed& piece : pieces) find_entries(piece);
    for (size_t rank = 0; rank < ends_.size(); ++rank)
      for (const auto& [doc, end] : ends_[rank]) deliver(static_cast<int>(rank), doc, end);
  }

  KeyExchange gathered(const MicroBatch& micro_batch) && {
    int rounds = 0;
    for (Delivery& delivery : deliveries_)
      for (Part& part : delivery.parts) {
        part.round = part.passed_on ? 1 : 0;
        rounds = std::max(rounds, part.round + 1);
      }
    for (Delivery& delivery : deliveries_) delivery.step = rounds;
    find_ways_back(rounds);
    std::vector<std::map<i64, i64>> first(of_rank_.size());  // first of a document's keys among those of a rank
    for (size_t rank = 0; rank < of_rank_.size(); ++rank) {
      SeenKeys& seen = exchange_.seen[rank];
      seen.rows = keys_brought_together(micro_batch.shard[rank]);
      i64 at = 0;
      if (seen.rows > 0)
        for (const auto& [doc, end] : ends_[rank]) first[rank][doc] = std::exchange(at, at + end);
      std::vector<QueryBlock> blocks;
      for (const Placed& own : of_rank_[rank]) {
        const i64 k = seen.rows > 0 ? first[rank].at(own.piece.doc) : own.row;
        if (seen.rows > 0) seen.own.push_back({own.row, k + own.piece.first, own.piece.count});
        blocks.push_back(
            {.q = static_cast<int>(own.row), .qn = own.piece.count, .k = static_cast<int>(k), .kn = end_of(own.piece)});
      }
      seen.blocks.resize(static_cast<size_t>(rounds) + 1);
      seen.blocks[seen.rows > 0 ? static_cast<size_t>(rounds) : 0] = std::move(blocks);
    }
    add_messages([&](const Delivery& delivery, const Placed& keys) {
      return first[static_cast<size_t>(delivery.to)].at(delivery.doc) + keys.piece.first;
    });
    return std::move(exchange_);
  }

  KeyExchange in_steps() && {
    std::map<int, int> steps;  // steps that some rank has, numbered from 1
    for (const Delivery& delivery : deliveries_) steps[step_of(delivery)];
    for (int number = 0; auto& [step, of] : steps) of = ++number;
    for (Delivery& delivery : deliveries_) {
      const int place = step_of(delivery);
      delivery.step = steps.at(place);
      for (Part& part : delivery.parts) part.round = delivery.step - 1;
      // Keys from another host come in parts, over as many rounds as a host has ranks, or fewer where there are fewer.
      const auto first = steps.upper_bound(place - hosts_.widest);
      if (host_of(delivery.to) != host_of(delivery.holder)) share_over_rounds(delivery, first->second - 1);
    }
    std::ranges::stable_sort(deliveries_, {}, &Delivery::step);
    find_ways_back(static_cast<int>(steps.size()));
    std::vector<std::map<int, Needed>> needed(of_rank_.size());
    for (Delivery& delivery : deliveries_) {
      const auto [it, fresh] = needed[static_cast<size_t>(delivery.to)].try_emplace(delivery.step);
      Needed& step = it->second;
      step.keys_from = fresh ? delivery.first_round() : std::min(step.keys_from, delivery.first_round());
      delivery.at = std::exchange(step.rows, step.rows + delivery.rows());
      step.keys_until = std::max({step.keys_until, delivery.step, delivery.last_round});
      step.gradients_until = std::max(step.gradients_until, delivery.last_back() + 1);
    }
    std::vector<StepPlaces> places(needed.begin(), needed.end());
    for (Delivery& delivery : deliveries_) delivery.at += places[static_cast<size_t>(delivery.to)].of(delivery.step);
    for (size_t rank = 0; rank < of_rank_.size(); ++rank) {
      exchange_.seen[rank].rows = places[rank].rows();
      exchange_.seen[rank].blocks.resize(steps.size() + 1);
      add_own_blocks(of_rank_[rank], exchange_.seen[rank].blocks[0]);
    }
    for (const Delivery& delivery : deliveries_) add_blocks(delivery);
    add_messages([](const Delivery& delivery, const Placed& keys) { return delivery.row_of(keys); });
    return std::move(exchange_);
  }

 private:
  bool sees(int rank, const Piece& keys) const {
    const auto end = ends_[static_cast<size_t>(rank)].find(keys.doc);
    return end != ends_[static_cast<size_t>(rank)].end() && keys.first < end->second;
  }

  int host_of(int rank) const { return hosts_.host[static_cast<size_t>(rank)]; }

  void find_entries(Placed& keys) const {
    if (hosts_.ranks.size() == 1) return;
    const auto needs = [&](int rank) { return sees(rank, keys.piece); };
    for (size_t host = 0; host < hosts_.ranks.size(); ++host)
      keys.entry.push_back(hosts_.first_from(keys.rank, static_cast<int>(host), needs));
  }

  void deliver(int rank, i64 doc, i64 end) {
    i64 found = 0;
    for (const Placed& keys : of_document_.at(doc)) {
      if (keys.piece.first >= end) continue;
      found += keys.piece.count;
      if (keys.rank == rank) continue;
      if (deliveries_.empty() || deliveries_.back().to != rank || deliveries_.back().doc != doc ||
          deliveries_.back().holder != keys.rank)
        deliveries_.push_back({.to = rank, .holder = keys.rank, .doc = doc});
      const int host = host_of(rank);
      const int from = host == host_of(keys.rank) ? keys.rank : keys.entry[static_cast<size_t>(host)];
      const bool passed_on = from != rank && from != keys.rank;
      deliveries_.back().parts.push_back(
          {.keys = &keys, .from = passed_on ? from : keys.rank, .passed_on = passed_on, .count = keys.piece.count});
    }
    check(found == end, "document {}: ring rank {} needs {} keys, and {} are there", doc, rank, end, found);
  }

  // The place of the holder before that of the rank: in the document's span, or, where this has several hosts, in their
  // order and then in that of the ranks of a host.
  int step_of(const Delivery& delivery) const {
    const std::vector<Placed>& pieces = of_document_.at(delivery.doc);
    const int first = pieces.front().rank, last = pieces.back().rank;
    const auto before = [](int to, int from, int count) { return (to - from + count) % count; };
    const auto [lowest, highest] = std::ranges::minmax(
        std::span(hosts_.host).subspan(static_cast<size_t>(first), static_cast<size_t>(last - first) + 1));
    const int hosts = highest - lowest + 1;
    if (hosts == 1) return before(delivery.to, delivery.holder, last - first + 1);
    const auto place = [&](int rank) { return hosts_.place[static_cast<size_t>(rank)]; };
    return before(host_of(delivery.to), host_of(delivery.holder), hosts) * hosts_.widest +
           before(place(delivery.to), place(delivery.holder), hosts_.widest);
  }

  // Keys that cross hosts come in equal shares with the rounds from `first` to that of the delivery, so that it hides
  // behind as many steps, and other rounds are not held up.
  static void share_over_rounds(Delivery& delivery, int first) {
    const int rounds = delivery.step - first;
    std::vector<Part> parts;
    for (const Part& part : delivery.parts) {
      if (part.passed_on) {
        parts.push_back(part);
        continue;
      }
      for (int i = 0; i < rounds; ++i) {
        Part share = part;
        share.round = first + i;
        share.share = i;
        share.offset = part.count * i / rounds;
        share.count = part.count * (i + 1) / rounds - share.offset;
        if (share.count > 0) parts.push_back(share);
      }
    }
    delivery.parts = std::move(parts);
  }

  // Gradients go back when their rank has computed them, and has those of all to whom it passed the keys on.
  void find_ways_back(int steps) {
    if (hosts_.ranks.size() > 1)  // else nothing is passed on
      for (Delivery& delivery : deliveries_) sources_[{delivery.to, delivery.doc, delivery.holder}] = &delivery;
    for (Delivery& delivery : deliveries_)
      for (Part& part : delivery.parts) part.back = std::max(part.back, delivery.step);
    for (const Delivery& delivery : deliveries_)
      for (const Part& part : delivery.parts) {
        if (!part.passed_on) continue;
        Delivery& source = *sources_.at({part.from, delivery.doc, delivery.holder});
        source.last_round = std::max(source.last_round, part.round);
        for (Part& came : source.parts) {
          if (came.keys != part.keys) continue;
          check(came.round < part.round, "document {}: ring rank {} passes on keys before they come", delivery.doc,
                part.from);
          came.back = std::max(came.back, part.back + 1);
        }
      }
    for (Delivery& delivery : deliveries_)  // shares one after the other, as long as there is something to hide behind
      for (Part& part : delivery.parts) part.back = std::max(part.back, std::min(part.back + part.share, steps));
  }

  // A part's queries see the parts of their document before them on the rank, and their own up to each.
  static void add_own_blocks(const std::vector<Placed>& pieces, std::vector<QueryBlock>& blocks) {
    const Placed* first = nullptr;
    for (const Placed& queries : pieces) {
      if (!first || first->piece.doc != queries.piece.doc) first = &queries;
      blocks.push_back({.q = static_cast<int>(queries.row),
                        .qn = queries.piece.count,
                        .k = static_cast<int>(first->row),
                        .kn = static_cast<int>(queries.row - first->row) + queries.piece.count});
    }
  }

  void add_blocks(const Delivery& delivery) {
    std::vector<QueryBlock>& blocks =
        exchange_.seen[static_cast<size_t>(delivery.to)].blocks[static_cast<size_t>(delivery.step)];
    bool touches = false;  // the last block is of the part before, on the rows before
    for (const Placed& queries : of_rank_[static_cast<size_t>(delivery.to)]) {
      if (queries.piece.doc != delivery.doc) continue;
      int seen = 0;
      for (const Part& part : delivery.parts)
        if (mask_of(queries.piece, part.keys->piece) == Mask::full) seen += part.count;
      if (touches && blocks.back().kn == seen && blocks.back().q + blocks.back().qn == queries.row)
        blocks.back().qn += queries.piece.count;
      else if (seen > 0)
        blocks.push_back({.q = static_cast<int>(queries.row),
                          .qn = queries.piece.count,
                          .k = static_cast<int>(delivery.at),
                          .kn = seen,
                          .causal = false});
      touches = touches || seen > 0;
    }
  }

  template <class RowOf>
  void add_messages(const RowOf& row_of) {
    for (const Delivery& delivery : deliveries_)
      for (const Part& part : delivery.parts) {
        const i64 row = part.passed_on ? row_of(*sources_.at({part.from, delivery.doc, delivery.holder}), *part.keys)
                                       : part.keys->row;
        const KeyMessage message{.from = part.from,
                                 .to = delivery.to,
                                 .row = row + part.offset,
                                 .at = row_of(delivery, *part.keys) + part.offset,
                                 .count = part.count,
                                 .passed_on = part.passed_on};
        const auto add = [&](std::vector<std::vector<KeyMessage>>& to, int at) {
          if (std::ssize(to) <= at) to.resize(static_cast<size_t>(at) + 1);
          to[static_cast<size_t>(at)].push_back(message);
        };
        add(exchange_.rounds, part.round);
        add(exchange_.returns, part.back);
      }
  }

  const RingHosts& hosts_;
  std::vector<std::vector<Placed>> of_rank_;
  std::map<i64, std::vector<Placed>> of_document_;  // in the order of ring ranks
  std::vector<std::map<i64, i64>> ends_;            // by rank and document
  std::vector<Delivery> deliveries_;
  std::map<std::tuple<int, i64, int>, Delivery*> sources_;
  KeyExchange exchange_;
};

}  // namespace

double attention_pairs(const QueryBlock& block) {
  const double queries = block.qn, hidden = block.causal ? queries * (queries - 1) / 2 : 0;
  return queries * block.kn - hidden;
}

i64 keys_brought_together(std::span<const Piece> shard) {
  i64 own = 0, seen = 0;
  for (const Piece& piece : shard) own += piece.doc >= 0 ? piece.count : 0;
  for (const auto& [doc, end] : ends_of(shard)) seen += end;
  return seen == own ? 0 : seen;
}

KeyExchange key_exchange(const MicroBatch& micro_batch, KeyPassing passing, std::span<const int> hosts) {
  const std::vector<int> one(micro_batch.shard.size(), 0);
  check(hosts.empty() || hosts.size() == one.size(), "{} ring ranks on hosts of {}", one.size(), hosts.size());
  const RingHosts places(hosts.empty() ? one : std::vector<int>(hosts.begin(), hosts.end()));
  Planner planner(micro_batch, places);
  return passing == KeyPassing::ring ? std::move(planner).in_steps() : std::move(planner).gathered(micro_batch);
}

}  // namespace switchyard::batch
