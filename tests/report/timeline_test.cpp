#include "report/timeline.hpp"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "simulator/trace.hpp"
#include "steps.hpp"

namespace switchyard::report {
namespace {

const std::vector<i64> kLengths{60, 50, 40, 30, 20, 10, 31, 7};

double seconds_of(const Track& track, bool computing) {
  double sum = 0;
  for (const Span& span : track.spans)
    if (span.kind != Kind::waiting && span.kind != Kind::other && computes(span.kind) &&
        (span.kind != Kind::collective) == computing)
      sum += span.end - span.begin;
  return sum;
}

TEST(Timeline, of_a_simulation_has_each_span_of_each_rank_at_its_time) {
  const SimulatedStep step({"1,2,2", "4,1,1"}, 1, 4, kLengths);
  const Timeline timeline = predicted_timeline(step.program, step.simulation);
  ASSERT_EQ(timeline.tracks.size(), 4u);
  EXPECT_EQ(timeline.predicted_seconds, step.simulation.step_seconds);
  for (int rank = 0; rank < 4; ++rank) {
    const Track& track = timeline.tracks[static_cast<size_t>(rank)];
    EXPECT_NEAR(seconds_of(track, true), step.simulation.ranks[static_cast<size_t>(rank)].compute, 1e-9);
    size_t expected = 0, drawn = 0;
    for (const int row : step.program.of_rank[static_cast<size_t>(rank)])
      for (const simulator::Span& span : step.simulation.tasks[static_cast<size_t>(row)].spans) {
        if (span.end <= span.begin) continue;
        ++expected;
        const std::string name = ir::name_of(step.program.tasks[static_cast<size_t>(row)]);
        drawn += std::any_of(track.spans.begin(), track.spans.end(), [&](const Span& s) {
          return s.begin == span.begin && s.end == span.end && timeline.names[static_cast<size_t>(s.name)] == name;
        });
      }
    EXPECT_GT(expected, 10u);
    EXPECT_EQ(drawn, expected);
  }
}

TEST(Timeline, calls_every_gap_of_the_compute_stream_waiting_for_the_next_task) {
  const SimulatedStep step({"1,1,2"}, 1, 2, kLengths);
  const Timeline timeline = predicted_timeline(step.program, step.simulation);
  const Track& second_stage = timeline.tracks[1];
  const Span& first = second_stage.spans.front();
  EXPECT_EQ(first.kind, Kind::waiting);
  EXPECT_EQ(first.begin, 0);
  EXPECT_EQ(timeline.names[static_cast<size_t>(first.name)], "run phase 0 replica 0 stage 1 F mb0");
  double at = 0;  // waiting and computing follow each other without gaps and overlaps
  for (const Span& span : second_stage.spans)
    if (span.kind == Kind::waiting || computes(span.kind)) {
      EXPECT_NEAR(span.begin, at, 1e-12);
      at = span.end;
    }
}

TEST(Timeline, folds_only_ranks_with_identical_spans_and_keeps_every_rank) {
  const SimulatedStep step({"2,2,2", "4,2,1"}, 1, 8, {60, 60, 30, 30, 30, 30});
  const Timeline whole = predicted_timeline(step.program, step.simulation);
  Timeline folded = whole;
  fold_equal(folded);
  EXPECT_LT(folded.tracks.size(), 8u);
  EXPECT_FALSE(folded.folded.empty());
  std::set<int> seen;
  for (const Track& track : folded.tracks)
    for (const int rank : track.ranks) {
      EXPECT_TRUE(seen.insert(rank).second);
      const Track& own = whole.tracks[static_cast<size_t>(rank)];
      ASSERT_EQ(own.spans.size(), track.spans.size());
      for (size_t s = 0; s < own.spans.size(); ++s) {
        EXPECT_EQ(own.spans[s].begin, track.spans[s].begin);
        EXPECT_EQ(own.spans[s].end, track.spans[s].end);
        EXPECT_EQ(own.spans[s].kind, track.spans[s].kind);
      }
    }
  EXPECT_EQ(seen.size(), 8u);
}

TEST(Timeline, keeps_ranks_apart_that_differ_in_the_last_bit) {
  Timeline timeline{.predicted_seconds = 1, .names = {"update u0"}};
  timeline.tracks = {{{0}, 0, false, {{0, 1, Kind::update, 0}}},
                     {{1}, 1, false, {{0, std::nextafter(1.0, 2), Kind::update, 0}}}};
  fold_equal(timeline);
  EXPECT_EQ(timeline.tracks.size(), 2u);
  EXPECT_EQ(timeline.folded, "");
}

TEST(Timeline, with_too_many_tracks_joins_those_with_equal_compute_times) {
  Timeline timeline{.predicted_seconds = 1, .names = {"update u0", "move phase 0 u0 r0"}};
  for (int rank = 0; rank < 3; ++rank)
    timeline.tracks.push_back(
        {{rank}, rank, false, {{0.1 * rank, 0.4, Kind::move, 1}, {0.5, rank == 2 ? 0.9 : 0.8, Kind::update, 0}}});
  Timeline few = timeline;
  fold_similar(few, 3);
  EXPECT_EQ(few.tracks.size(), 3u);
  fold_similar(timeline, 2);
  ASSERT_EQ(timeline.tracks.size(), 2u);
  EXPECT_EQ(timeline.tracks[0].ranks, (std::vector<int>{0, 1}));
  EXPECT_NE(timeline.folded.find("compute at exactly the same times"), std::string::npos);
}

TEST(Timeline, with_too_many_different_tracks_joins_those_of_equal_tasks_and_similar_times) {
  Timeline timeline{.predicted_seconds = 10, .names = {"update u0"}};
  for (int rank = 0; rank < 100; ++rank) {  // even ranks work once, odd ones twice
    timeline.tracks.push_back({{rank}, rank, false, {{0, 1 + 0.01 * rank, Kind::update, 0}}});
    if (rank % 2) timeline.tracks.back().spans.push_back({5, 6 + 0.01 * rank, Kind::forward, 0});
  }
  fold_similar(timeline, 10);
  EXPECT_LE(timeline.tracks.size(), 10u);
  EXPECT_GE(timeline.tracks.size(), 8u);
  std::set<int> seen;
  for (const Track& track : timeline.tracks) {
    EXPECT_NE(std::find(track.ranks.begin(), track.ranks.end(), track.shown), track.ranks.end());
    EXPECT_EQ(track.spans[0].end, 1 + 0.01 * track.shown);
    EXPECT_LE(track.ranks.back() - track.ranks.front(), 30);
    for (const int rank : track.ranks) {
      EXPECT_EQ(rank % 2, track.ranks.front() % 2);
      EXPECT_TRUE(seen.insert(rank).second);
    }
  }
  EXPECT_EQ(seen.size(), 100u);
  EXPECT_NE(timeline.folded.find("of similar lengths"), std::string::npos);
}

// A trace as runs write it, with a process for every rank.
std::string trace_of_all_ranks(const SimulatedStep& step) {
  std::vector<std::vector<simulator::TracedSpan>> spans(step.program.of_rank.size());
  for (size_t rank = 0; rank < spans.size(); ++rank)
    for (const int row : step.program.of_rank[rank])
      for (const simulator::Span& span : step.simulation.tasks[static_cast<size_t>(row)].spans)
        spans[rank].push_back({row, span});
  return simulator::trace_of(step.program, spans, nlohmann::json::object());
}

TEST(Timeline, measured_is_folded_as_the_predicted_one_beside_it) {
  const SimulatedStep step({"2,2,2", "4,2,1"}, 1, 8, {60, 60, 30, 30, 30, 30});
  Timeline predicted = predicted_timeline(step.program, step.simulation);
  fold_equal(predicted);
  Timeline measured = measured_timeline(trace_of_all_ranks(step), "t").timeline;
  const Timeline whole = measured;
  fold_as(measured, predicted);
  ASSERT_EQ(measured.tracks.size(), predicted.tracks.size());
  for (size_t t = 0; t < predicted.tracks.size(); ++t) {
    EXPECT_EQ(measured.tracks[t].ranks, predicted.tracks[t].ranks);
    EXPECT_EQ(measured.tracks[t].spans, whole.tracks[static_cast<size_t>(predicted.tracks[t].shown)].spans);
  }
}

TEST(Timeline, is_merged_until_it_is_small_and_counts_the_spans_that_are_gone) {
  Timeline timeline{.predicted_seconds = 1, .names = {"norm"}};
  timeline.tracks.resize(1);
  timeline.tracks[0].ranks = {0};
  for (int i = 0; i < 1000; ++i)
    timeline.tracks[0].spans.push_back({1e-3 * i, 1e-3 * i + 5e-4, i % 2 ? Kind::forward : Kind::collective, 0});
  merge_short(timeline, 100);
  const auto& spans = timeline.tracks[0].spans;
  EXPECT_LE(spans.size(), 100u);
  EXPECT_EQ(timeline.merged, 1000 - static_cast<i64>(spans.size()));
  double last = 0;
  for (const Span& span : spans) last = std::max(last, span.end);
  EXPECT_EQ(spans.front().begin, 0);
  EXPECT_DOUBLE_EQ(last, 0.9995);
  double working = 0;  // joined spans cover gaps, but don't count them
  for (const Span& span : spans) working += span.busy * (span.end - span.begin);
  EXPECT_NEAR(working, 0.5, 1e-12);
}

TEST(Timeline, that_was_measured_is_read_back_from_a_trace_and_matches_the_predicted_tasks_by_name) {
  const SimulatedStep step({"1,2,2", "4,1,1"}, 1, 4, kLengths);
  const Timeline predicted = predicted_timeline(step.program, step.simulation);
  const Timeline read = measured_timeline(trace_of_all_ranks(step), "timeline.json").timeline;
  ASSERT_EQ(read.tracks.size(), predicted.tracks.size());
  for (size_t t = 0; t < read.tracks.size(); ++t) {
    ASSERT_TRUE(read.tracks[t].measured);
    ASSERT_EQ(read.tracks[t].ranks, predicted.tracks[t].ranks);
    const double rounded =
        0.125e-6 * static_cast<double>(read.tracks[t].spans.size());  // a trace has eighths of microseconds
    EXPECT_NEAR(seconds_of(read.tracks[t], true), seconds_of(predicted.tracks[t], true), rounded);
    EXPECT_NEAR(seconds_of(read.tracks[t], false), seconds_of(predicted.tracks[t], false), rounded);
  }
  const Timeline both = side_by_side(predicted, read);
  ASSERT_EQ(both.tracks.size(), 8u);
  EXPECT_EQ(both.names.size(), predicted.names.size());
  for (size_t t = 0; t < 8; ++t) {
    EXPECT_EQ(both.tracks[t].ranks.front(), static_cast<int>(t / 2));
    EXPECT_EQ(both.tracks[t].measured, t % 2 == 1);
  }
}

TEST(Timeline, of_a_trace_knows_its_step_and_the_hosts) {
  const std::string text =
      R"({"otherData":{"hosts":[0,1],"job":"00ff","emulated":"2x1","overlap_collectives":false,"step":7},"traceEvents":[
    {"ph":"M","name":"process_name","pid":0,"tid":0,"args":{"name":"rank 0"}},
    {"ph":"X","name":"update u0","cat":"compute","pid":1,"tid":0,"ts":5,"dur":10}]})";
  const MeasuredStep step = measured_timeline(text, "timeline.json");
  EXPECT_EQ(step.timeline.step, 7);
  ASSERT_EQ(step.timeline.tracks.size(), 1u);
  EXPECT_EQ(step.timeline.tracks[0].ranks, std::vector<int>{1});
  EXPECT_DOUBLE_EQ(*step.timeline.measured_seconds, 15e-6);
  EXPECT_EQ(step.cluster.host, (std::vector<int>{0, 1}));
  EXPECT_FALSE(step.cluster.overlaps_collectives);
  EXPECT_EQ(step.job, "00ff");
  EXPECT_EQ(step.emulated, "2x1");
}

