#include "simulator/fold.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <tuple>

namespace switchyard::simulator {
namespace {

struct Row {
  std::uint64_t work = 0;
  std::vector<int> lists;
  std::vector<std::pair<int, int>> waits;  // row, why
};
struct Case {
  std::vector<int> kinds;
  std::vector<std::unique_ptr<std::vector<Claim>>> lists;
  std::vector<Row> rows;

  int list(std::vector<Claim> claims) {
    lists.push_back(std::make_unique<std::vector<Claim>>(std::move(claims)));
    return static_cast<int>(lists.size()) - 1;
  }
  Fold fold() const {
    RowGraph graph(kinds);
    for (const auto& claims : lists) graph.list(claims.get());
    for (const Row& row : rows) {
      graph.add_row(row.work, row.lists);
      for (const auto& [before, why] : row.waits) graph.wait(before, why);
    }
    return Fold(graph);
  }
  int classes() const {
    const Fold fold = this->fold();
    int count = 0;
    for (int row = 0; row < static_cast<int>(rows.size()); ++row) count += fold.stands(row);
    return count;
  }
};

// Lanes with a device each and a port for every two of them; rows one after the other.
Case lanes(int count, int rows) {
  Case c;
  c.kinds.assign(static_cast<size_t>(count), 0);
  c.kinds.resize(static_cast<size_t>(count + count / 2), 1);
  for (int lane = 0; lane < count; ++lane) c.list({{lane, 1}, {count + lane / 2, 0.6}});
  for (int row = 0; row < rows; ++row)
    for (int lane = 0; lane < count; ++lane)
      c.rows.push_back({static_cast<std::uint64_t>(row), {lane}, row == 0 ? std::vector<std::pair<int, int>>{} : std::vector<std::pair<int, int>>{{(row - 1) * count + lane, 0}}});
  return c;
}

TEST(Fold, has_a_class_for_rows_of_all_lanes_that_do_the_same) {
  const Case c = lanes(6, 5);
  EXPECT_EQ(c.classes(), 5);
  const Fold fold = c.fold();
  for (int row = 0; row < 30; ++row) EXPECT_EQ(fold.of(row), row / 6 * 6);
  EXPECT_EQ(fold.resources(), 2);
  EXPECT_EQ(fold.size(0), 6);
}

TEST(Fold, tells_a_lane_that_works_otherwise_from_the_others) {
  Case c = lanes(6, 5);
  c.rows[2 * 6 + 5].work = 99;
  const Fold fold = c.fold();
  EXPECT_FALSE(fold.stands(1));
  EXPECT_NE(fold.of(0), fold.of(5));                              // what it waits for later doesn't matter, but its device is taken otherwise
  EXPECT_NE(fold.of(4), fold.of(0));                              // it shares a port with lane 5
  EXPECT_EQ(fold.of(3 * 6 + 3), 3 * 6);
  EXPECT_NE(fold.resource(5), fold.resource(4));
  EXPECT_EQ(fold.resource(0), fold.resource(3));
  EXPECT_NE(fold.resource(6), fold.resource(8));                  // ports
}

TEST(Fold, takes_of_a_class_what_all_rows_take_of_each_of_its_resources) {
  const Case c = lanes(6, 5);
  const Fold fold = c.fold();
  const std::vector<Claim> claims = fold.claims(6, *c.lists[0]);
  ASSERT_EQ(claims.size(), 2u);
  EXPECT_EQ(claims[0].share, 1);    // each device is one lane's
  EXPECT_EQ(claims[1].share, 1.2);  // two lanes at each port
}

TEST(Fold, leaves_all_as_they_are_where_little_is_alike) {
  Case c = lanes(6, 5);
  for (size_t row = 0; row < c.rows.size(); ++row) c.rows[row].work = row;
  const Fold fold = c.fold();
  for (int row = 0; row < 30; ++row) EXPECT_TRUE(fold.stands(row));
  EXPECT_EQ(fold.resources(), 9);
  EXPECT_EQ(fold.claims(6, *c.lists[0])[1].share, 0.6);
}

// Rows of a class can't be told apart by what they depend on, nor resources of a class by who takes them.
TEST(Fold, is_stable_on_random_graphs) {
  std::mt19937 random(5);
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  int folded = 0;
  for (int round = 0; round < 300; ++round) {
    Case c;
    const int copies = 2 + draw(4), resources = 1 + draw(3), lists = 1 + draw(3), rows = 2 + draw(8);
    c.kinds.assign(static_cast<size_t>(copies * resources + 1), 0);
    c.kinds.back() = 1;  // all copies have it
    for (int copy = 0; copy < copies; ++copy) {
      std::mt19937 same(static_cast<unsigned>(round));
      for (int list = 0; list < lists; ++list) {
        std::vector<Claim> claims;
        for (int r = 0; r < resources; ++r)
          if (same() % 2) claims.push_back({copy * resources + r, 0.5 * static_cast<double>(1 + same() % 2)});
        if (same() % 3 == 0) claims.push_back({copies * resources, 0.25});
        c.list(claims);
      }
    }
    for (int row = 0; row < rows; ++row) {
      const std::uint64_t work = static_cast<std::uint64_t>(draw(2));
      const int list = draw(lists), before = row == 0 ? -1 : draw(row), why = draw(2), odd = draw(6);
      for (int copy = 0; copy < copies; ++copy) {
        Row one{work, {copy * lists + list}, {}};
        if (odd == 0 && copy == 0) one.work = 7;
        if (before >= 0) one.waits.emplace_back(before * copies + copy, why);
        c.rows.push_back(one);
      }
    }
    const Fold fold = c.fold();
    using Needs = std::tuple<std::uint64_t, std::vector<std::pair<int, int>>, std::vector<std::pair<int, double>>>;
    std::map<int, Needs> of_row;
    std::map<int, std::vector<std::pair<int, double>>> takers;  // of a resource: class of the row, share
    for (int row = 0; row < static_cast<int>(c.rows.size()); ++row) {
      const Row& one = c.rows[static_cast<size_t>(row)];
      Needs needs{one.work, {}, {}};
      for (const auto& [before, why] : one.waits) std::get<1>(needs).emplace_back(fold.of(before), why);
      for (const Claim& claim : *c.lists[static_cast<size_t>(one.lists[0])]) {
        std::get<2>(needs).emplace_back(fold.resource(claim.resource), claim.share);
        takers[claim.resource].emplace_back(fold.of(row), claim.share);
      }
      std::ranges::sort(std::get<1>(needs));
      std::ranges::sort(std::get<2>(needs));
      const auto [it, fresh] = of_row.try_emplace(fold.of(row), needs);
      EXPECT_EQ(it->second, needs) << "round " << round << " row " << row;
      folded += !fresh;
    }
    std::map<int, std::vector<std::pair<int, double>>> of_resource;
    for (int resource = 0; resource < static_cast<int>(c.kinds.size()); ++resource) {
      std::ranges::sort(takers[resource]);
      const auto [it, fresh] = of_resource.try_emplace(fold.resource(resource), takers[resource]);
      EXPECT_EQ(it->second, takers[resource]) << "round " << round << " resource " << resource;
    }
  }
  EXPECT_GT(folded, 1000);
}

}  // namespace
}  // namespace switchyard::simulator
