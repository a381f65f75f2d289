#include "simulator/trace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "simple_steps.hpp"

namespace switchyard::simulator {
namespace {

TEST(Trace, has_an_event_for_every_span_of_every_rank) {
  const compiler::Plans plans = plans_under({"1,1,2"}, 1, 2);
  const Step step(plans, 2);
  const Simulation simulation = simulate(step.program, step.plan, plans, arithmetic_only(1, 2));
  const nlohmann::json trace = nlohmann::json::parse(trace_of(step.program, simulation));
  double busy[2] = {0, 0};
  int names = 0, events = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["cat"] == "compute")
      busy[event["pid"].get<int>()] += 1e-6 * event["dur"].get<double>();
    names += event["name"] == "process_name";
    events += event["ph"] == "X";
  }
  EXPECT_EQ(names, 2);
  for (const size_t rank : {0, 1}) EXPECT_NEAR(busy[rank], simulation.ranks[rank].compute, 0.125e-6 * events);
}

// Rounded to whole nanoseconds, in whatever way a viewer rounds.
TEST(Trace, has_no_events_of_a_thread_that_overlap) {
  const compiler::Plans plans = plans_under({"1,2,2", "4,1,1"}, 2, 2);
  const Step step(plans, 5);
  cluster::Hardware hardware = arithmetic_only(2, 2);
  hardware.inter_host->bandwidth = {1.1e7};
  const nlohmann::json trace =
      nlohmann::json::parse(trace_of(step.program, simulate(step.program, step.plan, plans, hardware)));
  std::map<std::pair<int, int>, i64> ends;
  int events = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    EXPECT_GT(event["tid"], 0) << event;
    if (event["ph"] != "X") continue;
    const double begin = 1e3 * event["ts"].get<double>(), took = 1e3 * event["dur"].get<double>();
    EXPECT_EQ(begin, std::floor(begin)) << event;
    EXPECT_EQ(took, std::floor(took)) << event;
    i64& end = ends[{event["pid"], event["tid"]}];
    EXPECT_GE(static_cast<i64>(begin), end) << event;
    end = static_cast<i64>(begin) + static_cast<i64>(took);
    ++events;
  }
  EXPECT_GT(events, 100);
}

TEST(Trace, has_titles_in_the_order_of_ranks) {
  const compiler::Plans plans = plans_under({"6,1,2", "12,1,1"}, 1, 12);
  const Step step(plans, 13);  // one more for the first rank
  const nlohmann::json trace =
      nlohmann::json::parse(trace_of(step.program, simulate(step.program, step.plan, plans, arithmetic_only(1, 12))));
  std::vector<std::string> titles;
  for (const nlohmann::json& event : trace["traceEvents"])
    if (event["name"] == "process_name") titles.push_back(event["args"]["name"]);
  ASSERT_GT(titles.size(), 3u);
  EXPECT_EQ(titles[0], "rank 00");
  EXPECT_TRUE(std::ranges::is_sorted(titles));
}

TEST(Trace, ranks_that_do_the_same_share_a_process) {
  const compiler::Plans plans = plans_under({"2,2,1"}, 1, 4);
  const auto titles = [&](int documents) {
    const Step step(plans, documents);
    const Simulation simulation = simulate(step.program, step.plan, plans, arithmetic_only(1, 4));
    std::vector<std::string> names;
    const nlohmann::json trace = nlohmann::json::parse(trace_of(step.program, simulation));
    for (const nlohmann::json& event : trace["traceEvents"])
      if (event["name"] == "process_name") names.push_back(event["args"]["name"]);
    return names;
  };
  EXPECT_EQ(titles(2), (std::vector<std::string>{"rank 0 and 1 like it, to rank 2", "rank 1 and 1 like it, to rank 3"}))
      << "replicas do the same";
  EXPECT_EQ(titles(3), (std::vector<std::string>{"rank 0", "rank 1", "rank 2", "rank 3"}))
      << "one of them has two documents";
}

TEST(Trace, of_many_spans_has_whole_tasks) {
  const compiler::Plans plans = plans_under({"1,2,1"}, 1, 2);
  const Step step(plans, 1);
  Simulation simulation = simulate(step.program, step.plan, plans, arithmetic_only(1, 2));
  const auto run = static_cast<size_t>(std::ranges::find(step.program.tasks, ir::TaskKind::run, &ir::Task::kind) -
                                       step.program.tasks.begin());
  std::vector<Span> spans;
  for (int i = 0; i < 100'001; ++i) spans.push_back({1.0 * i, i + 0.5, i % 2 == 1});
  simulation.tasks[run].spans = spans;
  const nlohmann::json trace = nlohmann::json::parse(trace_of(step.program, simulation));
  int events = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["name"] != ir::name_of(step.program.tasks[run])) continue;
    ++events;
    EXPECT_EQ(event["dur"], 1e6 * 100'000.5);
    EXPECT_EQ(event["cat"], "compute");
  }
  EXPECT_EQ(events, 1);
}

TEST(Trace, of_given_spans_has_them_on_the_task_s_stream_with_the_given_data) {
  const compiler::Plans plans = plans_under({"1,1,2"}, 1, 2);
  const Step step(plans, 1);
  const int first = step.program.of_rank[1].front();
  const nlohmann::json trace =
      nlohmann::json::parse(trace_of(step.program, {{}, {{first, {0.5, 0.75, true}}}}, {{"step", 3}}));
  EXPECT_EQ(trace["otherData"]["step"], 3);
  const nlohmann::json& event = trace["traceEvents"].back();
  EXPECT_EQ(event["name"], ir::name_of(step.program.tasks[static_cast<size_t>(first)]));
  EXPECT_EQ(event["pid"], 1);
  EXPECT_EQ(event["cat"], "communication");
  EXPECT_EQ(event["ts"], 0.5e6);
  EXPECT_EQ(event["dur"], 0.25e6);
}

TEST(Trace, counts_a_measured_transfer_from_when_the_last_of_its_ranks_is_ready) {
  const compiler::Plans plans = plans_under({"1,1,2"}, 1, 2);
  const Step step(plans, 1);
  int run = -1, send = -1;
  for (int id = 0; id < static_cast<int>(step.program.tasks.size()); ++id) {
    const ir::TaskKind kind = step.program.tasks[static_cast<size_t>(id)].kind();
    if (kind == ir::TaskKind::run) run = id;
    if (kind == ir::TaskKind::send) send = id;
  }
  std::vector<std::vector<TracedSpan>> spans{{{send, {1, 9, true}}, {run, {0, 1, true}}},
                                             {{send, {8, 9.5, true}}, {run, {3, 4, true}}}};
  start_when_last_rank_is_ready(step.program, spans);
  EXPECT_EQ(spans[0][0].span.begin, 8);
  EXPECT_EQ(spans[1][0].span.begin, 8);
  EXPECT_EQ(spans[0][1].span.begin, 0);  // a collective inside a run stays as it was measured
  spans = {{{send, {1, 2, true}}}, {{send, {8, 9, true}}}};
  start_when_last_rank_is_ready(step.program, spans);
  EXPECT_EQ(spans[0][0].span.begin, 2);  // the send was complete before the other rank was ready
}

}  // namespace
}  // namespace switchyard::simulator
