#include "batch/balance.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "batch/ring_map.hpp"

namespace switchyard::batch {
namespace {

// Calls `f` with each piece of a document in the phase.
template <class F>
void for_each_piece(const PhasePlan& phase, const F& f) {
  for (const auto& replica : phase.replica)
    for (const MicroBatch& micro_batch : replica)
      for (const auto& shard : micro_batch.shard)
        for (const Piece& piece : shard)
          if (piece.doc >= 0) f(piece);
}

// The span of each document of a micro-batch, by its number. The first of a span's ranks has the document's first
// token unless it lies mirrored.
std::map<i64, Span> spans_of(const MicroBatch& micro_batch) {
  std::map<i64, Span> spans;
  for (std::size_t rank = 0; rank < micro_batch.shard.size(); ++rank)
    for (const Piece& piece : micro_batch.shard[rank]) {
      if (piece.doc < 0) continue;
      const int ring = static_cast<int>(rank);
      const auto [it, fresh] = spans.try_emplace(piece.doc, Span{ring, 1, piece.first > 0});
      if (!fresh) it->second.degree = ring - it->second.first + 1;
    }
  return spans;
}

struct Times {
  double even = 0;              // all ring ranks with equal shares and no messages
  double longest = 0;           // the longest document where it is quickest
  std::vector<double> replica;  // sums over its micro-batches, each as long as its slowest ring rank
};

// The ring ranks of a pipeline work on all stages at once, so that a micro-batch takes one stage's part of the time.
double per_stage(const BucketSpec& bucket, std::size_t replica) {
  return bucket.pipelines.empty() ? 1.0 : 1.0 / bucket.pipelines[replica].stages;
}

double time_of(const MicroBatch& micro_batch, std::span<const i64> lengths, const Ring& ring) {
  double slowest = 0;
  for (const RingLoad& load : ring_loads(micro_batch, lengths, ring.ranks_per_host))
    slowest = std::max(slowest, seconds(load, ring.costs));
  return slowest;
}

// The bound of a ring that has one document alone is the time of its cheapest placement.
double least_time(i64 tokens, Ring ring) {
  ring.capacity = std::numeric_limits<i64>::max();
  return assign(std::span(&tokens, 1), ring)->bound;
}

Times ring_times(const PhasePlan& phase, std::span<const i64> lengths, const BucketSpec& bucket) {
  RingLoad all;  // whole, so without messages
  i64 longest = 0;
  for_each_piece(phase, [&](const Piece& piece) {
    all.tokens += piece.count;
    all.pairs += attention_pairs(piece);
    longest = std::max(longest, lengths[static_cast<std::size_t>(piece.doc)]);
  });
  Times times{.longest = std::numeric_limits<double>::infinity(), .replica = {}};
  double rate = 0;  // rate of the phase's work, in one unit of time
  for (std::size_t r = 0; r < phase.replica.size(); ++r) {
    const Ring& ring = bucket.rings[r];
    const double part = per_stage(bucket, r);
    double time = 0;
    for (const MicroBatch& micro_batch : phase.replica[r]) time += part * time_of(micro_batch, lengths, ring);
    times.replica.push_back(time);
    if (longest == 0) continue;
    rate += ring.ranks / (part * seconds(all, ring.costs));
    times.longest = std::min(times.longest, part * least_time(longest, ring));
  }
  times.even = rate > 0 ? 1 / rate : 0;
  return times;
}

Balance ring_balance(const PhasePlan& phase, std::span<const i64> lengths, const BucketSpec& bucket) {
  const Times times = ring_times(phase, lengths, bucket);
  Balance balance{.share = times.replica};
  if (times.even == 0) return balance;
  for (double& share : balance.share) share /= times.even;
  balance.bound = std::max(1.0, times.longest / times.even);
  return balance;
}

}  // namespace

std::vector<RingLoad> ring_loads(const MicroBatch& micro_batch, std::span<const i64> lengths, int ranks_per_host) {
  std::vector<RingLoad> loads(micro_batch.shard.size());
  for (std::size_t rank = 0; rank < loads.size(); ++rank) {
    loads[rank].tokens = micro_batch.T[rank];
    for (const Piece& piece : micro_batch.shard[rank])
      if (piece.doc >= 0) loads[rank].pairs += attention_pairs(piece);
  }
  for (const auto& [doc, span] : spans_of(micro_batch)) {
    if (span.degree == 1) continue;
    const std::vector<ReceivedKeys> received =
        received_keys({.doc = doc, .tokens = lengths[static_cast<std::size_t>(doc)], .span = span}, ranks_per_host);
    for (std::size_t i = 0; i < received.size(); ++i) {
      RingLoad& load = loads[static_cast<std::size_t>(span.first) + i];
      load.keys.inside += received[i].inside;
      load.keys.across += received[i].across;
      load.steps = std::max(load.steps, span.degree - 1);
    }
  }
  return loads;
}

std::vector<double> replica_work(const PhasePlan& phase, std::span<const i64> lengths, const WorkModel& work) {
  std::vector<double> out;
  for (const auto& replica : phase.replica) {
    double sum = 0;
    for (const MicroBatch& micro_batch : replica)
      for (const auto& shard : micro_batch.shard)
        for (const Piece& piece : shard)
          // A ring shard holds its share of the document's work.
          if (piece.doc >= 0) {
            const i64 length = lengths[static_cast<std::size_t>(piece.doc)];
            sum += work(length) * static_cast<double>(piece.count) / static_cast<double>(length);
          }
    out.push_back(sum);
  }
  return out;
}

Balance balance_of(const PhasePlan& phase, std::span<const i64> lengths, const BucketSpec& bucket,
                   const WorkModel& work) {
  if (!bucket.rings.empty()) return ring_balance(phase, lengths, bucket);
  Balance balance{.share = replica_work(phase, lengths, work)};
  double total = 0, speeds = 0, fastest = 0, heaviest = 0;
  for (size_t r = 0; r < balance.share.size(); ++r) {
    const double speed = bucket.pipelines.empty() ? 1 : bucket.pipelines[r].speed;
    total += balance.share[r];
    balance.share[r] /= speed;
    speeds += speed;
    fastest = std::max(fastest, speed);
  }
  for_each_piece(phase, [&](const Piece& piece) {
    heaviest = std::max(heaviest, work(lengths[static_cast<std::size_t>(piece.doc)]));
  });
  if (total == 0) return balance;
  for (double& share : balance.share) share *= speeds / total;
  balance.bound = std::max(1.0, heaviest / fastest * speeds / total);
  return balance;
}

}  // namespace switchyard::batch
