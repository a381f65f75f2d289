// The corpora of a job.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/job.hpp"
#include "data/corpus.hpp"
#include "data/sampler.hpp"

namespace switchyard::data {

/// A corpus and its share of the tokens: weight over the sum of all weights. name: empty if it is the only one.
struct Source {
  std::string name;
  double weight = 1;
  Corpus corpus;
};

/// What distinguishes one corpus from another that was prepared in its place.
struct CorpusSize {
  i64 documents = 0, tokens = 0;
  bool operator==(const CorpusSize&) const = default;
};
std::vector<CorpusSize> sizes_of(const std::vector<Source>& sources);
/// By which ranks recognize the same corpora, from samples of their files.
std::uint64_t fingerprint(const std::vector<Source>& sources);

/// Opens data.path or all of [[data.source]].
/// errors  UserError as Corpus::open; no data at all; sources that were prepared with different tokenizers, by the
///         checksums in their meta.json, or by the vocabulary size where one has no checksum; a token above the model's
///         vocabulary, if that is known (Corpus::expect_vocabulary)
std::vector<Source> open_sources(const config::Job& job);

/// Opens validation.path or all of [[validation.source]]; none if the job has neither.
/// errors  UserError as Corpus::open; a tokenizer other than that of `trained`; a token above the vocabulary
std::vector<Source> open_validation_sources(const config::Job& job, const std::vector<Source>& trained);

/// The path of the first corpus of the job that doesn't exist, empty if the job names none; nothing if all exist.
std::optional<std::string> missing_data(const config::Job& job);

/// Whether one of the corpora is masked.
bool masked(const std::vector<Source>& sources);
/// Labels of these sequences that count. Reads the masks of all of them.
i64 labels(const std::vector<Source>& sources, const std::vector<Sequence>& sequences);

/// Vocabulary size of the sources' tokenizer; nothing if no meta.json has it.
std::optional<i64> vocab_size(const std::vector<Source>& sources);

/// Draws the job's batches. The sources must outlive the sampler. weights: in the place of the sources' own, if any.
Sampler sampler_of(const std::vector<Source>& sources, const config::Job& job, std::span<const double> weights = {});

}  // namespace switchyard::data
