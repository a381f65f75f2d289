#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/errors.hpp"
#include "compiler/print.hpp"

namespace switchyard::compiler {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kNames{"1,2,1", "dp=2,tp=1"};

TEST(PrintDocuments, PhasesWithReplicasBalanceAndMicroBatches) {
  const std::vector<batch::BucketSpec> buckets{{.max_length = 64, .strategy = 0},
                                               {.max_length = 16, .strategy = 1, .replicas = 2}};
  const std::vector<i64> lengths{40, 6, 3, 3};
  const batch::StepPlan plan{
      .step = 2,
      .valid_tokens = 48,
      .phases = {{.strategy = 0, .replica = {{{.T = {40}, .shard = {{{0, 0, 40, 1}}}}}}},
                 {.strategy = 1,
                  .replica = {{{.T = {6}, .shard = {{{1, 0, 6, 1}}}}, {.T = {3}, .shard = {{{2, 0, 3, 1}}}}},
                              {{.T = {4}, .shard = {{{3, 0, 3, 1}, {-1, 0, 1, 1}}}}}}}}};
  EXPECT_EQ(print_documents(plan, lengths, buckets, {}, kNames),
            R"(Step 3: 4 documents, 52 tokens, 48 labels, 1.9% padding

Up to 64 tokens, A "1,2,1", 1 document
 replica  micro-batches  documents      tokens   padding   query-key pairs  even share
       0              1          1          40         0               820       1.000
The slowest replica has 1.000 of an even share; whole documents allow 1.000 at best.
replica.micro-batch, its tokens, document (tokens)
     0.0        40: 0 (40)

Up to 16 tokens, B "dp=2,tp=1", 3 documents
 replica  micro-batches  documents      tokens   padding   query-key pairs  even share
       0              2          2           9         0                27       1.500
       1              1          1           4         1                 6       0.500
The slowest replica has 1.500 of an even share; whole documents allow 1.000 at best.
replica.micro-batch, its tokens, document (tokens)
     0.0         6: 1 (6)
     0.1         3: 2 (3)
     1.0         4: 3 (3), padding 1
)");
}

TEST(PrintDocuments, LongLinesAreWrappedUnderTheFirstDocument) {
  const std::vector<batch::BucketSpec> buckets{{.max_length = 1000, .strategy = 0, .micro_batch_tokens = 100000}};
  const std::vector<i64> lengths(100, 1000);
  batch::MicroBatch all{.T = {100000}, .shard = {{}}};
  for (int doc = 0; doc < 100; ++doc) all.shard[0].push_back({doc, 0, 1000, 1});
  const std::string text = print_documents({.phases = {{.replica = {{all}}}}}, lengths, buckets, {}, kNames);
  std::istringstream lines(text);
  size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  EXPECT_GT(longest, 90U);
  EXPECT_LE(longest, 100U);
  EXPECT_THAT(text, HasSubstr(",\n                    8 (1000), 9 (1000)"));
  EXPECT_THAT(text, HasSubstr(" 99 (1000)\n"));
}

TEST(PrintDocuments, PiecesOfASharedDocumentHaveTheirRange) {
  const std::vector<batch::BucketSpec> buckets{{.max_length = 16, .strategy = 0, .rings = {{.ranks = 2}}}};
  const batch::StepPlan plan{
      .phases = {{.replica = {{{.T = {5, 4}, .shard = {{{0, 0, 2, 1}, {0, 6, 3, 1}}, {{0, 2, 4, 1}}}}}}}}};
  const std::string text = print_documents(plan, std::vector<i64>{9}, buckets, {}, kNames);
  EXPECT_THAT(text, HasSubstr(" 4       0 B: 0 (0..2), 0 (6..9)\n"));
  EXPECT_THAT(text, HasSubstr(" 2       0 B: 0 (2..6)\n"));
}

TEST(PrintDocuments, APhaseWithoutBucketIsAFault) {
  const batch::StepPlan plan{.phases = {{.strategy = 1, .replica = {{}}}}};
  EXPECT_THROW(print_documents(plan, {}, {}, {}, kNames), InternalError);
}

TEST(PrintDocuments, has_a_line_for_each_ring_rank_with_its_keys) {
  const std::vector<i64> lengths{36, 4};
  const std::vector<batch::BucketSpec> buckets{
      {.max_length = 36, .strategy = 0, .rings = {{.ranks = 3, .ranks_per_host = 2, .key_bytes = 100}}}};
  // The third rank is on another host: the first one gets its keys and passes them on.
  const batch::MicroBatch shared =
      batch::lay_out(std::vector<batch::PlacedDocument>{{0, 36, {0, 3}}, {1, 4, {0, 1}}}, 3, 1);
  const std::string text =
      print_documents({.phases = {{.replica = {{shared}}}}}, lengths, buckets, {}, std::vector<std::string>{"ring=3"});
  EXPECT_THAT(text,
              HasSubstr("replica.micro-batch.ring rank, its tokens, query-key pairs, keys from ranks of its host, "
                        "from\nanother host, their bytes in all passes, document (tokens, or first..end of a part)\n"));
  EXPECT_THAT(text, HasSubstr("; no placement has less than "));
  EXPECT_THAT(
      text, HasSubstr("     0.0.0        16            232        12        12  2.34 KiB: 0 (0..6), 0 (30..36), 1 (4)\n"
                      "     0.0.1        12            222        18         0  1.76 KiB: 0 (6..12), 0 (24..30)\n"
                      "     0.0.2        12            222         0        12  1.17 KiB: 0 (12..24)\n"));
}

}  // namespace
}  // namespace switchyard::compiler
