#include "data/sampler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <numeric>

#include "../message_of.hpp"
#include "base/errors.hpp"
#include "index_file.hpp"

namespace switchyard::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SamplerTest : public testing::Test {
 protected:
  const Corpus& corpus_of(const std::vector<i64>& lengths) {
    const std::filesystem::path folder = folder_.path() / std::to_string(corpora_.size());
    std::filesystem::create_directories(folder);
    write_corpus(folder, lengths);
    corpora_.push_back(std::make_unique<Corpus>(Corpus::open(folder)));
    return *corpora_.back();
  }

  Scratch folder_;
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
  const Sampler sampler({{corpus}}, {.seed = 1, .size = {.sequences = 4}, .context = 1000});
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
      const Sampler sampler({{corpus}}, {.seed = 9, .size = size, .context = 16, .long_documents = policy});
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
  const Sampler sampler({{corpus}}, {.seed = 4, .size = {.sequences = 3}, .context = 16});
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
  EXPECT_EQ(batches.back().next, (Cursor{{.epoch = 3}}));
}

TEST_F(SamplerTest, ABatchInTokensIsTheFewestSequencesThatReachIt) {
  const Corpus& corpus = corpus_of(kLengths);
  for (const LongDocuments policy : {LongDocuments::split, LongDocuments::clip}) {
    const Sampler sampler({{corpus}}, {.seed = 2, .size = {.tokens = 50}, .context = 32, .long_documents = policy});
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
  const Sampler sampler({{corpus}},
                        {.seed = 2, .size = {.sequences = 2}, .context = 16, .long_documents = LongDocuments::clip});
  EXPECT_THAT(sampler.batch({}).sequences, testing::UnorderedElementsAre(Sequence{0, 0, 16}, Sequence{1, 0, 8}));
}

TEST_F(SamplerTest, ADocumentOfOneTokenIsASequence) {
  const Sampler sampler({{corpus_of({1})}}, {.seed = 2, .size = {.sequences = 3}, .context = 16});
  EXPECT_THAT(sampler.batch({}).sequences, ElementsAre(Sequence{0, 0, 1}, Sequence{0, 0, 1}, Sequence{0, 0, 1}));
}

class SeveralCorpora : public SamplerTest {
 protected:
  // Tokens of each corpus in some batches.
  static std::vector<i64> tokens_of(const std::vector<Batch>& batches, std::size_t corpora) {
    std::vector<i64> tokens(corpora, 0);
    for (const Batch& batch : batches)
      for (const Sequence& sequence : batch.sequences)
        tokens[static_cast<std::size_t>(sequence.source)] += sequence.count;
    return tokens;
  }
  static i64 sum(const std::vector<i64>& values) { return std::accumulate(values.begin(), values.end(), i64{0}); }

  const Corpus& a_ = corpus_of(kLengths);
  const Corpus& b_ = corpus_of({90, 80, 3});
  const Corpus& c_ = corpus_of({1, 2, 1, 1});
};

TEST_F(SeveralCorpora, HaveTheirSharesOfTheTokensAtAnyTime) {
  const std::vector<double> weights{1, 0.5, 2.5};
  for (const LongDocuments policy : {LongDocuments::split, LongDocuments::clip}) {
    const Sampler sampler({{a_, weights[0]}, {b_, weights[1]}, {c_, weights[2]}},
                          {.seed = 3, .size = {.sequences = 5}, .context = 32, .long_documents = policy});
    std::vector<Batch> batches = run(sampler, 400);
    for (const std::size_t steps : {400u, 100u, 30u}) {
      batches.resize(steps);
      const std::vector<i64> tokens = tokens_of(batches, 3);
      for (std::size_t s = 0; s < 3; ++s)
        EXPECT_NEAR(static_cast<double>(tokens[s]), static_cast<double>(sum(tokens)) * weights[s] / 4, 3 * 32.0);
    }
  }
}

TEST_F(SeveralCorpora, EachHasEpochsOfItsOwn) {
  const Sampler sampler({{a_, 1}, {b_, 1}}, {.seed = 3, .size = {.sequences = 7}, .context = 1000});
  std::map<int, std::map<i64, i64>> visits;
  const std::vector<Batch> batches = run(sampler, 100);
  for (const Batch& batch : batches)
    for (const Sequence& sequence : batch.sequences) ++visits[sequence.source][sequence.document];
  for (int s = 0; s < 2; ++s) {
    const i64 epoch = batches.back().next[static_cast<std::size_t>(s)].epoch;
    EXPECT_GT(epoch, 2);
    for (const auto& [document, count] : visits[s]) EXPECT_TRUE(count == epoch || count == epoch + 1) << document;
    EXPECT_EQ(visits[s].size(), static_cast<std::size_t>((s == 0 ? a_ : b_).documents()));
  }
}

TEST_F(SeveralCorpora, OneOfThemAloneIsDrawnAsEver) {
  const Sampler::Settings settings{.seed = 3, .size = {.tokens = 100}, .context = 16};
  std::vector<Sequence> together;
  for (const Batch& batch : run(Sampler({{a_, 1}, {b_, 1}}, settings), 40))
    for (const Sequence& sequence : batch.sequences)
      if (sequence.source == 0) together.push_back(sequence);
  std::vector<Sequence> alone;
  for (const Batch& batch : run(Sampler({{a_}}, settings), 40))
    alone.insert(alone.end(), batch.sequences.begin(), batch.sequences.end());
  alone.resize(together.size());
  EXPECT_EQ(together, alone);
}

TEST_F(SeveralCorpora, EqualOnesAreDrawnInDifferentOrders) {
  std::vector<std::vector<i64>> documents(2);
  for (const Batch& batch : run(Sampler({{a_}, {a_}}, {.seed = 3, .size = {.sequences = 22}, .context = 1000}), 1))
    for (const Sequence& sequence : batch.sequences)
      documents[static_cast<std::size_t>(sequence.source)].push_back(sequence.document);
  const std::size_t common = std::min(documents[0].size(), documents[1].size());
  ASSERT_GE(common, 5u);
  for (auto& list : documents) list.resize(common);
  EXPECT_NE(documents[0], documents[1]);
}

TEST_F(SeveralCorpora, AnyCursorGoesOnAsBefore) {
  const Sampler sampler({{a_, 0.3}, {b_, 0.7}}, {.seed = 3, .size = {.sequences = 5}, .context = 32});
  const std::vector<Batch> batches = run(sampler, 60);
  for (const int step : {1, 17, 59}) {
    EXPECT_EQ(sampler.cursor_of(step), batches[static_cast<std::size_t>(step) - 1].next);
    EXPECT_EQ(sampler.batch(sampler.cursor_of(step)).sequences, batches[static_cast<std::size_t>(step)].sequences);
  }
}

TEST_F(SeveralCorpora, FollowNewWeightsFromThenOn) {
  const Sampler::Settings settings{.seed = 3, .size = {.sequences = 5}, .context = 32};
  const Cursor cursor = run(Sampler({{a_, 9}, {b_, 1}}, settings), 200).back().next;
  std::vector<Batch> after;
  const Sampler sampler({{a_, 1}, {b_, 1}}, settings);
  for (Cursor at = cursor; after.size() < 100; at = after.back().next) after.push_back(sampler.batch(at));
  const std::vector<i64> tokens = tokens_of(after, 2);
  EXPECT_NEAR(static_cast<double>(tokens[0]), static_cast<double>(tokens[1]), 3 * 32.0);
}

TEST_F(SamplerTest, AnotherSeedGivesAnotherOrder) {
  const Corpus& corpus = corpus_of(kLengths);
  const auto first = [&](std::uint64_t seed) {
    return Sampler({{corpus}}, {.seed = seed, .size = {.sequences = 11}, .context = 1000}).batch({}).sequences;
  };
  EXPECT_EQ(first(1), first(1));
  EXPECT_NE(first(1), first(2));
}

TEST_F(SamplerTest, ALongDocumentIsRefusedByNameIfAsked) {
  const Corpus& corpus = corpus_of(kLengths);
  Sampler({{corpus}}, {.seed = 2, .size = {.sequences = 3}, .context = 100, .long_documents = LongDocuments::error});
  EXPECT_THAT(message_of([&] {
                Sampler({{corpus}},
                        {.seed = 2, .size = {.sequences = 3}, .context = 64, .long_documents = LongDocuments::error});
              }),
              HasSubstr("document 4 has 100 tokens, more than batch.context = 64. Set data.long_documents to \"split\" "
                        "or \"clip\", or raise "
                        "batch.context."));
}

TEST_F(SamplerTest, WrongSettingsAreRefused) {
  const Corpus& corpus = corpus_of(kLengths);
  const auto error = [&](BatchSize size, i64 context) {
    return message_of([&] { Sampler({{corpus}}, {.seed = 0, .size = size, .context = context}); });
  };
  EXPECT_THAT(error({}, 16), HasSubstr("batch.sequences = 0 and batch.tokens = 0: give one of them, above zero."));
  EXPECT_THAT(error({.sequences = 1, .tokens = 1}, 16), HasSubstr("give one of them"));
  EXPECT_THAT(error({.sequences = -1, .tokens = 1}, 16), HasSubstr("give one of them"));
  EXPECT_THAT(error({.sequences = 1}, 0), HasSubstr("batch.context = 0: give at least 1 token."));
  EXPECT_THAT(message_of([&] { Sampler({{corpus_of({})}}, {.seed = 0, .size = {.sequences = 1}, .context = 16}); }),
              HasSubstr("corpus.idx: no documents."));
}

TEST_F(SamplerTest, ACursorOfOtherDataIsRefused) {
  const Sampler sampler({{corpus_of(kLengths)}}, {.seed = 2, .size = {.sequences = 3}, .context = 16});
  EXPECT_THAT(message_of([&] { sampler.batch({{.epoch = 0, .position = 11, .offset = 0}}); }),
              HasSubstr("the checkpoint continues at document 11 of epoch 0, the data has 11 documents. Resume with "
                        "the data it was written for."));
  EXPECT_THAT(message_of([&] { sampler.batch({{.epoch = 0, .position = 0, .offset = 500}}); }),
              HasSubstr("the checkpoint continues at token 500 of document"));
  EXPECT_THAT(message_of([&] { sampler.batch({{.epoch = -1, .position = 0, .offset = 0}}); }),
              HasSubstr("of epoch -1"));
}

}  // namespace
}  // namespace switchyard::data
