// Where the documents of a step lie: by phase, replica, micro-batch and ring rank, with what each has of them, for
// texts and pages.
#pragma once

#include <span>
#include <vector>

#include "batch/balance.hpp"
#include "batch/planner.hpp"
#include "batch/step_plan.hpp"

namespace switchyard::batch {

/// A ring rank's part of a micro-batch. tokens: with padding; keys: those whose keys and values come from other ring
/// ranks; key_bytes: of these and of their gradients, in all passes, for one of the ring rank's devices; share: its
/// time in units of an even share of the micro-batch without messages, 0 without a ring.
struct RingPlace {
  std::vector<Piece> pieces{};
  i64 tokens = 0, padding = 0, key_bytes = 0;
  ReceivedKeys keys{};
  double pairs = 0, share = 0;
};

/// Sums over a replica's micro-batches. share: Balance::share. micro_batches[m][r]: of ring rank r.
struct ReplicaPlaces {
  i64 documents = 0, tokens = 0, padding = 0;
  double pairs = 0, share = 0;
  std::vector<std::vector<RingPlace>> micro_batches{};
};

struct PhasePlaces {
  int strategy = 0;
  i64 max_length = 0, documents = 0;
  bool ring = false;              // whether documents may lie on several ring ranks
  double slowest = 0, bound = 1;  // Balance
  std::vector<ReplicaPlaces> replicas{};
};

/// The places of a step's documents, by phase. lengths: of the documents.
/// errors  InternalError if a phase's strategy has no bucket
std::vector<PhasePlaces> document_places(const StepPlan& plan, std::span<const i64> lengths,
                                         std::span<const BucketSpec> buckets, const WorkModel& work);

}  // namespace switchyard::batch
