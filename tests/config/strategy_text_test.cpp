#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "../message_of.hpp"
#include "config/strategy.hpp"

namespace switchyard::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string error(const std::string& text) {
  return message_of([&] { read_strategy_text(text); });
}

TEST(StrategyText, is_three_numbers_or_keys_in_any_order) {
  EXPECT_THAT(read_strategy_text(" 1, 4 ,2 ").groups, ElementsAre(Degrees{.dp = 1, .tp = 4, .pp = 2}));
  const StrategyText text = read_strategy_text("zero=0, ulysses = 4,schedule=zb-v ,dp=2,sequence_parallel=false");
  EXPECT_THAT(text.groups, ElementsAre(Degrees{.dp = 2, .ulysses = 4}));
  EXPECT_EQ(text.settings.zero, 0);
  EXPECT_EQ(text.settings.schedule, ScheduleKind::zb_v);
  EXPECT_FALSE(text.settings.sequence_parallel);
  EXPECT_EQ(read_strategy_text("pp=2", {.recompute = Recompute::full}).settings.recompute, Recompute::full)
      << "what is left out has the given default";
  EXPECT_EQ(read_strategy_text("recompute=none", {.recompute = Recompute::full}).settings.recompute, Recompute::none);
}

TEST(StrategyText, is_printed_in_a_fixed_order_without_defaults) {
  const auto again = [](const char* text) {
    const StrategyText read = read_strategy_text(text);
    return to_text(read.groups, read.settings);
  };
  EXPECT_EQ(again("pp=2,tp=4,dp=2"), "2,4,2");
  EXPECT_EQ(again("tp=4"), "1,4,1");
  EXPECT_EQ(again("1,1,1"), "1,1,1");
  EXPECT_EQ(again("zero=1,dp=2"), "2,1,1");
  EXPECT_EQ(again("ulysses=4,tp=2"), "tp=2,ulysses=4");
  EXPECT_EQ(again("inner=2,depth=3,ulysses=4,tp=2,ring=2"), "tp=2,ring=2,ulysses=4,depth=3,inner=2");
  EXPECT_EQ(again("packing=stream,head_layers=2,inside=pipeline,pp=2"),
            "pp=2,inside=pipeline,head_layers=2,packing=stream");
  EXPECT_EQ(again("recompute=full,chunks=3,schedule=interleaved,zero=0,pp=2,activation_cap=5,micro_batch_tokens=9,"
                  "paired=true,micro_batch_sequences=2,sequence_parallel=false,dp=3"),
            "dp=3,pp=2,zero=0,schedule=interleaved,chunks=3,activation_cap=5,recompute=full,micro_batch_tokens=9,"
            "micro_batch_sequences=2,sequence_parallel=false,paired=true");
  for (const char* text :
       {"2,4,2", "tp=2,ulysses=4", "dp=3,pp=2,zero=0,schedule=zb-v,recompute=full", "zero=0", "dp=2,packing=stream",
        "ring=4,ring_degree=uniform", "dp=4,zero=3,every=4", "depth=2,every=3,schedule=zb-v", "ring=4,exchange=ring",
        "dp=2,pp=4,zero=3,every=7,schedule=zeropp,chunks=3", "dp=2,compression.gradients=int4,compression.links=hosts",
        "dp=2,ring=2,compression.gradients=top-1-of-128,compression.error_feedback=off,compression.keys=bf16",
        "pp=4,head_layers=2", "dp=2,pp=2,zero=0,inside=pipeline,head_layers=1 + pp=2,head_layers=3"})
    EXPECT_EQ(again(text), text);
}

TEST(StrategyText, that_is_neither_says_what_it_may_be) {
  for (const char* text :
       {"", "1", "1,4", "1,4,2,1", "1,4,2x", "0,4,2", "-1,4,2", "1,,2", "1;4;2", "a,b,c", "99999999999999999999,1,1"})
    EXPECT_EQ(error(text),
              fmt::format("strategy \"{}\" is not \"dp,tp,pp\". Write three numbers of at least 1, such as "
                          "\"1,4,2\", or keys, such as \"dp=2,tp=4\".",
                          text));
}