TEST(Timeline, that_is_no_trace_is_reported_with_its_name) {
  for (const char* text : {"", "{", "[]", "{\"traceEvents\": 3}", "{\"traceEvents\": [{\"ph\": \"X\"}]}"})
    EXPECT_NE(message_of([&] {
                measured_timeline(text, "run/timeline.json");
              }).find("run/timeline.json is no timeline of a run"),
              std::string::npos)
        << text;
}

TEST(Timeline, of_a_trace_has_numbers_that_a_run_can_have) {
  const auto told = [](const std::string& other, const std::string& event) {
    const std::string text =
        "{\"otherData\":" + other + ",\"traceEvents\":[{\"ph\":\"X\",\"name\":\"update u0\"," + event + "}]}";
    return message_of([&] { measured_timeline(text, "timeline.json"); });
  };
  const std::string good = R"("pid":0,"ts":0,"dur":1)";
  for (const char* other : {"[]", "3", R"({"step":-2})", R"({"step":0})", R"({"step":1e308})", R"({"step":"1"})",
                            R"({"hosts":1})", R"({"hosts":[-1]})", R"({"hosts":[0,1000000000]})", R"({"hosts":[0.5]})"})
    EXPECT_NE(told(other, good).find("timeline.json is no timeline of a run ("), std::string::npos) << other;
  for (const char* event :
       {R"("pid":-1,"ts":0,"dur":1)", R"("pid":1e308,"ts":0,"dur":1)", R"("pid":0,"ts":-1,"dur":1)",
        R"("pid":0,"ts":1e308,"dur":1)", R"("pid":0,"ts":1e999,"dur":1)", R"("pid":0,"ts":0,"dur":-1)",
        R"("pid":0,"ts":0,"dur":null)", R"("pid":0,"ts":0)", R"("ts":0,"dur":1)"})
    EXPECT_NE(told("{}", event).find("timeline.json is no timeline of a run ("), std::string::npos) << event;
}

TEST(TimeShares, sum_to_the_step_for_every_rank) {
  const SimulatedStep step({"1,2,2"}, 1, 4, kLengths);
  size_t ranks = 0;
  for (const TimeShare& share : time_shares(step.simulation)) {
    EXPECT_NEAR(share.compute + share.overlap + share.communication + share.idle, 1, 1e-9);
    ranks += share.ranks.size();
    const simulator::RankTime& first = step.simulation.ranks[static_cast<size_t>(share.ranks.front())];
    EXPECT_NEAR(share.compute + share.overlap, first.compute / step.simulation.step_seconds, 2e-3);
  }
  EXPECT_EQ(ranks, 4u);
}

}  // namespace
}  // namespace switchyard::report
