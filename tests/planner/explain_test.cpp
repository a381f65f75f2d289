#include "planner/explain.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

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

std::string told(const Request& request, int top) {
  const Planner planner(request);
  return explain(planner, planner.plan(top), no_limit);
}

TEST(Explain, has_a_row_for_the_winner_and_each_runner_up) {
  const Planner planner(request_of(1));
  const Found found = planner.plan(3);
  ASSERT_EQ(found.best.size(), 3u);
  const std::string text = explain(planner, found, no_limit);
  for (size_t i = 0; i < 3; ++i) {
    const Account a = planner.account(found.best[i]);
    EXPECT_THAT(text, HasSubstr(fmt::format("\n{:>3} {:>10} {:>7.2f}% {:>10}", i + 1, format_duration(Seconds{a.seconds}),
                                            100 * (a.seconds / found.best[0].seconds - 1), format_duration(Seconds{a.compute}))));
  }
  EXPECT_THAT(text, Not(HasSubstr("\n  4 ")));
}

TEST(Explain, tells_each_phase_of_the_winner) {
  const Planner planner(request_of(1));
  const Found found = planner.plan(1);
  const std::string text = explain(planner, found, no_limit);
  for (const Phase& phase : found.best[0].phases)
    EXPECT_THAT(text, HasSubstr(fmt::format("  to {} under {}: ", planner.model().longest(phase.range), to_string(phase.shape))));
}

TEST(Explain, names_what_takes_most_of_the_step) {
  Request request = request_of(1);
  EXPECT_THAT(told(request, 1), HasSubstr("It is limited by computing: "));
  request.hardware.device.launch = {};
  for (auto& [type, rates] : request.hardware.device.rates) rates = {{1e18}, {1e18}, {}};
  request.hardware.intra_host.bandwidth = {1e3};
  request.limits.tp = {2};
  EXPECT_THAT(told(request, 1), HasSubstr("It is limited by communication inside stages: "));
  request.limits = {.tp = {1}, .pp = {1}};
  EXPECT_THAT(told(request, 1), HasSubstr("It is limited by parameters, gradients and the update: "));
}

TEST(Explain, tells_what_would_change_the_plan) {
  const std::string one = told(request_of(1), 1), two = told(request_of(2), 1);
  for (const char* what : {"  twice the memory: ", "  links inside hosts twice as fast: ", "  the longest document twice as long: "})
    EXPECT_THAT(one, HasSubstr(what));
  EXPECT_THAT(one, HasSubstr("twice the memory: " + format_duration(Seconds{Planner(request_of(1)).plan(1).best[0].seconds}) + ", the same plan"))
      << "memory is no limit";
  EXPECT_THAT(one, Not(HasSubstr("between hosts")));
  EXPECT_THAT(two, HasSubstr("  links between hosts twice as fast: "));
}

TEST(Explain, tells_where_a_change_leaves_nothing_that_fits) {
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
