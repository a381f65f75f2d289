#include "batch/validate.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::batch {
namespace {

// Tokens of documents.
i64 tokens_of(const std::vector<Piece>& shard) {
  i64 tokens = 0;
  for (const Piece& piece : shard) tokens += piece.doc < 0 ? 0 : piece.count;
  return tokens;
}

i64 documents_of(const MicroBatch& micro_batch) {
  std::set<i64> documents;
  for (const std::vector<Piece>& shard : micro_batch.shard)
    for (const Piece& piece : shard)
      if (piece.doc >= 0) documents.insert(piece.doc);
  return static_cast<i64>(documents.size());
}

// Marks the tokens of one micro-batch's documents, each once.
class Placement {
 public:
  explicit Placement(std::span<const i64> lengths)
      : lengths_(lengths), placed_(lengths.size(), 0), micro_batch_(lengths.size(), -1) {}

  // Adds one micro-batch; `where` describes it.
  void add(const MicroBatch& micro_batch, const std::string& where) {
    ++micro_batches_;
    std::vector<std::pair<i64, i64>> tokens;  // (document, token) of pieces that are parts
    for (const std::vector<Piece>& shard : micro_batch.shard)
      for (const Piece& piece : shard)
        if (piece.doc >= 0) add(piece, where, tokens);
    std::sort(tokens.begin(), tokens.end());
    const auto twice = std::adjacent_find(tokens.begin(), tokens.end());
    if (twice != tokens.end())
      check(false, "{}: token {} of document {} is placed twice", where, twice->second, twice->first);
  }

  void finish() const {
    for (std::size_t doc = 0; doc < lengths_.size(); ++doc)
      check(placed_[doc] == lengths_[doc], "document {}: {} of {} tokens are placed", doc, placed_[doc], lengths_[doc]);
  }

 private:
  void add(const Piece& piece, const std::string& where, std::vector<std::pair<i64, i64>>& tokens) {
    const auto doc = static_cast<std::size_t>(piece.doc);
    check(doc < lengths_.size(), "{}: document {} of {}", where, piece.doc, lengths_.size());
    const i64 last = piece.first + i64{piece.count - 1} * piece.stride;
    check(piece.first >= 0 && piece.count >= 1 && piece.stride >= 1 && last < lengths_[doc],
          "{}: piece {} + {} * {} of document {} of {} tokens", where, piece.first, piece.count, piece.stride, doc,
          lengths_[doc]);
    check(micro_batch_[doc] < 0 || micro_batch_[doc] == micro_batches_,
          "{}: document {} is also in another micro-batch", where, doc);
    micro_batch_[doc] = micro_batches_;
    placed_[doc] += piece.count;
    check(placed_[doc] <= lengths_[doc], "{}: document {} of {} tokens has {} placed", where, doc, lengths_[doc],
          placed_[doc]);
    if (piece.count == lengths_[doc]) return;
    for (i64 token = piece.first; token <= last; token += piece.stride) tokens.emplace_back(piece.doc, token);
  }

