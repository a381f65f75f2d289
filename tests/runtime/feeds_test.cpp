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
    feeds_of(row, documents, 4, DType::f64, at::kCPU);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

const Documents kDocuments = {{5, 6, 7}, {8, 9}};

TEST(Feeds, PositionsBeginAnewAndEveryTokenButTheLastIsLabelledByTheNext) {
  const batch::MicroBatch row{8, {{{1, 0, 2, 1}, {0, 0, 3, 1}, {-1, 0, 3, 1}}}};
  const MicroBatchFeeds feeds = feeds_of(row, kDocuments, 4, DType::f64, at::kCPU);
  EXPECT_EQ(feeds.T, 8);
  EXPECT_THAT(integers(feeds.ids.narrow(0, 0, 5)), ElementsAre(8, 9, 5, 6, 7));
  EXPECT_THAT(integers(feeds.positions.narrow(0, 0, 5)), ElementsAre(0, 1, 0, 1, 2));
  EXPECT_THAT(integers(feeds.labels), ElementsAre(9, -1, 6, 7, -1, -1, -1, -1));
  const double* w = feeds.weights.data_ptr<double>();
  EXPECT_THAT(std::vector<double>(w, w + 8), ElementsAre(0.25, 0, 0.25, 0.25, 0, 0, 0, 0));
}

TEST(Feeds, PaddingHasNoBlockOfAttention) {
  const batch::MicroBatch row{8, {{{1, 0, 2, 1}, {0, 0, 3, 1}, {-1, 0, 3, 1}}}};
  const auto blocks = feeds_of(row, kDocuments, 4, DType::f32, at::kCPU).blocks;
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[1].q, 2);
  EXPECT_EQ(blocks[1].k, 2);
  EXPECT_EQ(blocks[1].qn, 3);
  EXPECT_EQ(blocks[1].kn, 3);
  EXPECT_TRUE(blocks[1].causal);
}

TEST(Feeds, WeightsHaveTheStatesType) {
  const batch::MicroBatch row{2, {{{1, 0, 2, 1}}}};
  EXPECT_EQ(feeds_of(row, kDocuments, 4, DType::f32, at::kCPU).weights.scalar_type(), at::kFloat);
}

TEST(Feeds, ADocumentThatIsCutIsRefused) {
  EXPECT_THAT(message({2, {{{0, 0, 2, 1}}}}, kDocuments), HasSubstr("document 0 is not whole in its micro-batch"));
  EXPECT_THAT(message({1, {{{1, 1, 1, 1}}}}, kDocuments), HasSubstr("document 1 is not whole in its micro-batch"));
}

TEST(Feeds, AMicroBatchThatItsPiecesDoNotFillIsRefused) {
  EXPECT_THAT(message({4, {{{0, 0, 3, 1}}}}, kDocuments), HasSubstr("pieces of 3 tokens in a micro-batch of 4"));
}

TEST(Feeds, RingShardsAreRefused) {
  EXPECT_THAT(message({4, {{{1, 0, 2, 1}}, {{-1, 0, 2, 1}}}}, kDocuments), HasSubstr("a micro-batch of 2 ring shards"));
}

}  // namespace
}  // namespace switchyard::runtime
