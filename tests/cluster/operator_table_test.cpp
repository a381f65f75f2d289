#include "cluster/operator_table.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/errors.hpp"

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
  table.attention = {{64, 64, 64e-9, 64e-10, 0}, {256, 64, 256e-9, 2 * 256e-10, 0}};
  const MeasuredAttention own = table.attention_of(256, 64), between = table.attention_of(128, 64),
                          beyond = table.attention_of(1024, 64);
  EXPECT_NEAR(own.per_pair, 2 * 256e-10, 1e-15);
  EXPECT_NEAR(between.per_row, 128e-9, 1e-15);
  EXPECT_NEAR(between.per_pair, 1.5 * 128e-10, 1e-15) << "as far from one as from the other";
  EXPECT_GT(beyond.per_pair, 1.5 * 1024e-10);
}

// A pair takes 1e-10 s a feature and 5e-9 s a head, a row 1e-9 s a feature.
TEST(OperatorTable, attention_of_more_heads_takes_longer) {
  const auto attention = [](double columns, double head_dim) {
    return MeasuredAttention{.columns = columns,
                             .head_dim = head_dim,
                             .per_row = columns * 1e-9,
                             .per_pair = columns * 1e-10 + columns / head_dim * 5e-9};
  };
  OperatorTable table;
  table.attention = {attention(64, 64), attention(256, 64), attention(192, 24)};
  for (const double head_dim : {64, 32, 24, 16, 128})
    for (const double columns : {64, 192, 1024}) {
      const MeasuredAttention found = table.attention_of(columns, head_dim), real = attention(columns, head_dim);
      EXPECT_NEAR(found.per_pair, real.per_pair, 1e-14) << columns << " " << head_dim;
      EXPECT_NEAR(found.per_row, real.per_row, 1e-14) << columns << " " << head_dim;
    }
  table.attention.pop_back();
  EXPECT_EQ(table.attention_of(64, 16).per_pair, attention(64, 64).per_pair) << "what heads take is not known";
  EXPECT_THROW(table.attention_of(64, 0), InternalError);
}

}  // namespace
}  // namespace switchyard::cluster
