// The batch planner: spreads the sequences of one global batch over length buckets, replicas and micro-batches.
#pragma once

#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "batch/packing.hpp"
#include "batch/ring_assignment.hpp"
#include "batch/step_plan.hpp"

namespace switchyard::batch {

/// Sequences of up to max_length tokens, and how their strategy runs them. Buckets are given longest first;
/// of several with the same max_length the first one is used.
struct BucketSpec {
  i64 max_length = 0;                 // tokens
  int strategy = 0;                   // index of the strategy in the job
  int replicas = 1;                   // pipelines that work on different tokens: groups times data parallel degree
  i64 micro_batch_tokens = 0;         // capacity of a micro-batch; 0: max_length, times micro_batch_sequences if given
  i64 micro_batch_sequences = 0;      // most documents of a micro-batch; 0: any number
  i64 multiple = 1;                   // each ring rank is padded to a multiple of this many tokens
  std::vector<Pipeline> pipelines{};  // one for each replica; empty: all have speed 1 and one stage
  bool stream = false;                // rows of documents in their order, instead of balanced work
  i64 document_multiple = 1;          // each ring rank's part of a document is padded to padded_part() with this
  std::vector<Ring> rings{};          // one for each replica; empty: each has one rank. Capacities are not read
  bool paired = false;                // micro-batches of a replica run in twos
  bool uniform_degree = false;        // documents of a micro-batch lie on equally many ring ranks; with stream on all
};

/// Tokens that a micro-batch of the bucket may have, without padding.
i64 micro_batch_capacity(const BucketSpec& bucket);

/// Work of a sequence of n tokens: linear * n + quadratic * n^2. Any unit; only ratios count.
struct WorkModel {
  double linear = 1, quadratic = 0;
  double operator()(i64 n) const {
    return linear * static_cast<double>(n) + quadratic * static_cast<double>(n) * static_cast<double>(n);
  }
};

/// Order of phases as published: longest bucket, shortest, then upward to the second longest. 3 buckets: 0, 2, 1.
/// After a fully replicated strategy every move toward more tensor parallelism needs no bytes for parameters.
std::vector<int> published_order(int buckets);

/// Index of the bucket with the smallest max_length that fits, of several the first one. UserError if the sequence is
/// longer than every bucket.
int bucket_of(i64 length, std::span<const BucketSpec> buckets);

/// Lays out one global batch. lengths[i]: tokens of document i (1 or more); order: buckets in order of execution. Each
/// document lies whole in one micro-batch; micro-batches hold at most micro_batch_tokens and are padded to `multiple`
/// only. Work is balanced over replicas (longest processing time first) and over the micro-batches of a replica; with
/// `stream`, documents fill one micro-batch after the other in their order, and replicas get these in turn. Inside a
/// micro-batch documents are assigned to ring ranks (batch/ring_assignment), each of which has an even share of the
/// capacity and an eighth more, or whatever they need where they don't fit so.
/// Buckets without documents get no phase. The plan depends on the arguments alone. All tokens but the first of each
/// document are labels; where some don't count, the caller sets valid_tokens.
/// errors  UserError: buckets whose max_length rises, a micro-batch smaller than a sequence, a sequence longer than
/// every
///         bucket
StepPlan plan_batch(i64 step, std::span<const i64> lengths, std::span<const BucketSpec> buckets, const WorkModel& work,
                    std::span<const int> order);

/// The micro-batches of one replica of a phase without `stream`. documents: as spread_over_replicas() gives them.
std::vector<MicroBatch> micro_batches_of(std::span<const Item> documents, const BucketSpec& bucket,
                                         std::size_t replica);

/// The buckets whose strategies the plan's phases run, in their order. Where a step uses only some of the buckets, a
/// document belongs to one of these.
std::vector<BucketSpec> used_buckets(const StepPlan& plan, std::span<const BucketSpec> buckets);

/// The same in the published order.
StepPlan plan_batch(i64 step, std::span<const i64> lengths, std::span<const BucketSpec> buckets, const WorkModel& work);

}  // namespace switchyard::batch
