#include "compiler/pieces.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "compiler/compile.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

ir::StageCode stage_of(const ir::Graph& graph, int zero, int dp, config::StrategySettings settings = {}) {
  config::Strategy strategy = stage_strategy("s");
  static_cast<config::StrategySettings&>(strategy) = settings;
  strategy.zero = zero;
  return compile_stage(graph, strategy, tensor_mesh(2, dp), 0, graph.units());
}

std::vector<std::vector<int>> by_piece(const ir::Segment& segment,
                                       std::vector<int> (*units)(const ir::Segment&, int piece)) {
  std::vector<std::vector<int>> all;
  for (int piece = 0; piece <= static_cast<int>(segment.cuts.size()); ++piece) all.push_back(units(segment, piece));
  return all;
}

TEST(Pieces, BeginWhereAUnitIsFirstRead) {
  const ir::Graph graph = training_graph(small_llama());
  const ir::StageCode stage = stage_of(graph, 3, 2);
  EXPECT_TRUE(stage.gathers());
  EXPECT_THAT(by_piece(stage.forward, ir::units_read),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3)));
  const auto written = by_piece(stage.backward, ir::units_written), read = by_piece(stage.backward, ir::units_read);
  ASSERT_EQ(written.size(), 4u);
  for (size_t piece = 0; piece < 4; ++piece) {
    EXPECT_THAT(written[piece], ElementsAre(3 - static_cast<int>(piece)));
    if (piece < 3) {
      EXPECT_THAT(read[piece], ElementsAre(3 - static_cast<int>(piece)));
    }
  }
  EXPECT_THAT(read[3], IsEmpty()) << "the embedding's gradient needs no weights";
}

TEST(Pieces, OfZero2BeginWhereAUnitIsFirstWritten) {
  const ir::Graph graph = training_graph(small_llama());
  const ir::StageCode stage = stage_of(graph, 2, 2),
                      split = stage_of(graph, 2, 2, {.schedule = config::ScheduleKind::zero_bubble});
  EXPECT_THAT(stage.forward.cuts, IsEmpty());
  EXPECT_THAT(by_piece(stage.backward, ir::units_written),
              ElementsAre(ElementsAre(3), ElementsAre(2), ElementsAre(1), ElementsAre(0)));
  EXPECT_THAT(by_piece(split.weight, ir::units_written),
              ElementsAre(ElementsAre(3), ElementsAre(2), ElementsAre(1), ElementsAre(0)));
  EXPECT_THAT(ir::units_read(stage_of(graph, 3, 2, {.schedule = config::ScheduleKind::zero_bubble}).weight, ir::kWhole),
              IsEmpty())
      << "the gradients of weights need no weights";
}

// What both ends of the model share is there from one to the other.
TEST(Pieces, OfATiedHeadKeepTheEmbedding) {
  config::ModelConfig model = small_llama();
  model.tied_embeddings = true;
  const ir::Graph graph = training_graph(model);
  const auto written = by_piece(stage_of(graph, 2, 2).backward, ir::units_written);
  for (const std::vector<int>& units : written) EXPECT_EQ(std::ranges::count(units, 0), 1);
}

TEST(Pieces, AreNotCutWhereNobodyElseHoldsCopiesOrZeroIsBelow2) {
  const ir::Graph graph = training_graph(small_llama());
  for (const auto& [zero, dp] : {std::pair(3, 1), std::pair(1, 2), std::pair(0, 2)}) {
    const ir::StageCode stage = stage_of(graph, zero, dp);
    EXPECT_FALSE(stage.reduces());
    for (const ir::Segment* segment : {&stage.forward, &stage.backward}) EXPECT_THAT(segment->cuts, IsEmpty());
  }
}

// Pieces, one after the other, are the whole; a collective ends in the piece in which it starts.
TEST(Pieces, AreTheSegmentAndEndTheirCollectives) {
  const ir::Graph graph = training_graph(small_llama());
  for (const config::Recompute recompute :
       {config::Recompute::none, config::Recompute::gathers, config::Recompute::selective, config::Recompute::full}) {
    const ir::StageCode stage = stage_of(graph, 3, 2, {.recompute = recompute});
    for (const ir::Segment* segment : {&stage.forward, &stage.backward}) {
      std::vector<std::pair<bool, size_t>> whole, pieces;
      const auto record = [](auto& to) {
        return std::pair([&](size_t i) { to.emplace_back(true, i); }, [&](size_t i) { to.emplace_back(false, i); });
      };
      const auto [start, end] = record(whole);
      ir::walk(*segment, start, end);
      std::set<size_t> open;
      for (int piece = 0; piece <= static_cast<int>(segment->cuts.size()); ++piece) {
        const auto [start_piece, end_piece] = record(pieces);
        ir::walk(
            *segment, piece,
            [&, begin = start_piece](size_t i) {
              begin(i);
              open.insert(i);
            },
            [&, finish = end_piece](size_t i) {
              finish(i);
              EXPECT_EQ(open.erase(i), 1u);
            });
        EXPECT_TRUE(open.empty()) << "piece " << piece;
      }
      EXPECT_EQ(pieces, whole);
      EXPECT_EQ(whole.size(), 2 * segment->code.size());
    }
  }
}

}  // namespace
}  // namespace switchyard::compiler
