#include "runtime/feeds.hpp"

#include <gmock/gmock.h>

#include "base/errors.hpp"

namespace switchyard::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<i64> integers(const at::Tensor& t) { return {t.data_ptr<i64>(), t.data_ptr<i64>() + t.numel()}; }

std::string message(const batch::MicroBatch& row, const Documents& documents) {
  try {
    feeds_of(row, documents, {}, 4, {.state = DType::f64});
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

const Documents kDocuments = {{5, 6, 7}, {8, 9}};

TEST(Feeds, PositionsBeginAnewAndEveryTokenButTheLastIsLabelledByTheNext) {
  const batch::MicroBatch row{{8}, {{{1, 0, 2, 1}, {0, 0, 3, 1}, {-1, 0, 3, 1}}}};
  const MicroBatchFeeds feeds = feeds_of(row, kDocuments, {}, 4, {.state = DType::f64});
  EXPECT_EQ(feeds.T, 8);
  EXPECT_THAT(integers(feeds.ids.narrow(0, 0, 5)), ElementsAre(8, 9, 5, 6, 7));
  EXPECT_THAT(integers(feeds.positions.narrow(0, 0, 5)), ElementsAre(0, 1, 0, 1, 2));
  EXPECT_THAT(integers(feeds.labels), ElementsAre(9, -1, 6, 7, -1, -1, -1, -1));
  const double* w = feeds.weights.data_ptr<double>();
  EXPECT_THAT(std::vector<double>(w, w + 8), ElementsAre(0.25, 0, 0.25, 0.25, 0, 0, 0, 0));
}

TEST(Feeds, ALabelThatDoesNotCountHasNoWeight) {
  const batch::MicroBatch row{{6}, {{{1, 0, 2, 1}, {0, 0, 3, 1}, {-1, 0, 1, 1}}}};
  const auto weights = [&](const Labels& labels) {
    const MicroBatchFeeds feeds = feeds_of(row, kDocuments, labels, 4, {.state = DType::f64});
    EXPECT_THAT(integers(feeds.ids.narrow(0, 0, 5)), ElementsAre(8, 9, 5, 6, 7));
    const double* w = feeds.weights.data_ptr<double>();
    return std::vector<double>(w, w + 6);
  };
  EXPECT_THAT(weights({.counts = {{1, 0, 1}, {0, 1}}}), ElementsAre(0.25, 0, 0, 0.25, 0, 0));
  EXPECT_THAT(weights({.counts = {{1, 1, 0}, {}}}), ElementsAre(0.25, 0, 0.25, 0, 0, 0)) << "without a mask all count";
  EXPECT_THAT(integers(feeds_of(row, kDocuments, {.counts = {{0, 0, 1}, {0, 0}}}, 1, {}).labels),
              ElementsAre(-1, -1, -1, 7, -1, -1));
  EXPECT_THROW(weights({.counts = {{1, 0}, {0, 1}}}), InternalError) << "a mask of two tokens for three";
}

TEST(Feeds, AStageThatReadsNoTokensNeedsNone) {
  const batch::MicroBatch row{{6}, {{{1, 0, 2, 1}, {0, 0, 3, 1}, {-1, 0, 1, 1}}}};
  const MicroBatchFeeds feeds = feeds_of(row, Documents(2), {}, 4, {.reads_tokens = false});
  EXPECT_THAT(integers(feeds.positions.narrow(0, 0, 5)), ElementsAre(0, 1, 0, 1, 2));
  EXPECT_EQ(feeds.blocks.at(0).size(), 2u);
  EXPECT_THAT(message(row, Documents(2)), HasSubstr("document 1 has 0 tokens, and a micro-batch its first 2"));
}

TEST(Feeds, PaddingHasNoBlockOfAttention) {
  const batch::MicroBatch row{{8}, {{{1, 0, 2, 1}, {0, 0, 3, 1}, {-1, 0, 3, 1}}}};
  const auto blocks = feeds_of(row, kDocuments, {}, 4, {.state = DType::f32}).blocks.at(0);
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[1].q, 2);
  EXPECT_EQ(blocks[1].k, 2);
  EXPECT_EQ(blocks[1].qn, 3);
  EXPECT_EQ(blocks[1].kn, 3);
  EXPECT_TRUE(blocks[1].causal);
}

TEST(Feeds, WeightsHaveTheStatesType) {
  const batch::MicroBatch row{{2}, {{{1, 0, 2, 1}}}};
  EXPECT_EQ(feeds_of(row, kDocuments, {}, 4, {.state = DType::f32}).weights.scalar_type(), at::kFloat);
}

TEST(Feeds, ADocumentThatIsCutIsRefused) {
  EXPECT_THAT(message({{3}, {{{1, 0, 3, 1}}}}, kDocuments),
              HasSubstr("document 1 has 2 tokens, and a micro-batch its first 3"));
  EXPECT_THAT(message({{1}, {{{1, 1, 1, 1}}}}, kDocuments),
              HasSubstr("document 1: ring rank 0 needs 2 keys, and 1 are there"));
}

TEST(Feeds, AMicroBatchThatItsPiecesDoNotFillIsRefused) {
  EXPECT_THAT(message({{4}, {{{0, 0, 3, 1}}}}, kDocuments), HasSubstr("pieces of 3 tokens in a micro-batch of 4"));
}

TEST(Feeds, ARingRankHasItsPartsOfDocumentsAndTheLabelBehindEachIsTheNextToken) {
  const Documents documents = {{5, 6, 7, 8, 9}, {3, 4}};
  const batch::MicroBatch row{{4, 4}, {{{0, 0, 1, 1}, {0, 3, 2, 1}, {-1, 0, 1, 1}}, {{0, 1, 2, 1}, {1, 0, 2, 1}}}};
  const auto of = [&](int rank) { return feeds_of(row, documents, {}, 4, {.state = DType::f64, .ring_rank = rank}); };
  const MicroBatchFeeds first = of(0), second = of(1);
  EXPECT_EQ(first.T, 4);
  EXPECT_THAT(integers(first.ids.narrow(0, 0, 3)), ElementsAre(5, 8, 9));
  EXPECT_THAT(integers(first.positions.narrow(0, 0, 3)), ElementsAre(0, 3, 4));
  EXPECT_THAT(integers(first.labels), ElementsAre(6, 9, -1, -1));
  EXPECT_THAT(integers(second.ids), ElementsAre(6, 7, 3, 4));
  EXPECT_THAT(integers(second.positions), ElementsAre(1, 2, 0, 1));
  EXPECT_THAT(integers(second.labels), ElementsAre(7, 8, 4, -1));
  EXPECT_EQ(first.ring_keys.seen.at(0).rows, 5) << "its last query sees the whole document";
  EXPECT_EQ(first.longest, 5);
  EXPECT_EQ(first.ring_keys.seen.at(1).rows, 3 + 2);
  ASSERT_EQ(second.blocks.size(), 2u);
  EXPECT_TRUE(second.blocks[0].empty()) << "all blocks wait for the keys";
  ASSERT_EQ(second.blocks[1].size(), 2u);
  EXPECT_EQ(second.blocks[1][0].kn, 3);
  EXPECT_EQ(second.blocks[1][1].k, 3);
}

// Wherever the rest of a document is, each part knows its length.
TEST(Feeds, OfAModelThatRotatesByDocumentHaveNumbersOfRowsAndTheLengthsOfDocuments) {
  const Documents documents = {{5, 6, 7, 8, 9}, {3, 4}};
  const batch::MicroBatch row{{4, 4}, {{{0, 0, 1, 1}, {0, 3, 2, 1}, {-1, 0, 1, 1}}, {{0, 1, 2, 1}, {1, 0, 2, 1}}}};
  const auto of = [&](int rank, bool by_document) {
    return feeds_of(row, documents, {}, 4, {.state = DType::f64, .by_document = by_document, .ring_rank = rank});
  };
  const MicroBatchFeeds first = of(0, true), second = of(1, true);
  EXPECT_THAT(integers(first.positions), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(integers(second.positions), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(first.parts, (std::vector<DocumentPart>{{5, 0, 1}, {5, 3, 2}, {0, 0, 1}}));
  EXPECT_EQ(second.parts, (std::vector<DocumentPart>{{5, 1, 2}, {2, 0, 2}}));
  EXPECT_TRUE(of(0, false).parts.empty());
}

TEST(Feeds, KeysThatComeInStepsHaveBlocksOfTheirOwn) {
  const batch::MicroBatch row{{4, 4}, {{{0, 0, 2, 1}, {0, 6, 2, 1}}, {{0, 2, 4, 1}}}};
  const MicroBatchFeeds feeds =
      feeds_of(row, {{1, 2, 3, 4, 5, 6, 7, 8}}, {}, 7, {.state = DType::f64, .passing = KeyPassing::ring});
  ASSERT_EQ(feeds.blocks.size(), 2u);
  ASSERT_EQ(feeds.blocks[0].size(), 2u);
  EXPECT_TRUE(feeds.blocks[0][1].causal);
  EXPECT_EQ(feeds.blocks[0][1].kn, 4) << "its own keys";
  ASSERT_EQ(feeds.blocks[1].size(), 1u);
  EXPECT_FALSE(feeds.blocks[1][0].causal);
  EXPECT_EQ(feeds.blocks[1][0].q, 2) << "the last two see what comes";
  EXPECT_EQ(feeds.blocks[1][0].kn, 4);
}

std::vector<int> ends(const at::Tensor& t) { return {t.data_ptr<int>(), t.data_ptr<int>() + t.numel()}; }

TEST(Feeds, StepsOfAttentionAreCallsOfFlashAttentionWhereTheDeviceHasIt) {
  const batch::MicroBatch row{{5, 5}, {{{0, 0, 2, 1}, {0, 6, 2, 1}, {-1, 0, 1, 1}}, {{0, 2, 4, 1}, {-1, 0, 1, 1}}}};
  const Documents documents = {{1, 2, 3, 4, 5, 6, 7, 8}};
  FeedSettings settings{.state = DType::f32, .passing = KeyPassing::ring};
  EXPECT_TRUE(feeds_of(row, documents, {}, 7, settings).flash.empty());
  settings.flash = true;
  const MicroBatchFeeds feeds = feeds_of(row, documents, {}, 7, settings);
  ASSERT_EQ(feeds.flash.size(), 2u);
  ASSERT_EQ(feeds.flash[0].mixed.size(), 2u) << "both parts see keys that overlap";
  EXPECT_THAT(ends(feeds.flash[0].mixed[0].query_ends), ElementsAre(0, 2, 5, 5)) << "all rows of its shard";
  EXPECT_THAT(ends(feeds.flash[0].mixed[1].key_ends), ElementsAre(0, 0, 4, 4, 5));
  ASSERT_EQ(feeds.flash[1].mixed.size(), 1u);
  EXPECT_THAT(ends(feeds.flash[1].mixed[0].query_ends), ElementsAre(0, 2, 4, 5));
  EXPECT_THAT(ends(feeds.flash[1].mixed[0].key_ends), ElementsAre(0, 0, 4, 4)) << "the keys that it receives";
  EXPECT_FALSE(feeds.flash[1].mixed[0].causal);
}

TEST(Feeds, LongDocumentsHavePaddedAttentionWhereTheDeviceHasIt) {
  const int tokens = 2500;
  const batch::MicroBatch row{{tokens + 2}, {{{0, 0, tokens, 1}, {1, 0, 2, 1}}}};
  const Documents documents = {Documents::value_type(tokens, 7), {1, 2}};
  FeedSettings settings{.state = DType::f32, .flash = true};
  EXPECT_TRUE(feeds_of(row, documents, {}, 7, settings).flash[0].padded.empty());
  settings.padded = true;
  const MicroBatchFeeds feeds = feeds_of(row, documents, {}, 7, settings);
  ASSERT_EQ(feeds.flash[0].padded.size(), 1u);
  EXPECT_EQ(feeds.flash[0].padded[0].length, 2560);
  ASSERT_EQ(feeds.flash[0].mixed.size(), 1u) << "of the other document";
}

TEST(Feeds, ATokensKeyOfDropoutIsTheSameOnAnyRingRank) {
  const batch::MicroBatch whole{{4}, {{{0, 0, 3, 1}, {-1, 0, 1, 1}}}}, parts{{1, 2}, {{{0, 2, 1, 1}}, {{0, 0, 2, 1}}}};
  const auto keys = [&](const batch::MicroBatch& row, int rank) {
    return integers(feeds_of(row, kDocuments, {}, 4, {.seed = DropoutSeed{3, 1}, .ring_rank = rank}).keys);
  };
  const std::vector<i64> all = keys(whole, 0);
  EXPECT_THAT(keys(parts, 0), ElementsAre(all[2]));
  EXPECT_THAT(keys(parts, 1), ElementsAre(all[0], all[1]));
}

}  // namespace
}  // namespace switchyard::runtime
