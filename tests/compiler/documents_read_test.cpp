#include "compiler/documents_read.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "batch/planner.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

constexpr int kLayers = 3;

using Read = std::vector<std::vector<bool>>;  // [rank][document]

struct Case {
  Plans plans;
  batch::StepPlan plan;
  Read read;
};

// Documents of 6 to 17 tokens in a bucket for each strategy, the first for those of more than 10.
Case case_of(const std::vector<std::string>& specs, int ranks) {
  config::ModelConfig model = small_llama();
  model.layers = kLayers;
  std::vector<config::Strategy> strategies;
  for (const std::string& spec : specs) strategies.push_back(config::strategy_from_spec(spec, ranks, kLayers));
  Plans plans(training_graph(model), strategies, 0, cluster::uniform(1, ranks), switching::Planner::relay);
  std::vector<batch::BucketSpec> buckets;
  for (size_t s = 0; s < specs.size(); ++s)
    buckets.push_back({.max_length = s == 0 ? 20 : 10,
                       .strategy = static_cast<int>(s),
                       .replicas = static_cast<int>(plans.strategies()[s].replicas.size()),
                       .multiple = plans.strategies()[s].multiple});
  std::vector<i64> lengths;
  for (i64 length = 6; length < 18; ++length) lengths.push_back(length);
  batch::StepPlan plan = batch::plan_batch(0, lengths, buckets, {1, 0.01});
  const ir::Program program = assemble(plan, plans, {});
  Read read;
  for (int rank = 0; rank < ranks; ++rank) read.push_back(documents_read(program, plan, plans, rank, lengths.size()));
  return {std::move(plans), std::move(plan), std::move(read)};
}

i64 count(const std::vector<bool>& read) { return std::ranges::count(read, true); }

TEST(DocumentsRead, ReplicasReadTheirOwnAndTogetherAll) {
  const Read read = case_of({"4,1,1"}, 4).read;
  for (size_t document = 0; document < 12; ++document) {
    int readers = 0;
    for (const auto& of_rank : read) readers += of_rank[document];
    EXPECT_EQ(readers, 1) << document;
  }
  for (const auto& of_rank : read) EXPECT_LE(count(of_rank), 4);
}

TEST(DocumentsRead, RanksOfAStageReadTheSame) {
  const Read read = case_of({"2,2,1"}, 4).read;
  EXPECT_EQ(read[0], read[1]);
  EXPECT_EQ(read[2], read[3]);
  EXPECT_EQ(count(read[0]) + count(read[2]), 12);
}

TEST(DocumentsRead, OnlyTheFirstAndTheLastStageRead) {
  const Read read = case_of({"1,1,3"}, 3).read;
  EXPECT_EQ(count(read[0]), 12) << "it embeds them";
  EXPECT_EQ(count(read[1]), 0);
  EXPECT_EQ(count(read[2]), 12) << "they are its labels";
}

TEST(DocumentsRead, EveryPhaseAdds) {
  const Case made = case_of({"1,1,3", "3,1,1"}, 3);
  std::set<size_t> middle;
  for (size_t document = 0; document < 12; ++document)
    if (made.read[1][document]) middle.insert(document);
  EXPECT_FALSE(middle.empty());
  EXPECT_LT(*middle.rbegin(), 5u) << "the short ones are those of the second bucket";
  EXPECT_GT(count(made.read[0]), 7 - 1);
  EXPECT_LT(count(made.read[0]), 12);
}

}  // namespace
}  // namespace switchyard::compiler
