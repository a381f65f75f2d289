#include "train/rank.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "../comm/rank_threads.hpp"
#include "../runtime/tiny_job.hpp"
#include "../standin/test_device.hpp"
#include "base/errors.hpp"
#include "compiler/order.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::train {
namespace {

// strict: sequence numbers on a channel must ascend, whatever the ranks agree on and in which order.
std::vector<std::string> agree(int ranks, const std::function<void(Rank&, int)>& body) {
  return comm::run_ranks(ranks, {.strict = true}, [&](comm::Fabric& fabric) {
    const compiler::Plans plans = runtime::tiny_plans({fmt::format("{},1,1", ranks)}, ranks);
    Rank rank(plans, runtime::tiny_llama(), fabric, {});
    body(rank, fabric.rank());
  });
}

TEST(Rank, RanksThatHoldTheSameNumberAgree) {
  const auto ends = agree(3, [](Rank& rank, int) {
    for (const std::uint64_t number : {17, 3}) rank.agree_on(number, "job file");
  });
  EXPECT_EQ(ends, std::vector<std::string>(3));
}

TEST(Rank, RanksThatDifferAreNamedOnEveryRank) {
  const auto ends =
      agree(4, [](Rank& rank, int number) { rank.agree_on(number == 1 || number == 3 ? 18 : 17, "job file"); });
  for (const std::string& end : ends)
    EXPECT_EQ(end,
              "ranks [1, 3] have another job file than rank 0. Start all ranks with the same job file and program.");
}

TEST(Rank, AStepWithoutLearningLeavesTheLossAndOneWithLearningLowersIt) {
  const runtime::Documents documents = runtime::tiny_documents(4, 5);
  const auto ends = comm::run_ranks(2, {}, [&](comm::Fabric& fabric) {
    const compiler::Plans plans = runtime::tiny_plans({"1,2,1"}, 2);
    Rank rank(plans, runtime::tiny_llama(), fabric, {});
    rank.store().home.initialize(runtime::tiny_values(plans.graph()));
    const batch::StepPlan plan = runtime::tiny_batch(0, documents, plans, {runtime::kLongest});
    std::vector<double> losses;
    for (const double lr : {0.0, 1e-3, 0.0})
      losses.push_back(rank.step(plan, documents,
                                 [&](double norm) {
                                   EXPECT_GT(norm, 0);
                                   return runtime::UpdateSettings{{lr, 0.9, 0.95, 1e-8, 0.1, 1}, 1};
                                 })
                           .loss);
    EXPECT_EQ(losses[0], losses[1]);
    EXPECT_LT(losses[2], losses[1] - 1e-4);
    EXPECT_EQ(rank.program().of_rank.size(), 2u);
  });
  EXPECT_EQ(ends, std::vector<std::string>(2));
}

// What is predicted fits; what a kernel took beyond it would not.
TEST(Rank, ItsBudgetHoldsOnADevice) {
  const at::Device device = standin::test_device();
  if (device.is_cpu()) GTEST_SKIP() << "of devices";
  const runtime::Documents documents = runtime::tiny_documents(4, 5);
  const auto ends = comm::run_ranks(1, {}, [&](comm::Fabric& fabric) {
    const compiler::Plans plans = runtime::tiny_plans({"1,1,1"}, 1);
    const batch::StepPlan plan = runtime::tiny_batch(0, documents, plans, {runtime::kLongest});
    RankSettings settings{.device = device};
    {
      Rank unlimited(plans, runtime::tiny_llama(), fabric, settings);
      unlimited.assemble(plan);
      settings.memory_budget = unlimited.bound().total;
    }
    Rank rank(plans, runtime::tiny_llama(), fabric, settings);
    rank.store().home.initialize(runtime::tiny_values(plans.graph()));
    const auto update = [](double) { return runtime::UpdateSettings{{1e-3, 0.9, 0.95, 1e-8, 0.1, 1}, 1}; };
    EXPECT_GT(rank.step(plan, documents, update).loss, 0);
    EXPECT_THROW(runtime::zeros({settings.memory_budget + (i64{1} << 28)}, DType::f32, device), c10::OutOfMemoryError);
  });
  EXPECT_EQ(ends, std::vector<std::string>(1));
  EXPECT_NO_THROW(runtime::zeros({1 << 22}, DType::f32, device)) << "when the rank is gone";
}

TEST(Rank, ATracedStepHasTheSpansOfItsTasksAndAnotherStepKeepsNothing) {
  const runtime::Documents documents = runtime::tiny_documents(8, 5);
  const auto ends = comm::run_ranks(2, {}, [&](comm::Fabric& fabric) {
    const compiler::Plans plans = runtime::tiny_plans({"1,2,1", "1,1,2"}, 2);
    Rank rank(plans, runtime::tiny_llama(), fabric, {});
    rank.store().home.initialize(runtime::tiny_values(plans.graph()));
    const batch::StepPlan plan = runtime::tiny_batch(0, documents, plans, {runtime::kLongest, runtime::kLongest / 2});
    const auto update = [](double) { return runtime::UpdateSettings{{1e-3, 0.9, 0.95, 1e-8, 0.1, 1}, 1}; };
    EXPECT_TRUE(rank.step(plan, documents, update).spans.empty());
    const runtime::StepResult result = rank.step(plan, documents, update, {.spans = true});
    std::map<compiler::QueueKey, double> busy_until;
    std::set<int> tasks;
    double computing = 0, norm = 0;  // norm: with its wait for the other rank
    int collectives = 0;
    for (const runtime::TaskSpan& span : result.spans) {
      const ir::Task& task = rank.program().tasks[static_cast<size_t>(span.task)];
      double& until = busy_until[compiler::queue_of(task, fabric.rank())];
      EXPECT_GE(span.begin, until);
      EXPECT_LT(span.begin, span.end);
      EXPECT_LE(span.end, result.times.total);
      until = span.end;
      tasks.insert(span.task);
      if (task.queue == ir::Queue::compute)
        (task.kind() == ir::TaskKind::norm ? norm : computing) += span.end - span.begin;
      collectives += task.kind() == ir::TaskKind::run && span.communication;
    }
    for (const int id : rank.program().of_rank[static_cast<size_t>(fabric.rank())])
      EXPECT_TRUE(tasks.contains(id)) << id;
    EXPECT_GT(collectives, 0);
    const double most_beside = 0.05 * result.times.total;
    EXPECT_GE(result.times.compute, computing - most_beside);
    EXPECT_LE(result.times.compute, computing + norm + most_beside);
  });
  EXPECT_EQ(ends, std::vector<std::string>(2));
}

TEST(Rank, PrefetchesAsMuchAsTheBudgetAllowsAndRefusesWhatDoesNotFit) {
  const runtime::Documents documents = runtime::tiny_documents(8, 5);
  const auto ends = comm::run_ranks(2, {}, [&](comm::Fabric& fabric) {
    const compiler::Plans plans = runtime::tiny_plans({"1,2,1", "2,1,1"}, 2);
    const batch::StepPlan plan = runtime::tiny_batch(0, documents, plans, {runtime::kLongest, runtime::kLongest / 2});
    const auto program = [&](int units) {
      return compiler::assemble(plan, plans, {.prefetch_units = units, .train = true});
    };
    const i64 most = compiler::rank_with_highest_peak(program(compiler::kAllUnits), plan, plans).second.total;
    const i64 least = compiler::rank_with_highest_peak(program(0), plan, plans).second.total;
    ASSERT_LT(least, most);
    const auto step = [&](i64 budget) {
      RankSettings settings;
      settings.memory_budget = budget;
      Rank rank(plans, runtime::tiny_llama(), fabric, settings);
      rank.store().home.initialize(runtime::tiny_values(plans.graph()));
      rank.step(plan, documents, [](double) { return runtime::UpdateSettings{{1e-3, 0.9, 0.95, 1e-8, 0.1, 1}, 1}; });
      return rank.program().fingerprint();
    };
    EXPECT_EQ(step(most), program(compiler::kAllUnits).fingerprint());
    EXPECT_EQ(step(0), program(compiler::kAllUnits).fingerprint());
    EXPECT_NE(step(most - 1), program(compiler::kAllUnits).fingerprint());
    EXPECT_EQ(step(least), program(0).fingerprint());
    try {
      step(least - 64);
      FAIL() << "no error";
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("64 B more than the memory budget. Most of it: "));
    }
  });
  EXPECT_EQ(ends, std::vector<std::string>(2));
}

