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
  EXPECT_EQ(feeds.blocks.size(), 2u);
  EXPECT_THAT(message(row, Documents(2)), HasSubstr("document 1 is not whole in its micro-batch"));
}

TEST(Feeds, PaddingHasNoBlockOfAttention) {
  const batch::MicroBatch row{{8}, {{{1, 0, 2, 1}, {0, 0, 3, 1}, {-1, 0, 3, 1}}}};
  const auto blocks = feeds_of(row, kDocuments, {}, 4, {.state = DType::f32}).blocks;
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
  EXPECT_THAT(message({{2}, {{{0, 0, 2, 1}}}}, kDocuments), HasSubstr("document 0 is not whole in its micro-batch"));
  EXPECT_THAT(message({{1}, {{{1, 1, 1, 1}}}}, kDocuments), HasSubstr("document 1 is not whole in its micro-batch"));
}

TEST(Feeds, AMicroBatchThatItsPiecesDoNotFillIsRefused) {
  EXPECT_THAT(message({{4}, {{{0, 0, 3, 1}}}}, kDocuments), HasSubstr("pieces of 3 tokens in a micro-batch of 4"));
}

TEST(Feeds, RingShardsAreRefused) {
  EXPECT_THAT(message({{2, 2}, {{{1, 0, 2, 1}}, {{-1, 0, 2, 1}}}}, kDocuments),
              HasSubstr("a micro-batch of 2 ring shards"));
}

}  // namespace
}  // namespace switchyard::runtime