TEST(StrategyText, names_the_key_that_is_wrong) {
  EXPECT_EQ(error("dp=2,tp=4,dp=2"), "strategy \"dp=2,tp=4,dp=2\" gives dp twice. Keep one.");
  EXPECT_EQ(error("ulises=4"), "strategy \"ulises=4\" has an unknown key \"ulises\". Did you mean \"ulysses\"?");
  EXPECT_EQ(error("cp=2"),
            "strategy \"cp=2\" has an unknown key \"cp\". Documents are divided over ranks by ring, ulysses or both.");
  EXPECT_THAT(error("outer-ranks=4"),
              HasSubstr("Known are dp, tp, pp, ring, ulysses, depth, inner, zero, every, schedule,"));
  EXPECT_EQ(error("dp=2,4"), "strategy \"dp=2,4\" has \"4\" between its keys. Write every part as key=value.");
  EXPECT_EQ(error("dp=0"), "strategy \"dp=0\" has dp = \"0\": a number of at least 1 is needed.");
  EXPECT_THAT(error("tp=2x"), HasSubstr("has tp = \"2x\": a number of at least 1 is needed."));
  EXPECT_THAT(error("zero=4"), HasSubstr("has zero = 4, which must be at most 3."));
  EXPECT_EQ(read_strategy_text("dp=2,zero=3").settings.zero, 3);
  EXPECT_EQ(read_strategy_text("dp=2,zero=3,every=4").settings.every, 4);
  EXPECT_THAT(error("every=0"), HasSubstr("has every = 0, which must be at least 1."));
  EXPECT_THAT(error("packing=streams"), AllOf(HasSubstr("balanced"), HasSubstr("stream")));
  EXPECT_THAT(error("ring_degree=4"), AllOf(HasSubstr("document"), HasSubstr("uniform")));
  EXPECT_THAT(error("exchange=rings"), AllOf(HasSubstr("gather"), HasSubstr("ring")));
  EXPECT_THAT(error("compression.switches=int8"),
              HasSubstr("has compression.switches = \"int8\": one of \"none\", \"lossless\" is needed."));
  EXPECT_THAT(error("schedule=zb"), HasSubstr("has schedule = \"zb\": one of \"gpipe\", \"1f1b\""));
  EXPECT_THAT(error("sequence_parallel=1"), HasSubstr("has sequence_parallel = \"1\": true or false is needed."));
  EXPECT_THAT(error("chunks=two"), HasSubstr("has chunks = \"two\": an integer is needed."));
}

TEST(StrategyText, has_groups_of_unlike_pipelines_on_following_ranks) {
  const StrategyText text = read_strategy_text("pp=2, tp=2,zero=2+ 2,1,1 +inside=pipeline,pp=2,dp=2 + ulysses=2");
  EXPECT_THAT(text.groups, ElementsAre(Degrees{.tp = 2, .pp = 2}, Degrees{.dp = 2},
                                       Degrees{.dp = 2, .pp = 2, .inside = Inside::pipeline}, Degrees{.ulysses = 2}));
  EXPECT_EQ(text.settings.zero, 2);
  const std::string printed = to_text(text.groups, text.settings);
  EXPECT_EQ(printed, "tp=2,pp=2,zero=2 + 2,1,1 + dp=2,pp=2,inside=pipeline + ulysses=2");
  const StrategyText again = read_strategy_text(printed);
  EXPECT_EQ(again.groups, text.groups);
  EXPECT_EQ(again.settings, text.settings);
  EXPECT_EQ(ranks_of(text.groups), 12);

  const Strategy strategy = strategy_from_spec(printed, 13, 5);
  EXPECT_EQ(strategy.name, printed);
  std::vector<Group> groups{{{{{0, 1}, {{StageAxis::outer, 2}}, 0, 3}, {{2, 3}, {{StageAxis::outer, 2}}, 3, 5}}},
                            {{{{4, 5}, {{StageAxis::data, 2}}, 0, 5}}},
                            {{{{6, 8}, {{StageAxis::data, 2}}, 0, 3}, {{7, 9}, {{StageAxis::data, 2}}, 3, 5}}},
                            {{{{10, 11}, {{StageAxis::ulysses, 2}}, 0, 5}}}};
  EXPECT_EQ(strategy.groups, groups);
  EXPECT_EQ(strategy_from_json(to_json(strategy), "printed.json"), strategy);
}

