#include "train/timed_calls.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "base/errors.hpp"

namespace switchyard::train {
namespace {

Call call(const std::string& name, double rows, double seconds, std::vector<double> rounds = {}) {
  return {.name = name, .rows = rows, .columns = 64, .work = 100, .seconds = seconds, .rounds = std::move(rounds)};
}

Call attention(double rows, double length, double per_row, double per_pair, bool attention_pairs = true) {
  const double other = rows / length * (attention_pairs ? length * (length + 1) / 2 : length * length);
  return {.name = "attention",
          .rows = rows,
          .columns = 64,
          .head_dim = 16,
          .attention_pairs = attention_pairs ? other : 0,
          .squared_lengths = attention_pairs ? 0 : other,
          .seconds = per_row * rows + per_pair * other};
}

TEST(TablesOf, have_the_median_of_equal_calls) {
  const auto tables = tables_of({{call("linear", 32, 3), call("linear", 32, 1), call("linear", 64, 5)},
                                 {call("linear", 32, 2), call("norm", 32, 7)}});
  const cluster::OperatorTable& linear = tables.at("linear");
  ASSERT_EQ(linear.calls.size(), 2u);
  EXPECT_EQ(linear.calls[0].seconds, 2);
  EXPECT_EQ(linear.calls[1].seconds, 5);
  EXPECT_EQ(tables.at("norm").calls.size(), 1u);
}

TEST(TablesOf, separate_rows_from_attention_pairs_where_lengths_are_far_apart) {
  for (const bool attention_pairs : {true, false}) {
    const auto tables = tables_of(
        {{attention(1024, 256, 2e-6, 3e-9, attention_pairs), attention(4096, 256, 2e-6, 3e-9, attention_pairs)},
         {attention(2048, 2048, 2e-6, 3e-9, attention_pairs)}});
    ASSERT_EQ(tables.at("attention").attention.size(), 1u);
    const cluster::MeasuredAttention found = tables.at("attention").attention[0];
    EXPECT_EQ(found.columns, 64);
    EXPECT_EQ(found.head_dim, 16);
    EXPECT_NEAR(found.per_row, 2e-6, 1e-12);
    EXPECT_NEAR(found.per_pair, attention_pairs ? 3e-9 : 0, 1e-15);
    EXPECT_NEAR(found.per_square, attention_pairs ? 0 : 3e-9, 1e-15);
  }
  EXPECT_FALSE(tables_of({{attention(1024, 256, 2e-6, 3e-9), attention(1024, 512, 2e-6, 3e-9)}}).contains("attention"))
      << "twice the length says little";
}

// More attention pairs in less time, as in disturbed measurements: no row and no pair takes less than 0 s.
TEST(TablesOf, have_no_negative_times) {
  Call shorter = attention(1024, 256, 1e-6, 0), longer = attention(1024, 1024, 1e-6, 0);
  longer.seconds = 0.5 * shorter.seconds;
  const cluster::MeasuredAttention by_rows = tables_of({{shorter, longer}}).at("attention").attention[0];
  EXPECT_GT(by_rows.per_row, 0);
  EXPECT_EQ(by_rows.per_pair, 0);
  longer.seconds = 10 * shorter.seconds;
  const cluster::MeasuredAttention by_attention_pairs = tables_of({{shorter, longer}}).at("attention").attention[0];
  EXPECT_EQ(by_attention_pairs.per_row, 0);
  EXPECT_GT(by_attention_pairs.per_pair, 0);
}

TEST(LeastOf, looks_at_all_rounds_and_the_call_before_them) {
  EXPECT_EQ(least_of({{call("a", 1, 3, {5, 4}), call("b", 1, 3, {2, 9})}, {call("c", 1, 8, {9, 6})}}),
            (std::vector<double>{3, 2, 6}));
}

TEST(LeastOf, passes_over_times_in_which_the_clock_stood_still) {
  EXPECT_EQ(least_of({{call("a", 1, 3, {0, 4}), call("b", 1, 0, {2, 0})}}), (std::vector<double>{3, 2}));
}

TEST(LeastOf, refuses_a_clock_that_no_repetition_moved) {
  EXPECT_THROW(least_of({{call("a", 1, 0, {0, 0})}}), UserError);
}

// Calls on a rank with half a core: one of eight short calls waits for the next period in every round, a different one
// each time; every long call waits.
CallsOfSteps interrupted() {
  std::vector<Call> calls;
  for (size_t i = 0; i < 8; ++i) {
    calls.push_back(call("short", 1, 1e-4, {1e-4, 1e-4}));
    calls.back().rounds[0] += i == 0 ? 8e-4 : 0;
    calls.back().rounds[1] += i == 1 ? 8e-4 : 0;
  }
  calls.push_back(call("long", 1, 2e-2, {2e-2, 2.5e-2}));
  return {calls};
}

TEST(KeptSpeed, is_what_calls_of_a_length_keep_on_average) {
  const cluster::EfficiencyCurve kept = kept_speed(calls_by_length(interrupted()));
  ASSERT_EQ(kept.points.size(), 2u);
  EXPECT_NEAR(kept.at(1e-4), 0.5, 1e-9) << "8 calls of 0.1 ms took 1.6 ms";
  EXPECT_NEAR(kept.at(2e-2), 2e-2 / 2.25e-2, 1e-9);
}

TEST(KeptSpeed, is_at_most_what_undisturbed_calls_have) {
  const cluster::EfficiencyCurve kept = kept_speed(calls_by_length({{call("a", 1, 1e-3, {0.5e-3})}}));
  EXPECT_EQ(kept.at(1e-3), 1);
}

TEST(CallsByLength, take_any_length) {
  const std::vector<CallsOfLength> found = calls_by_length({{call("a", 1, 1e-9, {1e-9}), call("b", 1, 100, {100})}});
  EXPECT_EQ(found.front().quiet, 1e-9);
  EXPECT_EQ(found.back().taken, 100);
}

}  // namespace
}  // namespace switchyard::train