TEST(Rank, WhatWasAssembledAheadIsWhatWouldBeAssembledThen) {
  const std::vector<runtime::Documents> documents = {runtime::tiny_documents(8, 5), runtime::tiny_documents(9, 6)};
  const auto ends = comm::run_ranks(2, {}, [&](comm::Fabric& fabric) {
    const compiler::Plans plans = runtime::tiny_plans({"1,2,1", "2,1,1"}, 2);
    std::vector<batch::StepPlan> steps;
    for (size_t s = 0; s < documents.size(); ++s)
      steps.push_back(
          runtime::tiny_batch(static_cast<i64>(s), documents[s], plans, {runtime::kLongest, runtime::kLongest / 2}));
    const auto update = [](double) { return runtime::UpdateSettings{{1e-3, 0.9, 0.95, 1e-8, 0.1, 1}, 1}; };
    struct Assembled {
      std::uint64_t program;
      i64 predicted, bound;
      bool operator==(const Assembled&) const = default;
    };
    // foresees: the plan that is assembled ahead; evaluates: whether another program comes between.
    const auto second_step = [&](i64 budget, const batch::StepPlan* foresees, bool evaluates) {
      RankSettings settings;
      settings.memory_budget = budget;
      Rank rank(plans, runtime::tiny_llama(), fabric, settings);
      rank.store().home.initialize(runtime::tiny_values(plans.graph()));
      rank.assemble(steps[0]);
      if (foresees) rank.assemble_ahead(*foresees);
      rank.run(steps[0], documents[0], update);
      const compiler::Plans others = runtime::tiny_plans({"1,2,1", "2,1,1"}, 2);
      if (evaluates) rank.assemble(steps[0], others);
      rank.assemble(steps[1]);
      return Assembled{rank.program().fingerprint(), rank.predicted().total, rank.bound().total};
    };
    const Assembled expected = second_step(0, nullptr, false);
    EXPECT_EQ(second_step(0, &steps[1], false), expected);
    EXPECT_EQ(second_step(0, &steps[1], true), expected);
    EXPECT_EQ(second_step(0, &steps[0], false), expected) << "of another step";
    const ir::Program all = compiler::assemble(steps[1], plans, {.train = true});
    const i64 tight = compiler::rank_with_highest_peak(all, steps[1], plans).second.total - 1;
    const Assembled less = second_step(tight, nullptr, false);
    EXPECT_EQ(second_step(tight, &steps[1], false), less) << "with fewer units";
  });
  EXPECT_EQ(ends, std::vector<std::string>(2));
}

}  // namespace
}  // namespace switchyard::train
