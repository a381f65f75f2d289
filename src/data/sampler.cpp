#include "data/sampler.hpp"

#include <algorithm>

#include "base/errors.hpp"
#include "data/permutation.hpp"

namespace switchyard::data {

void check_sequences(size_t count) {
  if (static_cast<i64>(count) > kMostSequences)
    user_error("a step has more than {} documents. Lower batch.tokens, or use data with longer documents.",
               kMostSequences);
}

Sampler::Sampler(const Corpus& corpus, const Settings& settings) : corpus_(corpus), settings_(settings) {
  if (corpus.documents() == 0)
    user_error("{}.idx: no documents. Prepare the data again with `switchyard data prepare`.", corpus.origin());
  if (settings.context < 1) user_error("batch.context = {}: give at least 1 token.", settings.context);
  if ((settings.size.sequences > 0) == (settings.size.tokens > 0) || settings.size.sequences < 0 ||
      settings.size.tokens < 0)
    user_error("batch.sequences = {} and batch.tokens = {}: give one of them, above zero.", settings.size.sequences,
               settings.size.tokens);
  if (settings.long_documents != LongDocuments::error) return;
  for (i64 document = 0; document < corpus.documents(); ++document)
    if (corpus.length(document) > settings.context)
      user_error(
          "{}: document {} has {} tokens, more than batch.context = {}. Set data.long_documents to \"split\" or "
          "\"clip\", or raise "
          "batch.context.",
          corpus.origin(), document, corpus.length(document), settings.context);
}

i64 Sampler::usable(i64 document) const {
  const i64 length = corpus_.length(document);
  return settings_.long_documents == LongDocuments::clip ? std::min(length, settings_.context) : length;
}

Cursor Sampler::walk(Cursor cursor, std::vector<Sequence>* out) const {
  i64 sequences = 0, tokens = 0;
  const auto enough = [&] {
    return settings_.size.sequences > 0 ? sequences >= settings_.size.sequences : tokens >= settings_.size.tokens;
  };
  while (!enough()) {
    const Permutation order(corpus_.documents(), settings_.seed, static_cast<std::uint64_t>(cursor.epoch));
    while (!enough() && cursor.position < corpus_.documents()) {
      const i64 document = order[cursor.position], length = usable(document);
      if (cursor.offset >= length)
        user_error(
            "{}: the checkpoint continues at token {} of document {}, which has {}. Resume with the data it was "
            "written for.",
            corpus_.origin(), cursor.offset, document, length);
      const i64 count = std::min(length - cursor.offset, settings_.context);
      if (out) {
        out->push_back({.document = document, .first = cursor.offset, .count = count});
        check_sequences(out->size());
      }
      ++sequences;
      tokens += count;
      cursor.offset += count;
      if (cursor.offset == length) cursor = {.epoch = cursor.epoch, .position = cursor.position + 1, .offset = 0};
    }
    if (cursor.position == corpus_.documents()) cursor = {.epoch = cursor.epoch + 1, .position = 0, .offset = 0};
  }
  return cursor;
}

Batch Sampler::batch(const Cursor& cursor) const {
  if (cursor.epoch < 0 || cursor.offset < 0 || cursor.position < 0 || cursor.position >= corpus_.documents())
    user_error(
        "{}: the checkpoint continues at document {} of epoch {}, the data has {} documents. Resume with the data it "
        "was written for.",
        corpus_.origin(), cursor.position, cursor.epoch, corpus_.documents());
  Batch out;
  out.next = walk(cursor, &out.sequences);
  return out;
}

Cursor Sampler::cursor_of(i64 step) const {
  check(step >= 0, "step {}", step);
  if (settings_.size.sequences > 0 && settings_.long_documents != LongDocuments::split) {
    const i64 place = step * settings_.size.sequences;
    return {.epoch = place / corpus_.documents(), .position = place % corpus_.documents(), .offset = 0};
  }
  Cursor cursor;
  for (i64 i = 0; i < step; ++i) cursor = walk(cursor, nullptr);
  return cursor;
}

std::vector<i64> Sampler::lengths(const Batch& batch) {
  std::vector<i64> out;
  out.reserve(batch.sequences.size());
  for (const Sequence& sequence : batch.sequences) out.push_back(sequence.count);
  return out;
}

}  // namespace switchyard::data
