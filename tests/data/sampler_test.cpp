#include "data/sampler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <numeric>

#include "base/errors.hpp"
#include "index_file.hpp"

namespace switchyard::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SamplerTest : public testing::Test {
 protected:
  const Corpus& corpus_of(const std::vector<i64>& lengths) {
    write_corpus(folder_.path(), lengths);
    corpora_.push_back(std::make_unique<Corpus>(Corpus::open(folder_.path())));
    return *corpora_.back();
  }

  static std::string message_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const UserError& error) {
      return error.what();
    }
    return "no UserError";
  }

  TestFolder folder_{"sampler"};
  std::vector<std::unique_ptr<Corpus>> corpora_;
};

// Batches of a fresh run, one after another.
std::vector<Batch> run(const Sampler& sampler, int steps) {
  std::vector<Batch> batches;
  Cursor cursor;
  for (int step = 0; step < steps; ++step) {
    batches.push_back(sampler.batch(cursor));
    cursor = batches.back().next;
  }
  return batches;
}

const std::vector<i64> kLengths{1, 30, 7, 12, 100, 5, 64, 2, 9, 41, 3};

TEST_F(SamplerTest, EveryEpochVisitsEveryDocumentOnceInAnOrderOfItsOwn) {
  const Corpus& corpus = corpus_of(kLengths);
  const Sampler sampler(corpus, {.seed = 1, .size = {.sequences = 4}, .context = 1000});
  std::vector<i64> documents;
  for (const Batch& batch : run(sampler, 11)) {
    EXPECT_EQ(batch.sequences.size(), 4u);
    for (const Sequence& sequence : batch.sequences) {
      EXPECT_EQ(sequence.count, corpus.length(sequence.document));
      documents.push_back(sequence.document);
    }
  }
  std::vector<std::vector<i64>> epochs;
  for (std::size_t epoch = 0; epoch < 4; ++epoch) {
    epochs.emplace_back(documents.begin() + 11 * static_cast<std::ptrdiff_t>(epoch),
                        documents.begin() + 11 * static_cast<std::ptrdiff_t>(epoch + 1));
    EXPECT_THAT(epochs.back(), testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
    for (std::size_t before = 0; before < epoch; ++before) EXPECT_NE(epochs[before], epochs[epoch]);
  }
}

TEST_F(SamplerTest, AnyStepIsReachedWithoutThoseBefore) {
  const Corpus& corpus = corpus_of(kLengths);
  for (const LongDocuments policy : {LongDocuments::split, LongDocuments::clip})
    for (const BatchSize size : {BatchSize{.sequences = 5, .tokens = 0}, BatchSize{.sequences = 0, .tokens = 90}}) {
      const Sampler sampler(corpus, {.seed = 9, .size = size, .context = 16, .long_documents = policy});
      const std::vector<Batch> batches = run(sampler, 40);
      for (const int step : {0, 1, 17, 39}) {
        const Batch batch = sampler.batch(sampler.cursor_of(step));
        EXPECT_EQ(batch.sequences, batches[static_cast<std::size_t>(step)].sequences) << step;
        EXPECT_EQ(batch.next, batches[static_cast<std::size_t>(step)].next);
      }
    }
}

TEST_F(SamplerTest, SplitGivesPiecesInOrderThatCoverEveryDocument) {
  const Corpus& corpus = corpus_of(kLengths);
  const Sampler sampler(corpus, {.seed = 4, .size = {.sequences = 3}, .context = 16});
  // Pieces of an epoch: 1 + 2 + 1 + 1 + 7 + 1 + 4 + 1 + 1 + 3 + 1 = 23; 23 batches of 3 are exactly three epochs.
  std::map<i64, i64> seen;
  const std::vector<Batch> batches = run(sampler, 23);
  for (const Batch& batch : batches)
    for (const Sequence& sequence : batch.sequences) {
      EXPECT_LE(sequence.count, 16);
      EXPECT_EQ(sequence.first, seen[sequence.document] % corpus.length(sequence.document));
      seen[sequence.document] += sequence.count;
    }
  for (const auto& [document, tokens] : seen) EXPECT_EQ(tokens, 3 * corpus.length(document));
  EXPECT_EQ(batches.back().next, (Cursor{.epoch = 3, .position = 0, .offset = 0}));
}

TEST_F(SamplerTest, ABatchInTokensIsTheFewestSequencesThatReachIt) {
  const Corpus& corpus = corpus_of(kLengths);
  for (const LongDocuments policy : {LongDocuments::split, LongDocuments::clip}) {
    const Sampler sampler(corpus, {.seed = 2, .size = {.tokens = 50}, .context = 32, .long_documents = policy});
    for (const Batch& batch : run(sampler, 50)) {
      const std::vector<i64> lengths = Sampler::lengths(batch);
      const i64 tokens = std::accumulate(lengths.begin(), lengths.end(), i64{0});
      EXPECT_GE(tokens, 50);
      EXPECT_LT(tokens - lengths.back(), 50);
    }
  }
}

TEST_F(SamplerTest, ClipCutsOffAndTakesEachDocumentOnce) {
  const Corpus& corpus = corpus_of({40, 8});
  const Sampler sampler(corpus,
                        {.seed = 2, .size = {.sequences = 2}, .context = 16, .long_documents = LongDocuments::clip});
  EXPECT_THAT(sampler.batch({}).sequences, testing::UnorderedElementsAre(Sequence{0, 0, 16}, Sequence{1, 0, 8}));
}

TEST_F(SamplerTest, ADocumentOfOneTokenIsASequence) {
  const Sampler sampler(corpus_of({1}), {.seed = 2, .size = {.sequences = 3}, .context = 16});
  EXPECT_THAT(sampler.batch({}).sequences, ElementsAre(Sequence{0, 0, 1}, Sequence{0, 0, 1}, Sequence{0, 0, 1}));
}

TEST_F(SamplerTest, AnotherSeedGivesAnotherOrder) {
  const Corpus& corpus = corpus_of(kLengths);
  const auto first = [&](std::uint64_t seed) {
    return Sampler(corpus, {.seed = seed, .size = {.sequences = 11}, .context = 1000}).batch({}).sequences;
  };
  EXPECT_EQ(first(1), first(1));
  EXPECT_NE(first(1), first(2));
}

TEST_F(SamplerTest, ALongDocumentIsRefusedByNameIfAsked) {
  const Corpus& corpus = corpus_of(kLengths);
  Sampler(corpus, {.seed = 2, .size = {.sequences = 3}, .context = 100, .long_documents = LongDocuments::error});
  EXPECT_THAT(message_of([&] {
                Sampler(corpus,
                        {.seed = 2, .size = {.sequences = 3}, .context = 64, .long_documents = LongDocuments::error});
              }),
              HasSubstr("document 4 has 100 tokens, more than batch.context = 64. Set data.long_documents to \"split\" "
                        "or \"clip\", or raise "
                        "batch.context."));
}

TEST_F(SamplerTest, WrongSettingsAreRefused) {
  const Corpus& corpus = corpus_of(kLengths);
  const auto error = [&](BatchSize size, i64 context) {
    return message_of([&] { Sampler(corpus, {.seed = 0, .size = size, .context = context}); });
  };
  EXPECT_THAT(error({}, 16), HasSubstr("batch.sequences = 0 and batch.tokens = 0: give one of them, above zero."));
  EXPECT_THAT(error({.sequences = 1, .tokens = 1}, 16), HasSubstr("give one of them"));
  EXPECT_THAT(error({.sequences = -1, .tokens = 1}, 16), HasSubstr("give one of them"));
  EXPECT_THAT(error({.sequences = 1}, 0), HasSubstr("batch.context = 0: give at least 1 token."));
  EXPECT_THAT(message_of([&] { Sampler(corpus_of({}), {.seed = 0, .size = {.sequences = 1}, .context = 16}); }),
              HasSubstr("corpus.idx: no documents."));
}

TEST_F(SamplerTest, ACursorOfOtherDataIsRefused) {
  const Sampler sampler(corpus_of(kLengths), {.seed = 2, .size = {.sequences = 3}, .context = 16});
  EXPECT_THAT(message_of([&] { sampler.batch({.epoch = 0, .position = 11, .offset = 0}); }),
              HasSubstr("the checkpoint continues at document 11 of epoch 0, the data has 11 documents. Resume with "
                        "the data it was written for."));
  EXPECT_THAT(message_of([&] { sampler.batch({.epoch = 0, .position = 0, .offset = 500}); }),
              HasSubstr("the checkpoint continues at token 500 of document"));
  EXPECT_THAT(message_of([&] { sampler.batch({.epoch = -1, .position = 0, .offset = 0}); }), HasSubstr("of epoch -1"));
}

}  // namespace
}  // namespace switchyard::data
