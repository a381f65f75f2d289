#include "config/strategy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../message_of.hpp"
#include "config/model.hpp"

namespace switchyard::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// 4 layers, 8 heads, `kv_heads` key/value heads.
ModelConfig model_with(i64 kv_heads) {
  ModelConfig model;
  model.layers = 4;
  model.heads = 8;
  model.kv_heads = kv_heads;
  return model;
}

/// The message after one change to "2,2,2" on 8 ranks.
template <class Change>
std::string error_after(Change change) {
  Strategy strategy = strategy_from_spec("2,2,2", 8, 4);
  change(strategy);
  return message_of([&] { validate(strategy, model_with(4), 8); });
}

TEST(Strategy, ranks_go_tensor_fastest_then_data_then_pipeline) {
  const Strategy strategy = strategy_from_spec("2,4,2", 16, 32);
  ASSERT_EQ(strategy.groups.size(), 1u);
  const Group& group = strategy.groups[0];
  EXPECT_EQ(group.replicas(), 2);
  ASSERT_EQ(group.stages.size(), 2u);
  EXPECT_THAT(group.stages[0].ranks, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(group.stages[1].ranks, ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_EQ(group.stages[1].mesh, (StageMesh{{StageAxis::data, 2}, {StageAxis::outer, 4}}));
  EXPECT_EQ(group.stages[1].first_layer, 16);
  EXPECT_EQ(group.stages[1].end_layer, 32);
  EXPECT_EQ(strategy.name, "2,4,2");
  EXPECT_EQ(strategy.replicas(), 2);
}

TEST(Strategy, layers_that_do_not_divide_leave_the_later_stages_one_less) {
  const Strategy strategy = strategy_from_spec("1,1,4", 4, 10);
  std::vector<int> counts;
  for (const Stage& stage : strategy.groups[0].stages) counts.push_back(stage.end_layer - stage.first_layer);
  EXPECT_THAT(counts, ElementsAre(3, 3, 2, 2));
  EXPECT_EQ(strategy.groups[0].stages[3].end_layer, 10);
}

TEST(Strategy, ranks_may_be_left_over) {
  const Strategy strategy = strategy_from_spec("1,3,1", 8, 4);
  EXPECT_THAT(strategy.ranks(), ElementsAre(0, 1, 2));
}

TEST(Strategy, has_a_replica_for_each_place_on_data_and_depth) {
  const Strategy strategy = strategy_from_spec("dp=2,depth=3,tp=2", 12, 4);
  EXPECT_EQ(strategy.replicas(), 6);
  EXPECT_EQ(strategy.groups[0].stages[0].mesh.positions(), 2);
  EXPECT_NO_THROW(validate(strategy, model_with(8), 12));
}

TEST(Strategy, ranks_are_listed_in_order_and_replicas_add_up_over_groups) {
  Strategy strategy = strategy_from_spec("2,1,1", 2, 4);
  strategy.groups.push_back(
      {.stages = {{.ranks = {3, 2}, .mesh = {{StageAxis::outer, 2}}, .first_layer = 0, .end_layer = 4}}});
  EXPECT_THAT(strategy.ranks(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(strategy.replicas(), 3);
  EXPECT_NO_THROW(validate(strategy, model_with(4), 4));
}

TEST(Strategy, a_spec_that_needs_more_ranks_or_layers_says_how_many) {
  EXPECT_EQ(message_of([] { strategy_from_spec("2,4,2", 8, 32); }),
            "strategy \"2,4,2\" needs 2 x 4 x 2 ranks, but the run has 8. Use degrees whose product is at most 8, or "
            "raise run.ranks.");
  EXPECT_EQ(message_of([] { strategy_from_spec("1,1,8", 8, 4); }),
            "strategy \"1,1,8\" has 8 pipeline stages, but the model has 4 layers. Use pp of at most 4.");
  EXPECT_THAT(message_of([] { strategy_from_spec("4611686018427387904,4,4", 8, 4); }), HasSubstr("but the run has 8"));
  EXPECT_THAT(message_of([] { strategy_from_spec("tp=2,ulysses=8", 8, 4); }), HasSubstr("needs 2 x 8 ranks"));
  EXPECT_EQ(
      message_of([] { strategy_from_spec("tp=2,depth=8", 8, 4); }),
      "strategy \"tp=2,depth=8\" needs 2 x 8 ranks, but the run has 8. Use degrees whose product is at most 8, or "
      "raise run.ranks.");
}

TEST(Strategy, every_spec_that_fits_is_valid) {
  for (const int ranks : {2, 3, 4, 8}) {
    for (int dp = 1; dp <= ranks; ++dp) {
      for (int tp = 1; dp * tp <= ranks; ++tp) {
        for (int pp = 1; dp * tp * pp <= ranks && pp <= 4; ++pp) {
          const Strategy strategy = strategy_from_spec(fmt::format("{},{},{}", dp, tp, pp), ranks, 4);
          EXPECT_NO_THROW(validate(strategy, model_with(8), ranks)) << strategy.name;
        }
      }
    }
  }
}

TEST(Strategy, the_axes_that_divide_heads_come_out_even_with_the_key_heads) {
  const auto error = [](const char* spec, i64 kv_heads) {
    return message_of([&] { validate(strategy_from_spec(spec, 16, 4), model_with(kv_heads), 16); });
  };
  EXPECT_EQ(error("1,3,1", 2),
            "strategy \"1,3,1\": groups[0].stages[0].mesh (outer=3) can't divide 8 heads with 2 key/value heads. The "
            "axes that divide heads (outer, inner, ulysses) make at most as many parts as there are heads; above the "
            "key/value "
            "heads, leading factors of theirs multiply to these. Use outer (tp / inner) = 2 or 4.");
  EXPECT_THAT(error("1,6,1", 4), HasSubstr("Use outer (tp / inner) = 4 or 8."));
  EXPECT_THAT(error("tp=3,ulysses=2", 4), HasSubstr("Use outer (tp / inner) = 2 or 4, or ulysses = 1."));
  EXPECT_THAT(error("tp=6,inner=3", 4), HasSubstr("Use outer (tp / inner) = 1, or inner = 2 or 4."));
  EXPECT_THAT(error("1,16,1", 4), HasSubstr("Use outer (tp / inner) = 8.")) << "more parts than heads";
  for (const char* good :
       {"1,8,1", "1,3,1", "tp=2,ulysses=4", "ulysses=8", "tp=4,ulysses=2", "tp=8,inner=2", "tp=4,ulysses=2,inner=4"})
    EXPECT_EQ(error(good, 4), "no error") << good;
  EXPECT_EQ(error("1,7,1", 1), "no error");
}

TEST(Strategy, a_rank_out_of_range_or_used_twice_is_refused) {
  EXPECT_EQ(error_after([](Strategy& s) { s.groups[0].stages[1].ranks[0] = 8; }),
            "strategy \"2,2,2\": groups[0].stages[1].ranks has rank 8, but the run has ranks 0 to 7. Raise run.ranks "
            "or use another.");
  EXPECT_THAT(error_after([](Strategy& s) { s.groups[0].stages[1].ranks[0] = -1; }), HasSubstr("has rank -1"));
  EXPECT_EQ(error_after([](Strategy& s) { s.groups[0].stages[1].ranks[0] = 0; }),
            "strategy \"2,2,2\": groups[0].stages[1].ranks has rank 0, which groups[0].stages[0] uses already. A rank "
            "belongs to one stage.");
}

TEST(Strategy, a_stage_needs_as_many_ranks_as_its_mesh) {
  EXPECT_EQ(error_after([](Strategy& s) { s.groups[0].stages[1].ranks.pop_back(); }),
            "strategy \"2,2,2\": groups[0].stages[1].ranks lists 3 ranks, but the mesh (data=2 outer=2) needs 4.");
}

TEST(Strategy, a_ring_needs_attention_that_stores_no_scores) {
  ModelConfig model = model_with(4);
  const Strategy strategy = strategy_from_spec("dp=2,ring=2", 4, model.layers);
  EXPECT_EQ(message_of([&] { validate(strategy, model, 4); }), "no error");
  model.attention = AttentionKind::unfused;
  EXPECT_EQ(
      message_of([&] { validate(strategy, model, 4); }),
      "strategy \"dp=2,ring=2\": groups[0].stages[0].mesh.ring = 2, but the model's attention stores its scores "
      "(model.attention = \"unfused\"), which ring attention never has in one place. Use ulysses instead, or fused "
      "attention.");
}

TEST(Strategy, settings_of_rings_need_a_ring) {
  const auto error = [](const char* spec) {
    return message_of([&] { validate(strategy_from_spec(spec, 8, 4), model_with(4), 8); });
  };
  EXPECT_EQ(error("dp=2,exchange=ring"),
            "strategy \"dp=2,exchange=ring\": exchange = \"ring\" has no effect: no stage has a ring. Give ring = 2 or "
            "more, or leave it out.");
  EXPECT_THAT(error("dp=2,ring_degree=uniform"), HasSubstr("ring_degree = \"uniform\" has no effect"));
  EXPECT_EQ(error("dp=2,exchange=gather,ring_degree=document"), "no error") << "defaults";
  EXPECT_EQ(error("ring=2,exchange=ring,ring_degree=uniform"), "no error");
  EXPECT_EQ(error("dp=2,exchange=ring + ring=2"), "no error") << "of the second group";
  const StrategySettings shared{.zero = 0, .ring_degree = RingDegree::uniform, .exchange = KeyPassing::ring};
  EXPECT_EQ(strategy_from_spec("dp=2", 2, 4, shared).exchange, KeyPassing::gather) << "meant for others with a ring";
  EXPECT_EQ(strategy_from_spec("dp=2", 2, 4, shared).zero, 0);
  EXPECT_EQ(strategy_from_spec("dp=2 + ring=2", 4, 4, shared).ring_degree, RingDegree::uniform);
}

TEST(Strategy, layers_are_covered_once_and_in_order) {
  EXPECT_EQ(error_after([](Strategy& s) { s.groups[0].stages[1].first_layer = 3; }),
            "strategy \"2,2,2\": groups[0].stages[1].layers begins at 3, but the stages before it end at 2. Every "
            "layer belongs to one stage, in "
            "order.");
  EXPECT_EQ(error_after([](Strategy& s) { s.groups[0].stages[1].end_layer = 3; }),
            "strategy \"2,2,2\": groups[0].stages end at layer 3 of 4. The last stage must end at 4.");
  EXPECT_EQ(error_after([](Strategy& s) { s.groups[0].stages[0].end_layer = 0; }),
            "strategy \"2,2,2\": groups[0].stages[0].layers [0, 0] is empty. A stage needs at least one layer.");
}

TEST(Strategy, empty_and_non_positive_parts_are_refused) {
  EXPECT_THAT(error_after([](Strategy& s) { s.groups.clear(); }),
              HasSubstr("groups is empty. Give at least one group of stages."));
  EXPECT_THAT(error_after([](Strategy& s) { s.groups[0].stages.clear(); }), HasSubstr("groups[0].stages is empty."));
  for (const layout::StageAxisInfo& axis : layout::stage_axes())
    EXPECT_THAT(error_after([&](Strategy& s) { s.groups[0].stages[0].mesh[axis.axis] = 0; }),
                HasSubstr(fmt::format("groups[0].stages[0].mesh.{} = 0 must be at least 1.", axis.name)));
  EXPECT_THAT(error_after([](Strategy& s) { s.groups[0].stages[1].mesh[StageAxis::data] = 4; }),
              HasSubstr("groups[0].stages[1].mesh.data = 4, but the first stage has 2. All stages of a group have as "
                        "many replicas."));
  EXPECT_THAT(error_after([](Strategy& s) { s.groups[0].stages[1].mesh[StageAxis::depth] = 2; }),
              HasSubstr("groups[0].stages[1].mesh.depth = 2, but the first stage has 1. All stages of a group have as "
                        "many replicas."));
  EXPECT_THAT(error_after([](Strategy& s) { s.groups[0].stages[1].mesh[StageAxis::ring] = 2; }),
              HasSubstr("groups[0].stages[1].mesh.ring = 2, but the first stage has 1. All stages of a group have as "
                        "many ring ranks."));
  EXPECT_THAT(error_after([](Strategy& s) { s.micro_batch_tokens = -1; }),
              HasSubstr("micro_batch_tokens = -1 is negative."));
}

TEST(Strategy, pairs_need_schedules_of_single_micro_batches) {
  EXPECT_EQ(error_after([](Strategy& s) { s.paired = true; }), "no error");
  EXPECT_THAT(error_after([](Strategy& s) {
                s.paired = true;
                s.schedule = ScheduleKind::zeropp;
                s.every = 3;
              }),
              HasSubstr("paired = true goes with schedules of single micro-batches, not with blocks of schedule "
                        "\"zeropp\". Leave it out."));
}

TEST(Strategy, the_parts_of_a_split_parameter_divide_the_tensor_degree_of_a_stage) {
  const auto split = [](std::vector<Cut> cuts) {
    return error_after([&](Strategy& s) { s.splits = {{.parameter = "*.down_proj.weight", .cuts = cuts}}; });
  };
  EXPECT_EQ(split({}), "no error");
  EXPECT_EQ(split({{1, 2}}), "no error");
  EXPECT_EQ(split({{0, 2}, {1, 2}}),
            "strategy \"2,2,2\": splits[0] cuts *.down_proj.weight into 4 parts, which divides the tensor parallel "
            "degree of no stage (2, 2). The product of the parts must divide it.");
  EXPECT_EQ(split({{0, 0, StageAxis::outer}, {1, 3, StageAxis::inner}}), "no error") << "stages may have other meshes";
  EXPECT_THAT(split({{0, 2}, {1, 2, StageAxis::outer}}),
              HasSubstr("splits[0].cuts[1] names an axis, unlike the first cut. Name an axis in all or in none."));
  EXPECT_THAT(split({{0, 0, StageAxis::outer}, {1, 2}}), HasSubstr("splits[0].cuts[1] names no axis"));
  EXPECT_THAT(split({{2, 2}}), HasSubstr("splits[0].cuts[0].dim = 2 must be 0 (rows) or 1 (columns)."));
  EXPECT_THAT(split({{1, 0}}), HasSubstr("splits[0].cuts[0].parts = 0 must be at least 1."));
  EXPECT_THAT(error_after([](Strategy& s) { s.splits = {{.parameter = "", .cuts = {}}}; }),
              HasSubstr("splits[0].parameter is empty."));
}

StrategySettings with(ScheduleKind schedule, int chunks = 0) {
  StrategySettings settings;
  settings.schedule = schedule;
  settings.chunks = chunks;
  return settings;
}

TEST(Strategy, chunks_come_back_to_the_ranks_in_a_loop_or_a_v) {
  const auto first_ranks = [](const Strategy& strategy) {
    std::vector<int> ranks;
    for (const Stage& stage : strategy.groups[0].stages) ranks.push_back(stage.ranks[0]);
    return ranks;
  };
  const Strategy loop = strategy_from_spec("1,2,2", 4, 7, with(ScheduleKind::interleaved, 3));
  EXPECT_THAT(first_ranks(loop), ElementsAre(0, 2, 0, 2, 0, 2));
  EXPECT_EQ(loop.groups[0].stages[0].end_layer, 2) << "the first of six positions gets the seventh layer";
  EXPECT_THAT(loop.ranks(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(first_ranks(strategy_from_spec("1,2,2", 4, 4, with(ScheduleKind::zb_v))), ElementsAre(0, 2, 2, 0));
  EXPECT_EQ(message_of([] { strategy_from_spec("1,1,4", 4, 6, with(ScheduleKind::interleaved)); }),
            "strategy \"1,1,4\" has 4 pipeline stages of 2 chunks, but the model has 6 layers. Use 1 chunks or fewer "
            "stages.");
}

TEST(Strategy, chunks_and_orders_that_do_not_fit_are_refused) {
  const auto error = [](ScheduleKind schedule, auto change) {
    Strategy strategy = strategy_from_spec("1,2,2", 4, 4, with(schedule));
    change(strategy);
    return message_of([&] { validate(strategy, model_with(4), 4); });
  };
  EXPECT_EQ(error(ScheduleKind::interleaved, [](Strategy&) {}), "no error");
  EXPECT_THAT(error(ScheduleKind::interleaved,
                    [](Strategy& s) { std::swap(s.groups[0].stages[2].ranks, s.groups[0].stages[3].ranks); }),
              HasSubstr("groups[0].stages[2] is a further chunk of the stage with ranks [0, 1] and the mesh (outer=2). "
                        "Give it the same."));
  EXPECT_THAT(error(ScheduleKind::interleaved, [](Strategy& s) { s.schedule = ScheduleKind::one_f_one_b; }),
              HasSubstr("chunks = 2 go with schedule \"interleaved\", \"zb-v\" or \"zeropp\", not \"1f1b\"."));
  EXPECT_THAT(error(ScheduleKind::interleaved, [](Strategy& s) { s.chunks = 3; }),
              HasSubstr("are 4, which 3 chunks don't divide."));
  EXPECT_THAT(error(ScheduleKind::zb_v, [](Strategy& s) { s.chunks = 4; }),
              HasSubstr("chunks = 4: schedule \"zb-v\" has 2."));
  EXPECT_THAT(error(ScheduleKind::zb_v, [](Strategy& s) { s.activation_cap = 1; }),
              HasSubstr("activation_cap = 1: zb-v holds"));
  EXPECT_THAT(error(ScheduleKind::zero_bubble, [](Strategy& s) { s.activation_cap = -1; }),
              HasSubstr("activation_cap = -1 is negative."));
  EXPECT_THAT(
      error(ScheduleKind::one_f_one_b, [](Strategy& s) { s.activation_cap = 3; }),
      HasSubstr("activation_cap = 3 goes with schedule \"zero-bubble\" or \"zb-v\", not \"1f1b\". Leave it out."));
  EXPECT_THAT(error(ScheduleKind::gpipe, [](Strategy& s) { s.zero = 4; }),
              HasSubstr("zero = 4 is not a ZeRO stage. Use 0, 1, 2 or 3."));
  EXPECT_THAT(error(ScheduleKind::gpipe, [](Strategy& s) { s.every = 0; }), HasSubstr("every = 0 must be at least 1."));
  EXPECT_EQ(error(ScheduleKind::gpipe,
                  [](Strategy& s) {
                    s.zero = 2;
                    s.every = 4;
                  }),
            "strategy \"1,2,2\": every = 4: so many micro-batches share the parameters that are gathered for them, but "
            "without zero = 3 or depth none are. Leave it out, or use zero = 3.");
  EXPECT_EQ(error(ScheduleKind::gpipe,
                  [](Strategy& s) {
                    s.zero = 3;
                    s.every = 4;
                  }),
            "no error");
  EXPECT_EQ(error(ScheduleKind::zeropp, [](Strategy& s) { s.every = 4; }), "no error") << "which has blocks anyway";
  EXPECT_EQ(error(ScheduleKind::zeropp, [](Strategy&) {}),
            "strategy \"1,2,2\": every = 1: schedule \"zeropp\" takes blocks of so many micro-batches through one "
            "chunk after the other, and with blocks of one, one stage works at a time. Use every = 3, with which none "
            "of 2 stages has to wait, or as many as fit the memory.");
  const Strategy one_stage = strategy_from_spec("4,1,1", 4, 4, with(ScheduleKind::zeropp));
  EXPECT_EQ(message_of([&] { validate(one_stage, model_with(4), 4); }), "no error") << "ZeRO-3's order";
  EXPECT_THAT(error(ScheduleKind::gpipe, [](Strategy& s) { s.order = {.order = schedule::Order(3), .mbs = 0}; }),
              HasSubstr("are 2, but the schedule is for 3. Use as many."));
}

TEST(Strategy, error_feedback_is_for_lossy_codecs_and_by_itself_for_those_of_the_largest_elements) {
  using codecs::Codec;
  const auto feedback = [](Codec codec, ErrorFeedback how) {
    return Compression{.gradients = codec, .error_feedback = how}.rule_of_gradients().feedback;
  };
  for (const Codec codec : {Codec::none, Codec::lossless})
    for (const ErrorFeedback how : {ErrorFeedback::automatic, ErrorFeedback::on, ErrorFeedback::off})
      EXPECT_FALSE(feedback(codec, how));
  for (const Codec codec : {Codec::bf16, Codec::int4, Codec::zfp8}) {
    EXPECT_FALSE(feedback(codec, ErrorFeedback::automatic));
    EXPECT_TRUE(feedback(codec, ErrorFeedback::on));
  }
  for (const Codec codec : {Codec::top_32, Codec::top_128}) {
    EXPECT_TRUE(feedback(codec, ErrorFeedback::automatic));
    EXPECT_FALSE(feedback(codec, ErrorFeedback::off));
  }
  const codecs::Rule rule =
      Compression{.gradients = Codec::top_32, .links = CompressedLinks::hosts, .smallest = {77}}.rule_of_gradients();
  EXPECT_EQ(rule, (codecs::Rule{Codec::top_32, 77, true, true}));
}

TEST(Strategy, names_of_settings_are_those_of_the_file) {
  EXPECT_EQ(name_of(ErrorFeedback::automatic), "auto");

  EXPECT_EQ(name_of(Recompute::selective), "selective");
  EXPECT_EQ(name_of(ScheduleKind::one_f_one_b), "1f1b");
  EXPECT_EQ(name_of(ScheduleKind::zeropp), "zeropp");
  EXPECT_THROW(name_of(static_cast<Recompute>(9)), InternalError);
  EXPECT_THROW(name_of(static_cast<ScheduleKind>(9)), InternalError);
}

}  // namespace
}  // namespace switchyard::config
