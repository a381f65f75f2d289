#include "cluster/operator_table.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace switchyard::cluster {
namespace {

// Products at 1 GFLOP/s at any shape, measured where rows, columns and work double.
OperatorTable steady() {
  OperatorTable table;
  for (const double rows : {64.0, 256.0, 1024.0})
    for (const double columns : {64.0, 256.0})
      for (const double work : {1e4, 1e5}) table.calls.push_back({rows, columns, work, rows * work / 1e9});
  return table;
}

TEST(OperatorTable, gives_a_measured_call_its_own_time) {
  OperatorTable table = steady();
  table.calls[5].seconds *= 3;
  const MeasuredCall& call = table.calls[5];
  EXPECT_NEAR(table.seconds(call.rows, call.columns, call.work), call.seconds, 1e-12 * call.seconds);
}

TEST(OperatorTable, keeps_a_rate_that_all_calls_have_also_beyond_them) {
  for (const double rows : {10.0, 100.0, 5000.0})
    for (const double columns : {30.0, 128.0, 2000.0})
      EXPECT_NEAR(steady().seconds(rows, columns, 3e4) / (rows * 3e4 / 1e9), 1, 1e-9);
}

TEST(OperatorTable, lies_between_neighbours_and_nearer_to_the_nearer_one) {
  OperatorTable table;
  table.calls = {{100, 64, 1000, 100 * 1000 / 1e9}, {10000, 64, 1000, 10000 * 1000 / 4e9}};
  const auto rate = [&](double rows) { return rows * 1000 / table.seconds(rows, 64, 1000); };
  EXPECT_NEAR(rate(1000), std::sqrt(1e9 * 4e9), 1e6) << "half way in the logarithms";
  EXPECT_LT(rate(300), rate(1000));
  EXPECT_LT(rate(1000), rate(3000));
}

TEST(OperatorTable, of_nothing_takes_no_time) { EXPECT_EQ(steady().seconds(0, 64, 1e4), 0); }

TEST(OperatorTable, equal_calls_share_their_times_in_the_middle) {
  OperatorTable table;
  table.calls = {{64, 64, 100, 1e-5}, {64, 64, 100, 4e-5}, {640, 640, 1000, 1}};
  EXPECT_NEAR(table.seconds(64, 64, 100), 2e-5, 1e-10);
}

TEST(OperatorTable, attention_grows_with_its_columns) {
  OperatorTable table;
  table.attention = {{64, 64e-9, 64e-10, 0}, {256, 256e-9, 2 * 256e-10, 0}};
  const MeasuredAttention own = table.attention_of(256), between = table.attention_of(128),
                          beyond = table.attention_of(1024);
  EXPECT_NEAR(own.per_pair, 2 * 256e-10, 1e-15);
  EXPECT_NEAR(between.per_row, 128e-9, 1e-15);
  EXPECT_NEAR(between.per_pair, 1.5 * 128e-10, 1e-15) << "as far from one as from the other";
  EXPECT_GT(beyond.per_pair, 1.5 * 1024e-10);
}

}  // namespace
}  // namespace switchyard::cluster
