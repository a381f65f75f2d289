// Every pipeline schedule gives the numbers of training on one rank.
#include <gmock/gmock.h>

#include <map>

#include "schedule/interleaved.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

using config::Recompute;
using config::ScheduleKind;
using testing::Each;
using testing::IsEmpty;

constexpr int kLayers = 6;

config::ModelConfig model(bool tied) {
  config::ModelConfig model = tiny_llama();
  model.layers = kLayers;
  model.tied_embeddings = tied;
  return model;
}

struct Case {
  std::string name, spec;
  config::StrategySettings settings;
  bool tied = false;
};

config::StrategySettings settings(ScheduleKind schedule, int chunks = 0, int cap = 0,
                                  Recompute recompute = Recompute::none) {
  config::StrategySettings made;
  made.schedule = schedule;
  made.chunks = chunks;
  made.activation_cap = cap;
  made.recompute = recompute;
  return made;
}

compiler::Plans plans_of(std::vector<config::Strategy> strategies, int ranks, bool tied) {
  ir::Graph graph = models::build(model(tied), kFp64, models::Output::loss);
  ir::differentiate(graph);
  return compiler::Plans(std::move(graph), std::move(strategies), 0, cluster::uniform(1, ranks),
                         switching::Planner::relay);
}

std::vector<Documents> two_batches() { return {tiny_documents(13, 1), tiny_documents(11, 2)}; }

const TinyRun& on_one_rank(bool tied) {
  static std::map<bool, TinyRun> known;
  const auto [it, is_new] = known.try_emplace(tied);
  if (is_new)
    it->second = run_tiny(plans_of({config::strategy_from_spec("1,1,1", 1, kLayers)}, 1, tied), two_batches());
  return it->second;
}

void expect_like_one_rank(const TinyRun& run, bool tied) {
  ASSERT_THAT(run.ends, Each(IsEmpty()));
  const TinyRun& one = on_one_rank(tied);
  for (size_t s = 0; s < run.steps.size(); ++s) {
    EXPECT_NEAR(run.steps[s].loss, one.steps[s].loss, 1e-10 * one.steps[s].loss);
    EXPECT_NEAR(run.steps[s].norm, one.steps[s].norm, 1e-10 * one.steps[s].norm);
  }
  for (size_t p = 0; p < run.master.size(); ++p)
    EXPECT_LT(gap(run.master[p], one.master[p]), 1e-10) << "parameter " << p;
}

class Schedules : public testing::TestWithParam<Case> {};

TEST_P(Schedules, EqualOneRank) {
  const Case& c = GetParam();
  config::Strategy strategy = config::strategy_from_spec(c.spec, 4, kLayers, c.settings);
  config::validate(strategy, model(c.tied), 4);
  expect_like_one_rank(run_tiny(plans_of({strategy}, 4, c.tied), two_batches()), c.tied);
}

INSTANTIATE_TEST_SUITE_P(
    All, Schedules,
    testing::Values(
        Case{"GPipe", "1,1,4", settings(ScheduleKind::gpipe)},
        Case{"Interleaved", "1,1,3", settings(ScheduleKind::interleaved)},
        Case{"InterleavedThree", "1,2,2", settings(ScheduleKind::interleaved, 3)},
        Case{"InterleavedTied", "2,1,2", settings(ScheduleKind::interleaved, 2), true},
        Case{"InterleavedAlone", "4,1,1", settings(ScheduleKind::interleaved, 3), true},
        Case{"ZeroBubble", "1,1,4", settings(ScheduleKind::zero_bubble)},
        Case{"ZeroBubbleTight", "1,2,2", settings(ScheduleKind::zero_bubble, 0, 1)},
        Case{"ZeroBubbleWide", "1,1,3", settings(ScheduleKind::zero_bubble, 0, 6), true},
        Case{"ZeroBubbleSelective", "2,1,2", settings(ScheduleKind::zero_bubble, 0, 0, Recompute::selective)},
        Case{"ZeroBubbleFull", "1,2,2", settings(ScheduleKind::zero_bubble, 0, 0, Recompute::full)},
        Case{"ZeroBubbleAlone", "1,4,1", settings(ScheduleKind::zero_bubble)},
        Case{"ZbV", "1,1,3", settings(ScheduleKind::zb_v)},
        Case{"ZbVTied", "2,1,2", settings(ScheduleKind::zb_v), true},
        Case{"ZeroBubbleTied", "1,2,2", settings(ScheduleKind::zero_bubble), true},
        Case{"ZbVCutVocabulary", "1,2,2", settings(ScheduleKind::zb_v)},
        Case{"ZeroPP", "every=2,pp=2", settings(ScheduleKind::zeropp)},
        Case{"ZeroPPInBlocks", "every=3,pp=3", settings(ScheduleKind::zeropp), true},
        Case{"ZeroPPThreeChunks", "every=2,tp=2,pp=2", settings(ScheduleKind::zeropp, 3)},
        Case{"ZeroPPOneChunk", "every=4,dp=2,pp=2", settings(ScheduleKind::zeropp, 1)},
        Case{"ZeroPPFull", "every=3,dp=2,pp=2", settings(ScheduleKind::zeropp, 0, 0, Recompute::full), true},
        Case{"ZbVFull", "1,2,2", settings(ScheduleKind::zb_v, 0, 3, Recompute::full), true}),
    [](const auto& c) { return c.param.name; });

TEST(Schedules, SwitchFromOneToTheOtherInAStep) {
  const std::vector<config::Strategy> strategies = {
      config::strategy_from_spec("1,1,3", 4, kLayers, settings(ScheduleKind::zb_v)),
      config::strategy_from_spec("2,2,1", 4, kLayers, settings(ScheduleKind::zero_bubble)),
      config::strategy_from_spec("2,1,2", 4, kLayers, settings(ScheduleKind::interleaved))};
  for (const bool prefetch : {true, false})
    expect_like_one_rank(
        run_tiny(plans_of(strategies, 4, false), two_batches(), {.bounds = {24, 14, 8}, .prefetch = prefetch}), false);
}

TEST(Schedules, WrittenByHandLeaveOutWhatAReplicaLacks) {
  config::Strategy strategy = config::strategy_from_spec("2,1,2", 4, kLayers);
  strategy.order = {.order = {{{Pass::F, 0, 1},
                               {Pass::F, 0, 0},
                               {Pass::B, 0, 0},
                               {Pass::BW, 0, 1},
                               {Pass::W, 0, 0},
                               {Pass::F, 0, 2},
                               {Pass::F, 0, 3},
                               {Pass::BW, 0, 3},
                               {Pass::BW, 0, 2},
                               {Pass::F, 0, 4},
                               {Pass::BW, 0, 4},
                               {Pass::F, 0, 5},
                               {Pass::BW, 0, 5}},
                              {{Pass::F, 0, 0},
                               {Pass::BW, 0, 0},
                               {Pass::F, 0, 1},
                               {Pass::B, 0, 1},
                               {Pass::F, 0, 2},
                               {Pass::F, 0, 3},
                               {Pass::B, 0, 3},
                               {Pass::B, 0, 2},
                               {Pass::W, 0, 1},
                               {Pass::W, 0, 2},
                               {Pass::W, 0, 3},
                               {Pass::F, 0, 4},
                               {Pass::BW, 0, 4},
                               {Pass::F, 0, 5},
                               {Pass::BW, 0, 5}}},
                    .mbs = 6};
  schedule::verify(strategy.order);
  expect_like_one_rank(run_tiny(plans_of({strategy}, 4, false), two_batches()), false);
}

}  // namespace
}  // namespace switchyard::runtime
