#include "batch/planner.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/errors.hpp"
#include "batch/packing.hpp"
#include "batch/ring_map.hpp"

namespace switchyard::batch {
namespace {

void check_bucket(std::size_t index, std::span<const BucketSpec> buckets) {
  const BucketSpec& bucket = buckets[index];
  if (bucket.max_length < 1) user_error("bucket[{}].max_length = {}: give at least 1 token.", index, bucket.max_length);
  if (bucket.max_length > std::numeric_limits<int>::max())
    user_error("bucket[{}].max_length = {}: a sequence may have at most {} tokens.", index, bucket.max_length,
               std::numeric_limits<int>::max());
  if (index > 0 && bucket.max_length > buckets[index - 1].max_length)
    user_error("bucket[{}].max_length = {} is above bucket[{}].max_length = {}. List the buckets longest first.", index,
               bucket.max_length, index - 1, buckets[index - 1].max_length);
  if (micro_batch_capacity(bucket) < bucket.max_length)
    user_error(
        "bucket[{}].micro_batch_tokens = {} is below its max_length = {}: a sequence must fit in a micro-batch. Raise "
        "it to {} or leave it "
        "out.",
        index, bucket.micro_batch_tokens, bucket.max_length, bucket.max_length);
  check(bucket.replicas >= 1 && bucket.multiple >= 1 && bucket.document_multiple >= 1,
        "bucket {} has {} replicas, micro-batches in multiples of {} and documents in multiples of {}", index,
        bucket.replicas, bucket.multiple, bucket.document_multiple);
  check(bucket.pipelines.empty() || std::cmp_equal(bucket.pipelines.size(), bucket.replicas),
        "bucket {} has {} replicas and {} pipelines", index, bucket.replicas, bucket.pipelines.size());
  check(bucket.rings.empty() || std::cmp_equal(bucket.rings.size(), bucket.replicas),
        "bucket {} has {} replicas and {} rings", index, bucket.replicas, bucket.rings.size());
  for (const Pipeline& pipeline : bucket.pipelines)
    check(pipeline.speed > 0 && pipeline.stages >= 1, "bucket {}: a pipeline has speed {} and {} stages", index,
          pipeline.speed, pipeline.stages);
}

void check_order(std::span<const int> order, std::size_t buckets) {
  std::vector<int> sorted(order.begin(), order.end()), all(buckets);
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  check(sorted == all, "the order of phases {} is no permutation of {} buckets",
        std::vector<int>(order.begin(), order.end()), buckets);
}

Ring ring_of(const BucketSpec& bucket, std::size_t replica) {
  return bucket.rings.empty() ? Ring{} : bucket.rings[replica];
}

// The ring ranks of a replica on which each document of a micro-batch lies.
std::vector<Span> spans_of(std::span<const i64> lengths, const BucketSpec& bucket, Ring ring) {
  if (ring.ranks == 1 || bucket.stream) return std::vector<Span>(lengths.size(), {0, ring.ranks});
  const i64 share = (micro_batch_capacity(bucket) + ring.ranks - 1) / ring.ranks;
  for (const i64 capacity : {share + share / 8, std::numeric_limits<i64>::max()}) {
    ring.capacity = capacity;
    if (auto found = bucket.uniform_degree ? assign_uniform(lengths, ring) : assign(lengths, ring))
      return std::move(found->span);
  }
  throw InternalError("documents that fit on no ring ranks");
}

MicroBatch micro_batch_of(PackedSequence micro_batch, const BucketSpec& bucket, std::size_t replica) {
  std::sort(micro_batch.items.begin(), micro_batch.items.end(),
            [](const Item& a, const Item& b) { return a.doc < b.doc; });
  std::vector<i64> lengths;
  for (const Item& item : micro_batch.items) lengths.push_back(item.tokens);
  const Ring ring = ring_of(bucket, replica);
  const std::vector<Span> spans = spans_of(lengths, bucket, ring);
  std::vector<PlacedDocument> documents;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    documents.push_back({.doc = micro_batch.items[i].doc, .tokens = lengths[i], .span = spans[i]});
  return lay_out(documents, ring.ranks, bucket.multiple, bucket.document_multiple);
}

// Tokens of a document of a stream, padding included, on ring ranks as the first replica has: rows are made before they
// are dealt out.
i64 padded(const Item& item, const BucketSpec& bucket) {
  const int ranks = ring_of(bucket, 0).ranks;
  return ranks * padded_part(item.tokens, ranks, bucket.document_multiple);
}

// Documents in their order, as many in a micro-batch as fit; replicas get them in turn.
PhasePlan plan_stream(const std::vector<Item>& items, const BucketSpec& bucket) {
  const Capacity capacity{micro_batch_capacity(bucket), bucket.micro_batch_sequences};
  std::vector<PackedSequence> rows;
  for (const Item& item : items) {
    const i64 tokens = padded(item, bucket);
    if (rows.empty() || rows.back().tokens + tokens > capacity.tokens ||
        std::cmp_equal(rows.back().items.size(), capacity.items))
      rows.emplace_back();
    rows.back().items.push_back(item);
    rows.back().tokens += tokens;
  }
  PhasePlan phase{.strategy = bucket.strategy, .replica = {}};
  phase.replica.resize(static_cast<std::size_t>(bucket.replicas));
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const std::size_t replica = row % phase.replica.size();
    phase.replica[replica].push_back(micro_batch_of(std::move(rows[row]), bucket, replica));
  }
  return phase;
}

PhasePlan plan_phase(std::vector<Item> items, const BucketSpec& bucket) {
  if (bucket.stream) return plan_stream(items, bucket);
  PhasePlan phase{.strategy = bucket.strategy, .replica = {}};
  std::vector<Pipeline> pipelines = bucket.pipelines;
  pipelines.resize(static_cast<std::size_t>(bucket.replicas));
  const std::vector<std::vector<Item>> replicas = spread_over_replicas(std::move(items), pipelines);
  for (std::size_t r = 0; r < replicas.size(); ++r) phase.replica.push_back(micro_batches_of(replicas[r], bucket, r));
  return phase;
}

}  // namespace