  std::span<const i64> lengths_;
  std::vector<i64> placed_, micro_batch_;
  i64 micro_batches_ = -1;
};

// Documents with their tokens on all ranks. In a stream they lie in this order.
std::map<i64, i64> documents_in(const MicroBatch& micro_batch) {
  std::map<i64, i64> documents;
  for (const std::vector<Piece>& shard : micro_batch.shard)
    for (const Piece& piece : shard)
      if (piece.doc >= 0) documents[piece.doc] += piece.count;
  return documents;
}

// Returns the padding behind a ring rank's parts of documents; what follows the last one is the rank's own.
i64 padding_of_documents(const std::vector<Piece>& shard, const std::map<i64, i64>& documents, int ranks,
                         const BucketSpec& bucket, const std::string& where) {
  if (bucket.document_multiple == 1) {
    for (std::size_t i = 0; i + 1 < shard.size(); ++i) check(shard[i].doc >= 0, "{}: padding that is not last", where);
    return 0;
  }
  i64 padded = 0;
  auto piece = shard.begin();
  for (const auto& [doc, tokens] : documents) {
    i64 lacks = padded_part(tokens, ranks, bucket.document_multiple);
    for (; piece != shard.end() && piece->doc == doc; ++piece) lacks -= piece->count;
    if (lacks == 0) continue;
    check(piece != shard.end() && *piece == padding(lacks),
          "{}: document {} is not padded to {} times a multiple of {}", where, doc, ranks, bucket.document_multiple);
    padded += lacks;
    ++piece;
  }
  check(shard.end() - piece <= 1, "{}: padding that is not last", where);
  return padded;
}

void check_shape(const MicroBatch& micro_batch, const BucketSpec& bucket, std::size_t ring_ranks,
                 const std::string& where) {
  check(micro_batch.shard.size() == ring_ranks && micro_batch.T.size() == ring_ranks && tokens(micro_batch) >= 1,
        "{}: {} tokens, pieces of {} ring ranks", where, micro_batch.T, micro_batch.shard.size());
  const i64 documents = documents_of(micro_batch), capacity = micro_batch_capacity(bucket);
  const std::map<i64, i64> in_order = bucket.document_multiple > 1 ? documents_in(micro_batch) : std::map<i64, i64>();
  i64 used_by_all = 0;
  for (std::size_t rank = 0; rank < micro_batch.T.size(); ++rank) {
    const i64 T = micro_batch.T[rank];
    const std::vector<Piece>& shard = micro_batch.shard[rank];
    check(T >= 1 && T % bucket.multiple == 0, "{}: {} tokens are not a multiple of {}", where, T, bucket.multiple);
    i64 all = 0;
    for (const Piece& piece : shard) {
      check(piece.count >= 1, "{}: a piece of {} tokens", where, piece.count);
      all += piece.count;
    }
    check(all == T, "{}: pieces of {} tokens on ring rank {} instead of {}", where, all, rank, T);
    const i64 padded = padding_of_documents(shard, in_order, static_cast<int>(ring_ranks), bucket, where);
    const i64 used = tokens_of(shard);
    used_by_all += used;
    check(documents == 0 || T - used - padded < bucket.multiple || (used == 0 && T == bucket.multiple),
          "{}: {} tokens padded to {}, more than a multiple of {} needs", where, used, T, bucket.multiple);
  }
  check(used_by_all <= capacity, "{}: {} tokens in a micro-batch of {}", where, used_by_all, capacity);
  check(bucket.micro_batch_sequences == 0 || documents <= bucket.micro_batch_sequences,
        "{}: {} documents in a micro-batch of {}", where, documents, bucket.micro_batch_sequences);
}

// The bucket of a phase is that of its first document.
int bucket_of_phase(const PhasePlan& phase, std::span<const i64> lengths, std::span<const BucketSpec> buckets,
                    std::size_t index) {
  for (const auto& replica : phase.replica)
    for (const MicroBatch& micro_batch : replica)
      for (const auto& shard : micro_batch.shard)
        for (const Piece& piece : shard)
          if (piece.doc >= 0 && std::cmp_less(piece.doc, lengths.size()))
            return bucket_of(lengths[static_cast<std::size_t>(piece.doc)], buckets);
  throw InternalError(fmt::format("phase {} has no documents", index));
}

void check_bucket(const MicroBatch& micro_batch, std::span<const i64> lengths, std::span<const BucketSpec> buckets,
                  int bucket, const std::string& where) {
  for (const auto& shard : micro_batch.shard)
    for (const Piece& piece : shard)
      if (piece.doc >= 0 && std::cmp_less(piece.doc, lengths.size())) {
        const i64 length = lengths[static_cast<std::size_t>(piece.doc)];
        check(bucket_of(length, buckets) == bucket, "{}: document {} of {} tokens belongs in bucket {}, not {}", where,
              piece.doc, length, bucket_of(length, buckets), bucket);
      }
}

}  // namespace

void validate(const StepPlan& plan, std::span<const i64> lengths, std::span<const BucketSpec> buckets, bool masked) {
  Placement placement(lengths);
  for (std::size_t p = 0; p < plan.phases.size(); ++p) {
    const PhasePlan& phase = plan.phases[p];
    const int index = bucket_of_phase(phase, lengths, buckets, p);
    const BucketSpec& bucket = buckets[static_cast<std::size_t>(index)];
    check(phase.strategy == bucket.strategy, "phase {} runs strategy {}, its bucket {}", p, phase.strategy,
          bucket.strategy);
    check(std::cmp_equal(phase.replica.size(), bucket.replicas), "phase {} has {} replicas, its bucket {}", p,
          phase.replica.size(), bucket.replicas);
    for (std::size_t replica = 0; replica < phase.replica.size(); ++replica)
      for (std::size_t m = 0; m < phase.replica[replica].size(); ++m) {
        const MicroBatch& micro_batch = phase.replica[replica][m];
        const std::string where =
            fmt::format("step {}, phase {}, replica {}, micro-batch {}", plan.step, p, replica, m);
        const int ring_ranks = bucket.rings.empty() ? 1 : bucket.rings[replica].ranks;
        check_shape(micro_batch, bucket, static_cast<std::size_t>(ring_ranks), where);
        check_bucket(micro_batch, lengths, buckets, index, where);
        placement.add(micro_batch, where);
      }
  }
  placement.finish();
  i64 labels = 0;
  for (const i64 length : lengths) labels += length - 1;
  check(plan.valid_tokens == labels || (masked && plan.valid_tokens >= 0 && plan.valid_tokens < labels),
        "step {}: valid_tokens is {}, the documents have {} labels", plan.step, plan.valid_tokens, labels);
}

double padding_share(const StepPlan& plan) {
  i64 all = 0, used = 0;
  for (const PhasePlan& phase : plan.phases)
    for (const auto& replica : phase.replica)
      for (const MicroBatch& micro_batch : replica) {
        all += tokens(micro_batch);
        for (const std::vector<Piece>& shard : micro_batch.shard) used += tokens_of(shard);
      }
  return all == 0 ? 0.0 : static_cast<double>(all - used) / static_cast<double>(all);
}

}  // namespace switchyard::batch
