#include "planner/explain.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/errors.hpp"
#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

std::function<bool()> no_limit() { return {}; }

Request request_of(int hosts) {
  Request request{.model = model_of(3, 256, 1000),
                  .precision = precision_from("bf16"),
                  .hardware = hardware_of(hosts, 2, 5e-6, 50e9, 1e9),
                  .steps = {}};
  request.steps = {{2048, 1500, 400, 300, 300, 200, 200, 100}};
  request.context = 2048;
  request.hardware.device.memory = {i64{64} << 30};
  request.limits = {.most_head_layers = 0, .recompute = {config::Recompute::none}};
  return request;
}

std::vector<Judged> planned(const Found& found) {
  std::vector<Judged> plans;
  for (const Choice& choice : found.best) plans.push_back({choice});
  return plans;
}

std::string told(const Request& request, int top) {
  const Planner planner(request);
  const Found found = planner.plan(top);
  return explain(planner, planned(found), found.counts, {no_limit});
}

// The rest of the line that begins with the given text.
std::string answer(const std::string& text, const std::string& question) {
  const size_t begin = text.find("  " + question + ": ") + question.size() + 4;
  return text.substr(begin, text.find('\n', begin) - begin);
}

TEST(Explain, has_a_row_for_the_winner_and_each_runner_up) {
  const Planner planner(request_of(1));
  const Found found = planner.plan(3);
  ASSERT_EQ(found.best.size(), 3u);
  const std::string text = explain(planner, planned(found), found.counts, {no_limit});
  for (size_t i = 0; i < 3; ++i) {
    const Account a = planner.account(found.best[i]);
    EXPECT_THAT(
        text, HasSubstr(fmt::format("\n{:>3} {:>10} {:>7.2f}% {:>10} {:>10}", i + 1,
                                    format_duration(Seconds{a.seconds}), 100 * (a.seconds / found.best[0].seconds - 1),
                                    format_duration(Seconds{a.seconds}), format_duration(Seconds{a.compute}))));
  }
  EXPECT_THAT(text, Not(HasSubstr("\n  4 ")));
}

TEST(Explain, lists_each_phase_of_the_winner) {
  const Planner planner(request_of(1));
  const Found found = planner.plan(1);
  const std::string text = explain(planner, planned(found), found.counts, {no_limit});
  for (const Phase& phase : found.best[0].phases)
    EXPECT_THAT(text, HasSubstr(fmt::format("  to {} under {}:\n", planner.model().longest(phase.range),
                                            to_string(phase.shape))));
}

TEST(Explain, names_what_takes_most_of_the_step) {
  Request request = request_of(1);
  EXPECT_THAT(told(request, 1), HasSubstr("It is limited by computing: "));
  request.hardware.device.launch = {};
  for (auto& [type, rates] : request.hardware.device.rates) rates = {{1e18}, {1e18}, {}};
  request.hardware.intra_host.bandwidth = {1e3};
  request.limits.stage_ranks = {2};
  request.limits.axes = {layout::StageAxis::outer};
  EXPECT_THAT(told(request, 1), HasSubstr("It is limited by communication inside stages: "));
  request.limits = {.stage_ranks = {1}, .pp = {1}};
  EXPECT_THAT(told(request, 1), HasSubstr("It is limited by parameters, gradients and the update: "));
}

TEST(Explain, lists_what_would_change_the_plan_and_the_gain) {
  const std::string one = told(request_of(1), 1), two = told(request_of(2), 1);
  const double seconds = Planner(request_of(1)).plan(1).best[0].seconds;
  for (const char* what : {"  twice the memory: ", "  devices twice as fast: ", "  links inside hosts twice as fast: ",
                           "  the longest document twice as long: "})
    EXPECT_THAT(one, HasSubstr(what));
  EXPECT_EQ(answer(one, "twice the memory"), format_duration(Seconds{seconds}) + " (+0.0%), the same plan")
      << "memory is no limit";
  EXPECT_THAT(one, Not(AnyOf(HasSubstr("between hosts"), HasSubstr("as many hosts"))));
  EXPECT_THAT(two, HasSubstr("  links between hosts twice as fast: "));
  EXPECT_THAT(two, HasSubstr("  twice as many hosts: "));
}

