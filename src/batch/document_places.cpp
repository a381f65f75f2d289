#include "batch/document_places.hpp"

#include <algorithm>
#include <set>

#include "base/errors.hpp"

namespace switchyard::batch {
namespace {

// An even share of a micro-batch for its ring ranks, without messages and padding; 0 if it has no documents.
double even_seconds(const MicroBatch& micro_batch, const Ring& ring) {
  RingLoad all;
  for (const auto& shard : micro_batch.shard)
    for (const Piece& piece : shard)
      if (piece.doc >= 0) {
        all.tokens += piece.count;
        all.pairs += attention_pairs(piece);
      }
  return seconds(all, ring.costs) / ring.ranks;
}

std::vector<RingPlace> places_of(const MicroBatch& micro_batch, std::span<const i64> lengths, const Ring* ring) {
  const std::vector<RingLoad> loads = ring_loads(micro_batch, lengths, ring ? ring->ranks_per_host : 1);
  const double even = ring ? even_seconds(micro_batch, *ring) : 0;
  std::vector<RingPlace> places;
  for (std::size_t rank = 0; rank < loads.size(); ++rank) {
    RingPlace& place = places.emplace_back();
    place.pieces = micro_batch.shard[rank];
    place.tokens = loads[rank].tokens;
    for (const Piece& piece : place.pieces)
      if (piece.doc < 0) place.padding += piece.count;
    place.pairs = static_cast<double>(loads[rank].pairs);
    place.keys = loads[rank].keys;
    if (!ring) continue;
    place.key_bytes = (place.keys.inside + place.keys.across) * ring->key_bytes;
    if (even > 0) place.share = seconds(loads[rank], ring->costs) / even;
  }
  return places;
}

ReplicaPlaces places_of(const std::vector<MicroBatch>& replica, std::span<const i64> lengths, const Ring* ring) {
  ReplicaPlaces places;
  std::set<i64> documents;
  for (const MicroBatch& micro_batch : replica)
    for (const RingPlace& rank : places.micro_batches.emplace_back(places_of(micro_batch, lengths, ring))) {
      places.tokens += rank.tokens;
      places.padding += rank.padding;
      places.pairs += rank.pairs;
      for (const Piece& piece : rank.pieces)
        if (piece.doc >= 0) documents.insert(piece.doc);
    }
  places.documents = std::ssize(documents);
  return places;
}

}  // namespace

std::vector<PhasePlaces> document_places(const StepPlan& plan, std::span<const i64> lengths,
                                         std::span<const BucketSpec> buckets, const WorkModel& work) {
  std::vector<PhasePlaces> phases;
  for (const PhasePlan& phase : plan.phases) {
    const auto bucket = std::ranges::find(buckets, phase.strategy, &BucketSpec::strategy);
    check(bucket != buckets.end(), "document_places: a phase of strategy {}, which has no bucket", phase.strategy);
    const Balance balance = balance_of(phase, lengths, *bucket, work);
    PhasePlaces& places = phases.emplace_back(PhasePlaces{.strategy = phase.strategy,
                                                          .max_length = bucket->max_length,
                                                          .ring = !bucket->rings.empty(),
                                                          .slowest = balance.slowest(),
                                                          .bound = balance.bound,
                                                          .replicas = {}});
    for (std::size_t r = 0; r < phase.replica.size(); ++r) {
      places.replicas.push_back(places_of(phase.replica[r], lengths, places.ring ? &bucket->rings[r] : nullptr));
      places.replicas.back().share = balance.share[r];
      places.documents += places.replicas.back().documents;
    }
  }
  return phases;
}

}  // namespace switchyard::batch