TEST(StrategyText, of_groups_names_the_group_that_is_wrong) {
  EXPECT_EQ(error("2,1,1 + pp=2,zero=2"),
            "strategy \"2,1,1 + pp=2,zero=2\": group \"pp=2,zero=2\" has zero, which holds for all groups. Give it in "
            "the first one.");
  EXPECT_THAT(error("dp=2 + tp=2,tp=2"), HasSubstr(": group \"tp=2,tp=2\" gives tp twice. Keep one."));
  EXPECT_THAT(error("dp=2,tq=2 + tp=2"), HasSubstr(": group \"dp=2,tq=2\" has an unknown key \"tq\"."));
  for (const char* text : {"2,1,1 +", "+ 2,1,1", "2,1,1 ++ 1,1,1"})
    EXPECT_THAT(error(text), HasSubstr(": group \"\" is not \"dp,tp,pp\"."));
  const auto error_of_spec = [](const char* spec) { return message_of([&] { strategy_from_spec(spec, 8, 4); }); };
  EXPECT_EQ(
      error_of_spec("2,3,1 + 1,1,1 + dp=2"),
      "strategy \"2,3,1 + 1,1,1 + 2,1,1\" needs 2 x 3 + 1 + 2 ranks, but the run has 8. Use degrees whose products "
      "add up to at most 8, or raise run.ranks.");
  EXPECT_EQ(
      error_of_spec("1,1,1 + 1,1,5"),
      "strategy \"1,1,1 + 1,1,5\": group \"1,1,5\" has 5 pipeline stages, but the model has 4 layers. Use pp of at "
      "most 4.");
  EXPECT_EQ(
      error_of_spec("schedule=zb-v + 1,1,3"),
      "strategy \"1,1,1 + 1,1,3\": group \"1,1,3\" has 3 pipeline stages of 2 chunks, but the model has 4 layers. "
      "Use 1 chunks or fewer stages.");
  EXPECT_EQ(
      error_of_spec("1,1,1 + tp=4,inner=3"),
      "strategy \"1,1,1 + tp=4,inner=3\": group \"tp=4,inner=3\": inner = 3 does not divide tp = 4. Use inner = 2 "
      "or 4.");
}

TEST(StrategyText, names_the_strategy_that_it_makes) {
  EXPECT_EQ(strategy_from_spec("pp=2, zero=0,tp=2", 4, 4).name, "tp=2,pp=2,zero=0");
  EXPECT_EQ(strategy_from_spec("dp=1,tp=2,pp=1", 4, 4, {.zero = 0}).name, "1,2,1") << "only what the text has";
}

TEST(StrategyText, cuts_tp_into_outer_and_inner) {
  const Strategy strategy = strategy_from_spec("dp=2,tp=12,ulysses=2,inner=3", 48, 4);
  EXPECT_EQ(strategy.groups[0].stages[0].mesh,
            (StageMesh{{StageAxis::data, 2}, {StageAxis::ulysses, 2}, {StageAxis::outer, 4}, {StageAxis::inner, 3}}));
}