i64 micro_batch_capacity(const BucketSpec& bucket) {
  if (bucket.micro_batch_tokens > 0) return bucket.micro_batch_tokens;
  const i64 most =
      std::numeric_limits<i64>::max() / std::max<i64>(1, bucket.max_length);  // the number of documents has no bound
  return bucket.max_length * std::clamp<i64>(bucket.micro_batch_sequences, 1, most);
}

std::vector<int> published_order(int buckets) {
  std::vector<int> order;
  if (buckets > 0) order.push_back(0);
  for (int i = buckets - 1; i > 0; --i) order.push_back(i);
  return order;
}

int bucket_of(i64 length, std::span<const BucketSpec> buckets) {
  // The first bucket that is too short; the one before it is the smallest that fits.
  const auto end =
      std::partition_point(buckets.begin(), buckets.end(), [&](const BucketSpec& b) { return b.max_length >= length; });
  if (end == buckets.begin())
    user_error(
        "a sequence of {} tokens is longer than the longest bucket ({} tokens). Raise bucket[0].max_length, or lower "
        "batch.context.",
        length, buckets.empty() ? 0 : buckets.front().max_length);
  const i64 max_length = (end - 1)->max_length;
  const auto found =
      std::partition_point(buckets.begin(), end, [&](const BucketSpec& b) { return b.max_length > max_length; });
  return static_cast<int>(found - buckets.begin());
}

StepPlan plan_batch(i64 step, std::span<const i64> lengths, std::span<const BucketSpec> buckets, const WorkModel& work,
                    std::span<const int> order) {
  for (std::size_t i = 0; i < buckets.size(); ++i) check_bucket(i, buckets);
  check_order(order, buckets.size());
  StepPlan plan{.step = step, .valid_tokens = 0, .phases = {}};
  std::vector<std::vector<Item>> items(buckets.size());
  for (std::size_t doc = 0; doc < lengths.size(); ++doc) {
    check(lengths[doc] >= 1, "document {} of step {} has {} tokens", doc, step, lengths[doc]);
    plan.valid_tokens += lengths[doc] - 1;
    const auto bucket = static_cast<std::size_t>(bucket_of(lengths[doc], buckets));
    items[bucket].push_back({.doc = static_cast<i64>(doc), .tokens = lengths[doc], .work = work(lengths[doc])});
  }
  for (const int i : order) {
    const auto bucket = static_cast<std::size_t>(i);
    if (!items[bucket].empty()) plan.phases.push_back(plan_phase(std::move(items[bucket]), buckets[bucket]));
  }
  return plan;
}

std::vector<MicroBatch> micro_batches_of(std::span<const Item> documents, const BucketSpec& bucket,
                                         std::size_t replica) {
  const int stages = bucket.pipelines.empty() ? Pipeline{}.stages : bucket.pipelines[replica].stages;
  const Capacity capacity{micro_batch_capacity(bucket), bucket.micro_batch_sequences};
  std::vector<MicroBatch> micro_batches;
  for (PackedSequence& micro_batch : pack_sequences(documents, capacity, stages, bucket.paired))
    micro_batches.push_back(micro_batch_of(std::move(micro_batch), bucket, replica));
  return micro_batches;
}

std::vector<BucketSpec> used_buckets(const StepPlan& plan, std::span<const BucketSpec> buckets) {
  std::vector<BucketSpec> used;
  for (const BucketSpec& bucket : buckets)
    if (std::ranges::find(plan.phases, bucket.strategy, &PhasePlan::strategy) != plan.phases.end())
      used.push_back(bucket);
  return used;
}

StepPlan plan_batch(i64 step, std::span<const i64> lengths, std::span<const BucketSpec> buckets,
                    const WorkModel& work) {
  return plan_batch(step, lengths, buckets, work, published_order(static_cast<int>(buckets.size())));
}

}  // namespace switchyard::batch