// Only devices take time.
TEST(Explain, devices_twice_as_quick_halve_what_they_take) {
  Request request = request_of(1);
  request.hardware.intra_host = {{}, {1e18}};
  request.limits = {.stage_ranks = {1}, .pp = {1}, .most_head_layers = 0, .recompute = {config::Recompute::none}};
  const double seconds = Planner(request).plan(1).best[0].seconds;
  EXPECT_EQ(answer(told(request, 1), "devices twice as fast"),
            format_duration(Seconds{seconds / 2}) + " (-50.0%), the same plan");
  for (const char* name : {"linear", "attention"})
    request.hardware.device.operators[DType::bf16][name] = {{{1024, 256, 1e6, 1e-2}}, {{256, 1e-7, 1e-9, 0}}};
  const double measured = Planner(request).plan(1).best[0].seconds;
  EXPECT_GT(measured, 1.5 * seconds) << "the tables count";
  EXPECT_EQ(answer(told(request, 1), "devices twice as fast"),
            format_duration(Seconds{measured / 2}) + " (-50.0%), the same plan");
}

// Almost all time goes into slow links, and into the codec that shortens their messages.
TEST(Explain, devices_twice_as_quick_encode_twice_as_quick) {
  Request request = request_of(1);
  request.hardware.intra_host = {{}, {1e6}};
  request.limits = {.stage_ranks = {1}, .pp = {1}, .most_head_layers = 0, .recompute = {config::Recompute::none}};
  request.allowed.gradients = codecs::Codec::int8;
  request.hardware.device.codecs["int8"] = {{1e7}, {1e7}, {}};
  const std::string text = answer(told(request, 1), "devices twice as fast");
  EXPECT_LT(std::stod(text.substr(text.find('(') + 1)), -10) << text;
}

TEST(Explain, lines_fit_100_columns_and_a_search_that_is_cut_off_proves_nothing) {
  const Planner planner(request_of(2));
  const Found found = planner.plan(3);
  const auto at_once = [] { return [] { return 1.0; }; };
  const std::string text = explain(planner, planned(found), found.counts, {at_once});
  EXPECT_THAT(text, HasSubstr("%, not proven best)"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(Explain, memory_is_reported_by_the_budget_in_force) {
  Request request = request_of(1);
  const Planner unlimited(request);
  const i64 needed = unlimited.account(unlimited.plan(1).best[0]).memory;
  EXPECT_THAT(told(request, 1), HasSubstr("needs " + memory_of(needed, i64{64} << 30) + ".\n")) << "the device's";
  request.memory = needed + needed / 9;
  EXPECT_THAT(told(request, 1),
              HasSubstr(fmt::format("needs {} of the budget of {} (90%).\n", format_bytes(Bytes{needed}),
                                    format_bytes(Bytes{request.memory}))));
}

// Simulated times replace the model's times, and of two plans the simulator's choice is taken.
TEST(Explain, times_are_the_simulators_where_there_is_one) {
  const Planner planner(request_of(1));
  const Found found = planner.plan(2);
  std::vector<Judged> plans = planned(found);
  plans[0].seconds = 7.0;
  plans[0].peak = 5 << 20;
  plans[1].seconds = 10.5;
  size_t most = 0;
  const auto simulate = [&](const Planner&, const std::vector<Choice>& choices, size_t& quickest) {
    most = std::max(most, choices.size());
    quickest = choices.size() - 1;
    return 3.5;
  };
  const std::string text = explain(planner, plans, found.counts, {no_limit, simulate});
  EXPECT_THAT(text, HasSubstr("\n  1        7 s    0.00%"));
  EXPECT_THAT(text, HasSubstr("\n  2     10.5 s   50.00%"));
  EXPECT_THAT(text, HasSubstr("needs 5 MiB of the budget of 64 GiB"));
  EXPECT_EQ(answer(text, "twice the memory"), "3.5 s (-50.0%), the same plan");
  EXPECT_EQ(most, 2u) << "the plan that there is and another one";
}

TEST(Explain, reports_a_change_under_which_no_plan_fits) {
  Request request = request_of(1);
  const Planner planner(request);
  i64 memory = 0;
  for (const Choice& choice : planner.plan(50).best) memory = std::max(memory, planner.account(choice).memory);
  const auto fits = [&](i64 bytes) {
    request.memory = bytes;
    try {
      Planner(request).plan(1);
      return true;
    } catch (const UserError&) {
      return false;
    }
  };
  while (fits(memory * 19 / 20)) memory = memory * 19 / 20;
  request.memory = memory;
  EXPECT_THAT(told(request, 1), HasSubstr("the longest document twice as long: no strategy fits 2 ranks"));
}

}  // namespace
}  // namespace switchyard::planner
