#include "train/documents.hpp"

namespace switchyard::train {
namespace {

const data::Corpus& corpus_of(const std::vector<data::Source>& sources, const data::Sequence& sequence) {
  return sources[static_cast<size_t>(sequence.source)].corpus;
}

}  // namespace

runtime::Documents read_documents(const std::vector<data::Source>& sources,
                                  const std::vector<data::Sequence>& sequences, const std::vector<bool>& read,
                                  i64 vocabulary) {
  runtime::Documents documents(sequences.size());
  std::vector<i64> ids;
  for (size_t d = 0; d < documents.size(); ++d) {
    if (!read[d]) continue;
    const data::Sequence& sequence = sequences[d];
    ids.resize(static_cast<size_t>(sequence.count));
    corpus_of(sources, sequence).read(sequence.document, sequence.first, 1, vocabulary, ids);
    documents[d].assign(ids.begin(), ids.end());
  }
  return documents;
}

runtime::Labels read_labels(const std::vector<data::Source>& sources, const std::vector<data::Sequence>& sequences,
                            const std::vector<bool>& read) {
  runtime::Labels labels;
  labels.sources = static_cast<int>(sources.size());
  for (const data::Sequence& sequence : sequences) labels.source.push_back(sequence.source);
  if (!data::masked(sources)) return labels;
  labels.counts.resize(sequences.size());
  for (size_t d = 0; d < labels.counts.size(); ++d) {
    const data::Sequence& sequence = sequences[d];
    if (!read[d] || !corpus_of(sources, sequence).masked()) continue;
    labels.counts[d].resize(static_cast<size_t>(sequence.count));
    corpus_of(sources, sequence).read_mask(sequence.document, sequence.first, labels.counts[d]);
  }
  return labels;
}

}  // namespace switchyard::train
