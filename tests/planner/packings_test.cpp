#include "planner/packings.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/job_plans.hpp"
#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

constexpr unsigned kProblems = cases(20u, 2u);

struct Case {
  explicit Case(unsigned seed)
      : problem(seed),
        workload(workload_of(problem.documents(), 4096, 512)),
        packings(problem.units, workload, false) {}
  Range all() const { return {0, static_cast<int>(workload.bounds.size())}; }
  // What the batch planner makes of a step's documents.
  batch::PhasePlan planned(const Placement& p, i64 capacity, Range range, const std::vector<i64>& lengths) const {
    batch::BucketSpec spec{.max_length = workload.longest(range),
                           .replicas = p.pipelines(),
                           .micro_batch_tokens = capacity,
                           .multiple = p.code_ranks()};
    const auto pipelines = static_cast<size_t>(p.pipelines());
    spec.pipelines.assign(pipelines, {.speed = 1, .stages = p.pp});
    if (p.ring() > 1) spec.rings.assign(pipelines, packings.ring_loads().ring(p));
    return batch::plan_batch(0, lengths, std::vector{spec}, compiler::work_model(problem.units.model())).phases.front();
  }
  SmallProblem problem;
  Workload workload;
  Packings packings;
};

TEST(Packings, are_those_of_the_batch_planner) {
  int rings = 0, several = 0;
  for (unsigned seed = 1; seed <= kProblems; ++seed) {
    const Case one(seed);
    for (const Shape& shape : one.problem.shapes) {
      const Placement& p = shape.placement;
      const i64 capacity = one.workload.longest(one.all()) * (1 + seed % 2);
      const std::vector<Replicas>& steps = one.packings.assigned(p, 1, capacity, one.all());
      const std::pair<int, int> numbers = one.packings.micro_batches(p, capacity, one.all());
      int least = std::numeric_limits<int>::max(), most = 0;
      for (size_t step = 0; step < steps.size(); ++step) {
        const batch::PhasePlan plan = one.planned(p, capacity, one.all(), one.workload.steps[step]);
        size_t pipelines = 0;
        for (const Replica& replica : steps[step])
          for (int number = replica.first; number < replica.first + replica.count; ++number, ++pipelines) {
            const std::vector<batch::MicroBatch>& expected = plan.replica[static_cast<size_t>(number)];
            ASSERT_EQ(replica.micro_batches.size(), expected.size()) << "seed " << seed << ", " << to_string(shape);
            for (size_t i = 0; i < expected.size(); ++i) {
              const PackedSequence& found = replica.micro_batches[i];
              if (p.ring() == 1) {
                EXPECT_EQ(found.T, batch::tokens(expected[i]));
                EXPECT_EQ(found.attention_pairs, batch::attention_pairs(expected[i]));
              } else {
                EXPECT_EQ(found, one.packings.ring_loads().assigned(expected[i], p));
              }
            }
            least = std::min(least, static_cast<int>(expected.size()));
            most = std::max(most, static_cast<int>(expected.size()));
          }
        EXPECT_EQ(pipelines,
                  static_cast<size_t>(std::ranges::count_if(plan.replica, [](const auto& of) { return !of.empty(); })));
        several += steps[step].size() > 1;
      }
      EXPECT_EQ(numbers, std::pair(least, most)) << "seed " << seed;
      rings += p.ring() > 1;
    }
  }
  if (kProblems < 10) return;
  EXPECT_GT(rings, 100);
  EXPECT_GT(several, 100);
}

TEST(Packings, pipelines_with_equal_documents_are_assigned_once_and_those_asked_for_alone) {
  const SmallProblem problem(1);
  const Workload workload{{64}, {std::vector<i64>(8, 64)}};
  const Packings packings(problem.units, workload, false);
  const Placement four{.dp = 4};
  std::vector<Packings::Apart>& apart = packings.apart(four, 128, {0, 1});
  ASSERT_EQ(apart.size(), 1u);
  EXPECT_EQ(apart.front().of, std::vector<size_t>(4, 0));
  ASSERT_EQ(apart.front().unlike.size(), 1u);
  EXPECT_EQ(apart.front().unlike.front().tokens, 128);
  EXPECT_TRUE(apart.front().unlike.front().micro_batches.empty());
  EXPECT_EQ(packings.micro_batches(apart.front(), 0, 0, four, 128, {0, 1}).size(), 1u);
  const std::vector<Replicas>& all = packings.assigned(four, 1, 128, {0, 1});
  ASSERT_EQ(all.front().size(), 1u);
  EXPECT_EQ(all.front().front().count, 4);
}

TEST(Packings, one_stands_for_those_that_wait_for_one_another) {
  const SmallProblem problem(1);
  const Workload workload{{64}, {{64, 32, 16}}};
  const Packings packings(problem.units, workload, false);
  const Placement two{.dp = 2};
  const std::vector<Replicas>& tied = packings.assigned(two, 2, 64, {0, 1});
  ASSERT_EQ(tied.front().size(), 1u);
  const Replica& both = tied.front().front();
  EXPECT_EQ(both.count, 2);
  EXPECT_EQ(both.micro_batches.front().T, 64) << "the longer of their first micro-batches";
}

TEST(Packings, heaviest_pipelines_in_even_shares_have_most_tokens_and_pairs) {
  for (unsigned seed = 1; seed <= kProblems; ++seed) {
    const Case one(seed);
    for (const Shape& shape : one.problem.shapes) {
      const Placement& p = shape.placement;
      if (p.tied() > 1) continue;
      const i64 capacity = one.workload.longest(one.all());
      const auto most = [](const Replicas& of, auto figure) {
        double most = 0;
        for (const Replica& replica : of) {
          double sum = 0;
          for (const PackedSequence& micro_batch : replica.micro_batches) sum += figure(micro_batch);
          most = std::max(most, sum);
        }
        return most;
      };
      const std::vector<Replicas>& even = one.packings.even(p, capacity, one.all());
      for (size_t step = 0; step < even.size(); ++step) {
        Replicas all;
        for (const std::vector<batch::MicroBatch>& replica :
             one.planned(p, capacity, one.all(), one.workload.steps[step]).replica) {
          all.emplace_back();
          for (const batch::MicroBatch& micro_batch : replica)
            all.back().micro_batches.push_back(RingLoads::even(micro_batch, p.ring()));
        }
        const auto pairs = [](const PackedSequence& of) { return of.attention_pairs; };
        EXPECT_DOUBLE_EQ(most(even[step], pairs), most(all, pairs)) << "seed " << seed << ", " << to_string(shape);
        EXPECT_LE(even[step].size(), 2u);
      }
    }
  }
}

}  // namespace
}  // namespace switchyard::planner
