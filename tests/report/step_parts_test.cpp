#include "report/step_parts.hpp"

#include <gtest/gtest.h>

#include "report/timeline.hpp"
#include "steps.hpp"

namespace switchyard::report {
namespace {

double sum(const StepParts& p) { return p.compute + p.collectives + p.switching + p.sends + p.pipeline + p.imbalance; }

// Names by index: 0 and 1 runs of phase 0, 2 a run of phase 1, 3 and 4 moves of phases 0 and 1, 5 a send of phase 0,
// 6 a reduce, 7 an update, 8 a run of another stage of phase 0.
Timeline timeline_of(std::vector<Track> tracks) {
  return {.predicted_seconds = 10,
          .names = {"run phase 0 replica 0 stage 0 F mb0", "run phase 0 replica 0 stage 0 BW mb0",
                    "run phase 1 replica 0 stage 0 F mb0", "move phase 0 u0 r0", "move phase 1 u0 r0",
                    "send act phase 0 replica 0 stage 0 mb0", "reduce phase 0 u0 r0", "update u0",
                    "run phase 0 replica 0 stage 1 F mb0"},
          .tracks = std::move(tracks)};
}

TEST(StepParts, a_gap_belongs_to_what_its_next_task_waits_for) {
  const StepParts parts = parts_of(timeline_of({{{0},
                                                 0,
                                                 false,
                                                 {{0, 1, Kind::move, 3},
                                                  {1, 2, Kind::forward, 0},
                                                  {2, 2.5, Kind::activation_send, 5},
                                                  {3, 4, Kind::backward, 1},
                                                  {4, 4.5, Kind::collective, 1},
                                                  {5, 6, Kind::forward, 2},
                                                  {6, 7, Kind::reduce, 6},
                                                  {8, 9, Kind::update, 7}}}}),
                                   false);
  EXPECT_NEAR(parts.compute, 0.4, 1e-12);
  EXPECT_NEAR(parts.switching, 0.2, 1e-12);  // the parameters of phase 0, and gradients before the update
  EXPECT_NEAR(parts.sends, 0.05, 1e-12);
  EXPECT_NEAR(parts.pipeline, 0.05, 1e-12);  // from 2.5 to 3, within phase 0
  EXPECT_NEAR(parts.collectives, 0.05, 1e-12);
  EXPECT_NEAR(parts.imbalance, 0.25, 1e-12);  // before phase 1, before the update, and at the end
  EXPECT_NEAR(sum(parts), 1, 1e-12);
}

TEST(StepParts, transfers_of_another_phase_are_no_cause_and_hidden_collectives_are_computing) {
  const StepParts parts = parts_of(timeline_of({{{0},
                                                 0,
                                                 false,
                                                 {{0, 4, Kind::forward, 0},
                                                  {1, 3, Kind::collective, 0},
                                                  {4, 6, Kind::move, 4},
                                                  {6, 10, Kind::backward, 1}}}}),
                                   false);
  EXPECT_NEAR(parts.compute, 0.8, 1e-12);
  EXPECT_NEAR(parts.pipeline, 0.2, 1e-12);
  EXPECT_EQ(parts.switching, 0);
  EXPECT_EQ(parts.collectives, 0);
}

// Where the strategy has one stage, what neither comes nor goes is waiting for other replicas.
TEST(StepParts, gradients_of_single_runs_and_other_replicas_are_no_other_stages) {
  Timeline timeline = timeline_of({{{0},
                                    0,
                                    false,
                                    {{0, 4, Kind::forward, 0},
                                     {4, 6, Kind::reduce, 6},
                                     {7, 8, Kind::forward, 0},
                                     {8, 9, Kind::reduce, 6},
                                     {9, 10, Kind::forward, 2}}}});
  const auto expect = [&](double pipeline, double imbalance) {
    const StepParts parts = parts_of(timeline, false);
    EXPECT_NEAR(parts.compute, 0.6, 1e-12);
    EXPECT_NEAR(parts.switching, 0.2, 1e-12);  // not what leaves before another phase's run, which waits for its own
    EXPECT_NEAR(parts.pipeline, pipeline, 1e-12);
    EXPECT_NEAR(parts.imbalance, imbalance, 1e-12);
    EXPECT_NEAR(sum(parts), 1, 1e-12);
  };
  expect(0.1, 0.1);
  timeline.names.pop_back();  // without the second stage
  expect(0, 0.2);
}

TEST(StepParts, are_means_over_ranks_with_the_rank_that_computes_longest) {
  const Span half{0, 5, Kind::forward, 0}, whole{0, 10, Kind::forward, 0};
  const StepParts parts =
      parts_of(timeline_of({{{0, 1, 2}, 0, false, {half}}, {{3}, 3, false, {whole}}, {{0}, 0, true, {whole}}}), false);
  EXPECT_NEAR(parts.compute, 0.625, 1e-12);
  EXPECT_EQ(parts.longest_rank, 3);
  EXPECT_NEAR(parts.longest, 1, 1e-12);
}

TEST(LongestTasks, are_from_their_first_span_to_their_last_on_the_rank_where_they_take_longest) {
  const std::vector<LongTask> tasks =
      longest_tasks(timeline_of({{{0},
                                  0,
                                  false,
                                  {{0, 1, Kind::collective, 0},
                                   {1, 2, Kind::forward, 0},
                                   {3, 4, Kind::forward, 0},
                                   {4, 9, Kind::waiting, 2}}},
                                 {{1}, 1, false, {{2, 8, Kind::forward, 0}}},
                                 {{2}, 2, false, {{1, 3.5, Kind::move, 3}, {5, 6, Kind::update, 7}}},
                                 {{3}, 3, true, {{0, 9, Kind::reduce, 6}}}}),
                    false, 2);
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_EQ(tasks[0].name, "run phase 0 replica 0 stage 0 F mb0");
  EXPECT_EQ(tasks[0].rank, 1);
  EXPECT_EQ(tasks[0].kind, Kind::forward);
  EXPECT_EQ(tasks[0].end - tasks[0].begin, 6);
  EXPECT_EQ(tasks[1].kind, Kind::move);
  const LongTask first = longest_tasks(
      timeline_of({{{0}, 0, false, {{0, 1, Kind::collective, 0}, {3, 4, Kind::forward, 0}}}}), false, 9)[0];
  EXPECT_EQ(first.kind, Kind::forward);
  EXPECT_EQ(first.working, 2);
}

TEST(StepParts, of_a_simulated_step_agree_with_its_shares) {
  const SimulatedStep step({"1,2,2", "4,1,1"}, 1, 4, {60, 30, 20, 20, 12, 8});
  const StepParts parts = parts_of(predicted_timeline(step.program, step.simulation), false);
  double compute = 0;
  for (const simulator::RankTime& rank : step.simulation.ranks)
    compute += rank.compute / (4 * step.simulation.step_seconds);
  EXPECT_NEAR(parts.compute, compute, 1e-9);
  EXPECT_NEAR(sum(parts), 1, 1e-9);
  EXPECT_GT(parts.switching, 0);
  EXPECT_GT(parts.pipeline, 0);
}

TEST(StepParts, of_a_simulated_step_without_pipelines_have_no_waiting_for_stages) {
  const SimulatedStep step({"dp=4,zero=3"}, 2, 2, {60, 30, 20, 20, 12, 8});
  const StepParts parts = parts_of(predicted_timeline(step.program, step.simulation), false);
  EXPECT_EQ(parts.pipeline, 0);
  EXPECT_GT(parts.imbalance, 0);
  EXPECT_GT(parts.switching, 0);
  EXPECT_NEAR(sum(parts), 1, 1e-9);
}

}  // namespace
}  // namespace switchyard::report
