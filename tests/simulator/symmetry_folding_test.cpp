#include "simulator/symmetry_folding.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <tuple>

namespace switchyard::simulator {
namespace {

struct Task {
  std::uint64_t work = 0;
  std::vector<int> lists;
  std::vector<std::pair<int, int>> waits;  // task, why
};
struct Case {
  std::vector<int> kinds;
  std::vector<std::unique_ptr<std::vector<Claim>>> lists;
  std::vector<Task> tasks;

  int list(std::vector<Claim> claims) {
    lists.push_back(std::make_unique<std::vector<Claim>>(std::move(claims)));
    return static_cast<int>(lists.size()) - 1;
  }
  SymmetryFolding fold() const {
    TaskGraph graph(kinds);
    for (const auto& claims : lists) graph.list(claims.get());
    for (const Task& id : tasks) {
      graph.add_task(id.work, id.lists);
      for (const auto& [before, why] : id.waits) graph.wait(before, why);
    }
    return SymmetryFolding(graph);
  }
  int classes() const {
    const SymmetryFolding fold = this->fold();
    int count = 0;
    for (int id = 0; id < static_cast<int>(tasks.size()); ++id) count += fold.stands(id);
    return count;
  }
};

// Replicas with one device each and a port for every two of them; tasks run one after the other.
Case replicas(int count, int tasks) {
  Case c;
  c.kinds.assign(static_cast<size_t>(count), 0);
  c.kinds.resize(static_cast<size_t>(count + count / 2), 1);
  for (int replica = 0; replica < count; ++replica) c.list({{replica, 1}, {count + replica / 2, 0.6}});
  for (int id = 0; id < tasks; ++id)
    for (int replica = 0; replica < count; ++replica)
      c.tasks.push_back({static_cast<std::uint64_t>(id),
                         {replica},
                         id == 0 ? std::vector<std::pair<int, int>>{}
                                 : std::vector<std::pair<int, int>>{{(id - 1) * count + replica, 0}}});
  return c;
}

TEST(SymmetryFolding, has_a_class_for_tasks_of_all_replicas_that_do_the_same) {
  const Case c = replicas(6, 5);
  EXPECT_EQ(c.classes(), 5);
  const SymmetryFolding fold = c.fold();
  for (int id = 0; id < 30; ++id) EXPECT_EQ(fold.of(id), id / 6 * 6);
  EXPECT_EQ(fold.resources(), 2);
  EXPECT_EQ(fold.size(0), 6);
}

TEST(SymmetryFolding, distinguishes_a_replica_with_other_work) {
  Case c = replicas(6, 5);
  c.tasks[2 * 6 + 5].work = 99;
  const SymmetryFolding fold = c.fold();
  EXPECT_FALSE(fold.stands(1));
  EXPECT_NE(fold.of(0), fold.of(5));  // its later waits don't matter, but its device is used differently
  EXPECT_NE(fold.of(4), fold.of(0));  // it shares a port with replica 5
  EXPECT_EQ(fold.of(3 * 6 + 3), 3 * 6);
  EXPECT_NE(fold.resource(5), fold.resource(4));
  EXPECT_EQ(fold.resource(0), fold.resource(3));
  EXPECT_NE(fold.resource(6), fold.resource(8));  // ports
}

TEST(SymmetryFolding, takes_of_a_class_what_all_tasks_take_of_each_of_its_resources) {
  const Case c = replicas(6, 5);
  const SymmetryFolding fold = c.fold();
  const std::vector<Claim> claims = fold.claims(6, *c.lists[0]);
  ASSERT_EQ(claims.size(), 2u);
  EXPECT_EQ(claims[0].share, 1);    // each device is one replica's
  EXPECT_EQ(claims[1].share, 1.2);  // two replicas at each port
}

TEST(SymmetryFolding, makes_no_classes_where_few_tasks_are_equivalent) {
  Case c = replicas(6, 5);
  for (size_t id = 0; id < c.tasks.size(); ++id) c.tasks[id].work = id;
  const SymmetryFolding fold = c.fold();
  for (int id = 0; id < 30; ++id) EXPECT_TRUE(fold.stands(id));
  EXPECT_EQ(fold.resources(), 9);
  EXPECT_EQ(fold.claims(6, *c.lists[0])[1].share, 0.6);
}

// Tasks of a class don't differ in what they depend on, nor resources of a class in who uses them.
TEST(SymmetryFolding, is_stable_on_random_graphs) {
  std::mt19937 random(5);
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  int folded = 0;
  for (int round = 0; round < 300; ++round) {
    Case c;
    const int copies = 2 + draw(4), resources = 1 + draw(3), lists = 1 + draw(3), tasks = 2 + draw(8);
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
    for (int id = 0; id < tasks; ++id) {
      const std::uint64_t work = static_cast<std::uint64_t>(draw(2));
      const int list = draw(lists), before = id == 0 ? -1 : draw(id), why = draw(2), odd = draw(6);
      for (int copy = 0; copy < copies; ++copy) {
        Task one{work, {copy * lists + list}, {}};
        if (odd == 0 && copy == 0) one.work = 7;
        if (before >= 0) one.waits.emplace_back(before * copies + copy, why);
        c.tasks.push_back(one);
      }
    }
    const SymmetryFolding fold = c.fold();
    using Needs = std::tuple<std::uint64_t, std::vector<std::pair<int, int>>, std::vector<std::pair<int, double>>>;
    std::map<int, Needs> of_task;
    std::map<int, std::vector<std::pair<int, double>>> takers;  // takers of a resource: class of the task, share
    for (int id = 0; id < static_cast<int>(c.tasks.size()); ++id) {
      const Task& one = c.tasks[static_cast<size_t>(id)];
      Needs needs{one.work, {}, {}};
      for (const auto& [before, why] : one.waits) std::get<1>(needs).emplace_back(fold.of(before), why);
      for (const Claim& claim : *c.lists[static_cast<size_t>(one.lists[0])]) {
        std::get<2>(needs).emplace_back(fold.resource(claim.resource), claim.share);
        takers[claim.resource].emplace_back(fold.of(id), claim.share);
      }
      std::ranges::sort(std::get<1>(needs));
      std::ranges::sort(std::get<2>(needs));
      const auto [it, fresh] = of_task.try_emplace(fold.of(id), needs);
      EXPECT_EQ(it->second, needs) << "round " << round << " task " << id;
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
