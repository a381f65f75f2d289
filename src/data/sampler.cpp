#include "data/sampler.hpp"

#include <algorithm>
#include <utility>

#include "base/errors.hpp"
#include "base/random.hpp"
#include "data/permutation.hpp"

namespace switchyard::data {

void check_sequences(size_t count) {
  if (static_cast<i64>(count) > kMostSequences)
    user_error("a step has more than {} documents. Lower batch.tokens, or use data with longer documents.",
               kMostSequences);
}

Sampler::Sampler(std::vector<WeightedCorpus> corpora, const Settings& settings)
    : corpora_(std::move(corpora)), settings_(settings) {
  check(!corpora_.empty(), "a sampler without a corpus");
  if (settings.context < 1) user_error("batch.context = {}: give at least 1 token.", settings.context);
  if ((settings.size.sequences > 0) == (settings.size.tokens > 0) || settings.size.sequences < 0 ||
      settings.size.tokens < 0)
    user_error("batch.sequences = {} and batch.tokens = {}: give one of them, above zero.", settings.size.sequences,
               settings.size.tokens);
  for (const WeightedCorpus& source : corpora_) check_corpus(source.corpus);
}

void Sampler::check_corpus(const Corpus& corpus) const {
  if (corpus.documents() == 0)
    user_error("{}.idx: no documents. Prepare the data again with `switchyard data prepare`.", corpus.origin());
  if (settings_.long_documents != LongDocuments::error) return;
  for (i64 document = 0; document < corpus.documents(); ++document)
    if (corpus.length(document) > settings_.context)
      user_error(
          "{}: document {} has {} tokens, more than batch.context = {}. Set data.long_documents to \"split\" or "
          "\"clip\", or raise "
          "batch.context.",
          corpus.origin(), document, corpus.length(document), settings_.context);
}

Sequence Sampler::take(int source, Place& place) const {
  const Corpus& corpus = corpora_[static_cast<std::size_t>(source)].corpus;
  // The first corpus has the order that it has alone.
  const std::uint64_t seed = source == 0 ? settings_.seed : mix(settings_.seed + static_cast<std::uint64_t>(source));
  const Permutation order(corpus.documents(), seed, static_cast<std::uint64_t>(place.epoch));
  const i64 document = order[place.position];
  i64 length = corpus.length(document);
  if (settings_.long_documents == LongDocuments::clip) length = std::min(length, settings_.context);
  if (place.offset >= length)
    user_error(
        "{}: the checkpoint continues at token {} of document {}, which has {}. Resume with the data it was "
        "written for.",
        corpus.origin(), place.offset, document, length);
  const Sequence sequence{.document = document,
                          .first = place.offset,
                          .count = std::min(length - place.offset, settings_.context),
                          .source = source};
  place.offset += sequence.count;
  if (place.offset < length) return sequence;
  place.offset = 0;
  if (++place.position < corpus.documents()) return sequence;
  place.position = 0;
  ++place.epoch;
  return sequence;
}

Cursor Sampler::walk(Cursor cursor, std::vector<Sequence>* out) const {
  i64 sequences = 0, tokens = 0;
  const auto enough = [&] {
    return settings_.size.sequences > 0 ? sequences >= settings_.size.sequences : tokens >= settings_.size.tokens;
  };
  while (!enough()) {
    const auto next = std::ranges::min_element(cursor, {}, &Place::drawn);
    const auto source = next - cursor.begin();
    const Sequence sequence = take(static_cast<int>(source), *next);
    if (cursor.size() > 1)
      next->drawn += static_cast<double>(sequence.count) / corpora_[static_cast<std::size_t>(source)].weight;
    if (out) {
      out->push_back(sequence);
      check_sequences(out->size());
    }
    ++sequences;
    tokens += sequence.count;
  }
  return cursor;
}

Cursor Sampler::checked(const Cursor& cursor) const {
  if (cursor.empty()) return Cursor(corpora_.size());
  check(cursor.size() == corpora_.size(), "a cursor of {} places in {} corpora", cursor.size(), corpora_.size());
  for (std::size_t i = 0; i < cursor.size(); ++i) {
    const Corpus& corpus = corpora_[i].corpus;
    const Place& place = cursor[i];
    if (place.epoch < 0 || place.offset < 0 || place.position < 0 || place.position >= corpus.documents())
      user_error(
          "{}: the checkpoint continues at document {} of epoch {}, the data has {} documents. Resume with the data it "
          "was written for.",
          corpus.origin(), place.position, place.epoch, corpus.documents());
  }
  return cursor;
}

Batch Sampler::batch(const Cursor& cursor) const {
  Batch out;
  out.next = walk(checked(cursor), &out.sequences);
  return out;
}

std::vector<Sequence> Sampler::epoch() const {
  std::vector<Sequence> sequences;
  for (std::size_t source = 0; source < corpora_.size(); ++source)
    for (Place place; place.epoch == 0; check_sequences(sequences.size()))
      sequences.push_back(take(static_cast<int>(source), place));
  return sequences;
}

Cursor Sampler::cursor_of(i64 step) const {
  check(step >= 0, "step {}", step);
  const i64 documents = corpora_.front().corpus.documents();
  if (corpora_.size() == 1 && settings_.size.sequences > 0 && settings_.long_documents != LongDocuments::split) {
    const i64 place = step * settings_.size.sequences;
    return {{.epoch = place / documents, .position = place % documents}};
  }
  Cursor cursor(corpora_.size());
  for (i64 i = 0; i < step; ++i) cursor = walk(std::move(cursor), nullptr);
  return cursor;
}

std::vector<i64> Sampler::lengths(const Batch& batch) {
  std::vector<i64> out;
  out.reserve(batch.sequences.size());
  for (const Sequence& sequence : batch.sequences) out.push_back(sequence.count);
  return out;
}

}  // namespace switchyard::data