// Source: arXiv 2502.08145, whose ranks are numbered by tensor parallelism, then stages, then replicas.
TEST(StrategyText, numbers_the_ranks_of_a_replica_first_where_the_pipeline_is_inside) {
  const auto ranks = [](const char* spec, size_t position) {
    return strategy_from_spec(spec, 16, 8).groups[0].stages[position].ranks;
  };
  EXPECT_THAT(ranks("dp=2,tp=2,pp=2,inner=2", 1), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(ranks("dp=2,tp=2,pp=2,inner=2,inside=pipeline", 0), ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(ranks("dp=2,tp=2,pp=2,inner=2,inside=pipeline", 1), ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(ranks("dp=2,pp=2,inside=pipeline,schedule=zb-v", 3), ElementsAre(0, 2)) << "the pipeline turns back";
  EXPECT_THAT(ranks("dp=2,depth=2,tp=2,pp=2", 1), ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_THAT(ranks("dp=2,depth=2,tp=2,pp=2,inside=pipeline", 0), ElementsAre(0, 1, 2, 3, 8, 9, 10, 11));
  EXPECT_THAT(ranks("dp=2,depth=2,tp=2,pp=2,inside=pipeline", 1), ElementsAre(4, 5, 6, 7, 12, 13, 14, 15));
  const StrategyText text = read_strategy_text("inside=pipeline,dp=2,pp=2,zero=0");
  EXPECT_EQ(to_text(text.groups, text.settings), "dp=2,pp=2,zero=0,inside=pipeline");
  EXPECT_THAT(error("inside=stage"), HasSubstr("has inside = \"stage\": one of \"data\", \"pipeline\""));
}

// Source: arXiv 2502.08145, section 3: columns, rows and depth of a block of tensor parallel ranks, then data.
TEST(StrategyText, numbers_columns_first_then_rows_depth_and_data) {
  const Stage stage = strategy_from_spec("dp=2,depth=2,tp=4,inner=2", 16, 1).groups[0].stages[0];
  layout::Mesh mesh{{}, stage.ranks};
  for (const layout::StageAxisInfo& info : layout::stage_axes())
    mesh.axes.push_back({std::string(info.name), stage.mesh[info.axis]});
  const int position = static_cast<int>(std::ranges::find(mesh.ranks, 13) - mesh.ranks.begin());
  const auto place = [&](StageAxis axis) { return mesh.coordinate(position, layout::factors_of(mesh, axis)[0]); };
  EXPECT_EQ(place(StageAxis::inner), 1);
  EXPECT_EQ(place(StageAxis::outer), 0);
  EXPECT_EQ(place(StageAxis::depth), 1);
  EXPECT_EQ(place(StageAxis::data), 1);
  const auto group = [&](StageAxis axis) {
    std::vector<int> ranks;
    for (const int peer : mesh.peers(position, layout::factors_of(mesh, axis)))
      ranks.push_back(mesh.ranks[static_cast<size_t>(peer)]);
    return ranks;
  };
  EXPECT_THAT(group(StageAxis::inner), ElementsAre(12, 13));
  EXPECT_THAT(group(StageAxis::outer), ElementsAre(13, 15));
  EXPECT_THAT(group(StageAxis::depth), ElementsAre(9, 13));
  EXPECT_THAT(group(StageAxis::data), ElementsAre(5, 13));
}

TEST(StrategyText, leaves_the_last_position_fewer_layers_where_it_says_so) {
  const auto layers = [](const char* spec) {
    const Strategy strategy = strategy_from_spec(spec, 8, 10);
    std::vector<int> counts;
    for (const Stage& stage : strategy.groups.back().stages) counts.push_back(stage.end_layer - stage.first_layer);
    return counts;
  };
  EXPECT_THAT(layers("pp=4"), ElementsAre(3, 3, 2, 2));
  EXPECT_THAT(layers("pp=4,head_layers=1"), ElementsAre(3, 3, 3, 1));
  EXPECT_THAT(layers("pp=4,head_layers=2"), ElementsAre(3, 3, 3, 1));
  EXPECT_THAT(layers("pp=2,schedule=zb-v,head_layers=2"), ElementsAre(3, 3, 3, 1)) << "positions of chunks";
  EXPECT_THAT(layers("pp=2,head_layers=8"), ElementsAre(9, 1));
  EXPECT_THAT(layers("2,1,1 + pp=2,head_layers=2"), ElementsAre(6, 4)) << "each group has its own";
  const auto error_of_spec = [](const char* spec) { return message_of([&] { strategy_from_spec(spec, 8, 10); }); };
  EXPECT_EQ(error_of_spec("pp=2,head_layers=9"),
            "strategy \"pp=2,head_layers=9\": head_layers = 9, but 10 layers on 2 positions of the pipeline leave at "
            "most 8. Use less.");
  EXPECT_THAT(error_of_spec("tp=2,head_layers=1"),
              HasSubstr("10 layers on 1 position of the pipeline leave at most 0."));
  EXPECT_THAT(error("pp=2,head_layers=-1"), HasSubstr("has head_layers = -1, which must be at least 0."));
}

TEST(StrategyText, with_an_inner_that_does_not_divide_tp_names_the_nearest_that_do) {
  const auto error_of_spec = [](const char* spec) { return message_of([&] { strategy_from_spec(spec, 16, 4); }); };
  EXPECT_EQ(error_of_spec("tp=12,inner=5"),
            "strategy \"tp=12,inner=5\": inner = 5 does not divide tp = 12. Use inner = 4 or 6.");
  EXPECT_EQ(error_of_spec("tp=4,inner=3"),
            "strategy \"tp=4,inner=3\": inner = 3 does not divide tp = 4. Use inner = 2 or 4.");
  EXPECT_EQ(error_of_spec("tp=2,inner=4"),
            "strategy \"tp=2,inner=4\": inner = 4 does not divide tp = 2. Use inner = 2.");
  EXPECT_EQ(
      error_of_spec("tp=2,inner=9223372036854775807"),
      "strategy \"tp=2,inner=9223372036854775807\": inner = 9223372036854775807 does not divide tp = 2. Use inner "
      "= 2.");
  EXPECT_EQ(error_of_spec("inner=2"), "strategy \"inner=2\": inner = 2 does not divide tp = 1. Use inner = 1.");
}

TEST(StrategyText, counts_its_ranks_without_overflow) {
  EXPECT_EQ(ranks_of(Degrees{.dp = 2, .tp = 3, .pp = 5, .ulysses = 7}), 210);
  EXPECT_EQ(ranks_of(Degrees{.tp = 6, .inner = 3}), 6) << "inner is a factor of tp";
  const Degrees huge{.dp = i64{1} << 61, .tp = i64{1} << 61};
  EXPECT_GE(ranks_of(huge), i64{1} << 60);
  EXPECT_GE(ranks_of(std::vector<Degrees>(5, huge)), i64{1} << 60);
}

}  // namespace
}  // namespace switchyard::config
