#include "data/stats.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/errors.hpp"

namespace switchyard::data {
namespace {

using testing::HasSubstr;

TEST(Stats, BinsEndWithPowersOfTwoFourAnOctave) {
  std::vector<i64> lengths;
  for (i64 length = 1; length <= 64; ++length) lengths.push_back(length);
  std::vector<std::vector<i64>> bins;
  for (const Bin& bin : histogram_of(lengths).bins) bins.push_back({bin.lo, bin.hi, bin.count});
  EXPECT_EQ(bins, (std::vector<std::vector<i64>>{{1, 17, 16},
                                                 {17, 20, 3},
                                                 {20, 24, 4},
                                                 {24, 28, 4},
                                                 {28, 33, 5},
                                                 {33, 39, 6},
                                                 {39, 46, 7},
                                                 {46, 55, 9},
                                                 {55, 64, 9},
                                                 {64, 65, 1}}));
}

TEST(Stats, CountsTokensAndQuantilesAreThoseOfTheLengths) {
  const std::vector<i64> lengths{5, 1, 3, 2, 4, 600, 9, 8, 7, 6};
  const Histogram histogram = histogram_of(lengths);
  EXPECT_EQ(histogram.documents, 10);
  EXPECT_EQ(histogram.tokens, 645);
  EXPECT_EQ(histogram.longest, 600);
  EXPECT_EQ(histogram.median, 5);
  EXPECT_EQ(histogram.p90, 9);
  EXPECT_EQ(histogram.p99, 600);
  ASSERT_EQ(histogram.bins.size(), 2u);
  EXPECT_EQ(histogram.bins[0].tokens, 45);
  EXPECT_EQ(histogram.bins[0].squares, 285);
}

TEST(Stats, JsonHasTheFormOfTheWorkloadFiles) {
  // 3 of 4 documents, 600 of 1600 tokens and 140,000 of 1,140,000 squared lengths are up to 512.
  const std::vector<i64> lengths{100, 200, 300, 1000};
  const auto json = nlohmann::json::parse(json_of(histogram_of(lengths), "mine", "measured: four"));
  EXPECT_EQ(json["name"], "mine");
  EXPECT_EQ(json["source"], "measured: four");
  EXPECT_EQ(json["unit"], "tokens");
  EXPECT_EQ(json["notes"], nlohmann::json::parse(R"(["measured: 4 documents, 1600 tokens, longest 1000 tokens"])"));
  EXPECT_EQ(json["summary"]["sequences"], 4);
  EXPECT_EQ(json["summary"]["mean"], 400.0);
  EXPECT_EQ(json["summary"]["percent_up_to"]["512"],
            nlohmann::json::parse(R"({"sequences": 75.0, "tokens": 37.5, "squares": 12.28})"));
  EXPECT_EQ(json["summary"]["percent_up_to"]["1024"]["sequences"], 100.0);
  EXPECT_EQ(json["summary"]["percent_up_to"].size(), 2u);
  EXPECT_EQ(json["bins"], nlohmann::json::parse("[[92, 109, 1], [182, 216, 1], [257, 305, 1], [862, 1024, 1]]"));
  EXPECT_EQ(json["bin_tokens"], nlohmann::json::parse("[100, 200, 300, 1000]"));
}

TEST(Stats, ALengthOfExactlyAPowerOfTwoCountsAsUpToIt) {
  const auto json = nlohmann::json::parse(json_of(histogram_of(std::vector<i64>{100, 512, 1024, 4096}), "a", "b"));
  EXPECT_EQ(json["summary"]["percent_up_to"]["512"]["sequences"], 50.0);
  EXPECT_EQ(json["summary"]["percent_up_to"]["1024"]["sequences"], 75.0);
  EXPECT_EQ(json["summary"]["percent_up_to"]["4096"]["sequences"], 100.0);
}

TEST(Stats, TextHasABarForEachBin) {
  std::vector<i64> lengths(10, 5);
  lengths.push_back(20);
  const std::string text = text_of(histogram_of(lengths));
  EXPECT_THAT(text, HasSubstr("11 documents, 70 tokens: mean 6.4, median 5, p90 5, p99 20, longest 20\n"));
  EXPECT_THAT(text, HasSubstr("       1       16         10   90.9%   71.4%    38.5%  " + std::string(40, '#') + "\n"));
  EXPECT_THAT(text, HasSubstr("      20       23          1    9.1%   28.6%    61.5%  ####\n"));
}

TEST(Stats, NoDocumentsGiveAnEmptyHistogram) {
  EXPECT_EQ(text_of(histogram_of({})), "no documents\n");
  const auto json = nlohmann::json::parse(json_of(histogram_of({}), "a", "b"));
  EXPECT_EQ(json["bins"].size(), 0u);
  EXPECT_EQ(json["summary"]["sequences"], 0);
  EXPECT_THROW(histogram_of(std::vector<i64>{0}), InternalError);
}

}  // namespace
}  // namespace switchyard::data
