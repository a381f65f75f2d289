// Which documents a step trains on, as a function of (seed, place in the data).
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.hpp"
#include "config/job.hpp"
#include "data/corpus.hpp"

namespace switchyard::data {

using config::LongDocuments;

/// Size of a global batch: exactly one of the two is positive.
struct BatchSize {
  i64 sequences = 0;  // exactly this many
  i64 tokens = 0;     // the fewest sequences with at least this many tokens
};

/// Most sequences of a step: listing more could exhaust memory before an error is reported.
inline constexpr i64 kMostSequences = i64{1} << 18;
/// UserError if `count` is above kMostSequences.
void check_sequences(size_t count);

/// Where the next sequence of a corpus starts.
struct Place {
  i64 epoch = 0;
  i64 position = 0;  // place in the epoch's order of documents
  i64 offset = 0;    // first token of the next piece of that document
  double drawn = 0;  // tokens drawn so far, each over the corpus' weight at that time; 0 where there is one corpus
  bool operator==(const Place&) const = default;
};

/// The place in each corpus; part of a checkpoint. A fresh run starts at {}.
using Cursor = std::vector<Place>;

/// Tokens first ... first + count - 1 of a document of a corpus. source: number of the corpus.
struct Sequence {
  i64 document = 0, first = 0, count = 0;
  int source = 0;
  bool operator==(const Sequence&) const = default;
};

/// A global batch, and the cursor of the one after it.
struct Batch {
  std::vector<Sequence> sequences;
  Cursor next;
};

struct WeightedCorpus {
  const Corpus& corpus;
  double weight = 1;
};

/// Every epoch of a corpus visits every document once, in an order of its own; a batch may cross the end of an epoch.
/// Pieces of a split document follow one another. Each sequence comes from the corpus that has drawn the fewest tokens
/// over its weight (the first of several), so at any time the shares of tokens are those of the weights to within the
/// longest sequence (Demers, Keshav, Shenker 1989, fair queueing). Weights may change from one batch to the next: those
/// to come follow the new ones.
class Sampler {
 public:
  struct Settings {
    std::uint64_t seed = 0;
    BatchSize size;
    i64 context = 0;  // tokens
    LongDocuments long_documents = LongDocuments::split;
  };

  /// The corpora, one or more, must outlive the sampler.
  /// errors  UserError: no documents, a batch or context that is not positive; with `error`, the first document that is
  ///         too long
  Sampler(std::vector<WeightedCorpus> corpora, const Settings& settings);

  /// The batch that starts at a cursor. UserError if the cursor lies outside a corpus (a checkpoint of other data).
  Batch batch(const Cursor& cursor) const;

  /// Every sequence of the first epoch of each corpus, one corpus after the other.
  std::vector<Sequence> epoch() const;

  /// Cursor of step 0, 1, ... of a fresh run. Computed for batches of a number of sequences of one corpus whose
  /// documents aren't split; otherwise it walks the lengths of all documents before, so a run keeps the cursor of its
  /// last batch instead.
  Cursor cursor_of(i64 step) const;

  /// Tokens of each sequence of a batch, for the batch planner.
  static std::vector<i64> lengths(const Batch& batch);

 private:
  void check_corpus(const Corpus& corpus) const;
  Cursor checked(const Cursor& cursor) const;
  Sequence take(int source, Place& place) const;
  Cursor walk(Cursor cursor, std::vector<Sequence>* out) const;

  std::vector<WeightedCorpus> corpora_;
  Settings settings_;
};

}  // namespace switchyard::data
