#include "data/drawn_lengths.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "../scratch.hpp"
#include "base/errors.hpp"
#include "data/stats.hpp"

namespace switchyard::data {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

Sampler::Settings settings(BatchSize size, i64 context = 1 << 20, LongDocuments long_documents = LongDocuments::split) {
  return {.seed = 7, .size = size, .context = context, .long_documents = long_documents};
}

std::vector<LengthBin> bins_of(const std::string& text) {
  const Scratch folder;
  return read_length_bins(folder.file("lengths.json", text));
}

std::string error(const std::string& text) {
  try {
    bins_of(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(DrawnLengths, follow_the_counts_and_lie_log_uniform_in_a_bin) {
  const std::vector<i64> lengths = draw_lengths({{16, 64, 3}, {1024, 4096, 1}}, settings({.sequences = 20000}), 0);
  ASSERT_EQ(lengths.size(), 20000u);
  const auto share = [&](i64 lo, i64 hi) {
    return static_cast<double>(std::ranges::count_if(lengths, [&](i64 n) { return lo <= n && n < hi; })) / 20000;
  };
  EXPECT_NEAR(share(16, 64), 0.75, 0.02);
  EXPECT_NEAR(share(16, 32), 0.375, 0.02);
  EXPECT_NEAR(share(1024, 2048), 0.125, 0.02);
  EXPECT_EQ(share(64, 1024) + share(4096, 1 << 30), 0);
}

TEST(DrawnLengths, are_the_same_for_a_seed_and_step) {
  const std::vector<LengthBin> bins{{1, 1000, 1}};
  const auto of_step = [&](i64 step) { return draw_lengths(bins, settings({.sequences = 50}), step); };
  EXPECT_EQ(of_step(3), of_step(3));
  EXPECT_NE(of_step(3), of_step(4));
}

TEST(DrawnLengths, stop_at_the_batch_size_and_treat_long_documents_as_set) {
  const std::vector<LengthBin> one{{100, 101, 1}};
  EXPECT_THAT(draw_lengths(one, settings({.tokens = 250}), 0), ElementsAre(100, 100, 100));
  EXPECT_THAT(draw_lengths(one, settings({.sequences = 4}, 60), 0), ElementsAre(60, 40, 60, 40));
  EXPECT_THAT(draw_lengths(one, settings({.sequences = 3}, 60, LongDocuments::clip), 0), ElementsAre(60, 60, 60));
  try {
    draw_lengths(one, settings({.sequences = 3}, 60, LongDocuments::error), 0);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("100 tokens is drawn, above batch.context = 60"));
  }
}

TEST(DrawnLengths, come_from_what_the_histogram_writes) {
  const std::vector<LengthBin> bins = bins_of(json_of(histogram_of(std::vector<i64>{5, 20, 21, 300}), "n", "s"));
  ASSERT_EQ(bins.size(), 3u);
  EXPECT_EQ(bins[1].count, 2);
  EXPECT_LE(bins[2].lo, 300);
  EXPECT_GT(bins[2].hi, 300);
}

// The counts and sums of lengths of a histogram, and what is drawn from it: means to a part of a thousand.
TEST(DrawnLengths, have_the_tokens_of_the_documents_in_the_histogram) {
  const auto mean = [](const std::vector<i64>& lengths) {
    return std::accumulate(lengths.begin(), lengths.end(), 0.0) / static_cast<double>(lengths.size());
  };
  std::vector<i64> even;
  for (i64 length = 1; length <= 3000; ++length) even.push_back(length);
  for (const std::vector<i64>& documents :
       {std::vector<i64>(9, 1024), std::vector<i64>{512, 512, 2048}, std::vector<i64>{863, 863, 700, 61}, even}) {
    const std::vector<LengthBin> bins = bins_of(json_of(histogram_of(documents), "n", "s"));
    const double drawn = mean(draw_lengths(bins, settings({.sequences = 200000}), 0));
    EXPECT_NEAR(drawn / mean(documents), 1, 4e-3) << documents.size();
  }
  EXPECT_THAT(draw_lengths({{100, 1025, 1, 1024}}, settings({.sequences = 50}), 0), Each(1024));
  EXPECT_THAT(draw_lengths({{100, 1025, 1, 100}}, settings({.sequences = 50}), 0), Each(100));
}

TEST(DrawnLengths, of_a_histogram_without_tokens_are_what_they_were) {
  EXPECT_THAT(draw_lengths({{16, 64, 3}, {1024, 4096, 1}}, settings({.sequences = 8}), 5),
              ElementsAre(17, 44, 37, 54, 44, 38, 55, 4022));
}

TEST(DrawnLengths, a_file_that_is_no_histogram_is_refused) {
  EXPECT_THAT(error("no"), HasSubstr("not JSON"));
  EXPECT_THAT(error("{}"), HasSubstr("has no list \"bins\""));
  EXPECT_THAT(error(R"({"bins": [[1, 2]]})"), HasSubstr("bins[0] is not [lo, hi, count]"));
  EXPECT_THAT(error(R"({"bins": [[1, 2, 1], [4, 4, 1]]})"),
              HasSubstr("bins[1] goes from 4 up to, but not including, 4 tokens"));
  EXPECT_THAT(error(R"({"bins": [[1, 2, 0]]})"), HasSubstr("have no documents"));
  EXPECT_EQ(error(R"({"bins": [[1, 9, 2]], "bin_tokens": [16]})"), "no error");
  EXPECT_THAT(error(R"({"bins": [[1, 9, 2]], "bin_tokens": [16, 1]})"), HasSubstr("for each of 1 bins"));
  for (const char* tokens : {"17", "1", "2.5", "null", "1e30"})
    EXPECT_THAT(error(fmt::format(R"({{"bins": [[1, 9, 2]], "bin_tokens": [{}]}})", tokens)),
                HasSubstr("bin_tokens[0] is not what 2 documents of 1 to 8 tokens have together"));
  EXPECT_THROW(read_length_bins("/no/such/file"), UserError);
}

TEST(DrawnLengths, shipped_histograms_have_names) {
  for (const ShippedLengths& shipped : shipped_lengths()) {
    const std::string name(shipped.name);
    EXPECT_EQ(read_length_bins(name).front().lo, 16) << name;
    EXPECT_EQ(bins_of(std::string(shipped.text)).size(), read_length_bins(name).size()) << name;
  }
  EXPECT_EQ(shipped_lengths().size(), 2u);
}

}  // namespace
}  // namespace switchyard::data
