#include "runtime/executor.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <limits>

#include "compiler/memory.hpp"
#include "kernels/memory.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<Documents> five_batches() {
  std::vector<Documents> batches;
  for (unsigned seed = 1; seed <= 5; ++seed) batches.push_back(tiny_documents(9, seed));
  return batches;
}

const TinyRun& on_one_rank() {
  static const TinyRun kRun = run_tiny(tiny_plans({"1,1,1"}, 1), five_batches());
  return kRun;
}

double largest_gap(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double largest = 0;
  for (size_t p = 0; p < a.size(); ++p) largest = std::max(largest, gap(a[p], b[p]));
  return largest;
}

void expect_like_one_rank(const TinyRun& run) {
  ASSERT_THAT(run.ends, Each(IsEmpty()));
  const TinyRun& expected = on_one_rank();
  ASSERT_EQ(run.steps.size(), expected.steps.size());
  for (size_t s = 0; s < run.steps.size(); ++s) {
    EXPECT_NEAR(run.steps[s].loss, expected.steps[s].loss, 1e-10 * expected.steps[s].loss);
    EXPECT_NEAR(run.steps[s].norm, expected.steps[s].norm, 1e-10 * expected.steps[s].norm);
  }
  EXPECT_LT(largest_gap(run.master, expected.master), 1e-10);
}

struct Mix {
  std::vector<std::string> specs;
  std::vector<i64> bounds;
  int ranks = 4, home = 0;
};

class SwitchingInAStep : public testing::TestWithParam<Mix> {};

TEST_P(SwitchingInAStep, EqualsOneRankOverFiveSteps) {
  const Mix& mix = GetParam();
  expect_like_one_rank(run_tiny(tiny_plans(mix.specs, mix.ranks, mix.home), five_batches(), {.bounds = mix.bounds}));
}

INSTANTIATE_TEST_SUITE_P(Mixes, SwitchingInAStep,
                         testing::Values(Mix{{"1,2,2", "4,1,1"}, {24, 12}}, Mix{{"1,4,1", "2,1,2"}, {24, 10}, 4, 1},
                                         Mix{{"1,2,1", "1,1,2", "2,1,1"}, {24, 16, 8}, 2},
                                         Mix{{"2,2,1", "1,1,1"}, {24, 6}}, Mix{{"1,1,2", "3,1,1"}, {24, 14}, 3, 1},
                                         Mix{{"1,2,2", "4,1,1", "2,2,1"}, {24, 18, 9}, 4, 2}),
                         [](const auto& mix) {
                           std::string name;
                           for (const std::string& spec : mix.param.specs) {
                             if (!name.empty()) name += "_then_";
                             for (const char c : spec)
                               if (c != ',') name += c;
                           }
                           return name;
                         });

class StateOnEveryReplica : public testing::TestWithParam<Mix> {};

TEST_P(StateOnEveryReplica, EqualsOneRankAndItsCopiesAreEqualBits) {
  const Mix& mix = GetParam();
  const compiler::Plans plans = tiny_plans(mix.specs, mix.ranks, mix.home, kFp64, 2, 0);
  i64 broadcast = 0;
  const batch::StepPlan plan = tiny_batch(0, five_batches()[0], plans, mix.bounds);
  for (const ir::Task& task : compiler::assemble(plan, plans, {}).tasks)
    broadcast += task.kind == ir::TaskKind::broadcast ? task.bytes : 0;
  EXPECT_GT(broadcast, 0);
  const TinyRun run = run_tiny(plans, five_batches(), {.bounds = mix.bounds});
  expect_like_one_rank(run);
  EXPECT_TRUE(run.copies_agree);
}

INSTANTIATE_TEST_SUITE_P(Mixes, StateOnEveryReplica,
                         testing::Values(Mix{{"4,1,1"}, {24}}, Mix{{"2,2,1"}, {24}}, Mix{{"2,1,2"}, {24}},
                                         Mix{{"1,2,2", "4,1,1"}, {24, 12}, 4, 1}, Mix{{"2,2,1", "1,4,1"}, {24, 10}},
                                         Mix{{"2,1,2", "4,1,1", "2,2,1"}, {24, 18, 9}, 4, 2}));

TEST(Executor, OneRankLearns) {
  const TinyRun& run = on_one_rank();
  EXPECT_GT(run.steps[0].norm, 0.01);
  const TinyRun again = run_tiny(tiny_plans({"1,1,1"}, 1), std::vector<Documents>(5, tiny_documents(9, 1)));
  EXPECT_LT(again.steps[4].loss, again.steps[0].loss - 0.1);
}

TEST(Executor, PrefetchChangesNoBit) {
  const compiler::Plans plans = tiny_plans({"1,2,2", "4,1,1"}, 4);
  const TinyRun with = run_tiny(plans, five_batches(), {.bounds = {24, 12}, .prefetch = true});
  const TinyRun without = run_tiny(plans, five_batches(), {.bounds = {24, 12}, .prefetch = false});
  for (size_t s = 0; s < with.steps.size(); ++s) EXPECT_EQ(with.steps[s].loss, without.steps[s].loss);
  EXPECT_EQ(largest_gap(with.master, without.master), 0);
}

// Tensor parallel ranks on two hosts: reshards go over hosts.
TEST(Executor, TensorParallelRanksOfSeveralHostsTrainAsOneRankDoes) {
  for (const config::Recompute recompute :
       {config::Recompute::none, config::Recompute::selective, config::Recompute::full}) {
    const std::vector<std::string> specs = {"1,4,1", "1,2,2"};
    const compiler::Plans plans = tiny_plans(specs, 4, 0, kFp64, 2, 1, {.recompute = recompute});
    const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
    EXPECT_TRUE(std::ranges::any_of(stage.forward.code, [](const ir::Instr& instr) {
      return !instr.op && !instr.exchanges[0]->scratch[0].empty();
    }));
    expect_like_one_rank(run_tiny(plans, five_batches(), {.bounds = {24, 12}}));
  }
}

// With the memory of sums for other hosts.
TEST(Executor, TensorParallelRanksTakeAsMuchMemoryAsPredicted) {
  kernels::install_rank_allocator();
  for (const int hosts : {1, 2})
    for (const config::Recompute recompute : {config::Recompute::none, config::Recompute::full}) {
      const compiler::Plans plans =
          tiny_plans({"1,4,1"}, 4, 0, precision_from("fp32"), hosts, 1, {.recompute = recompute});
      const Documents documents = tiny_documents(12, 5);
      const batch::StepPlan plan = tiny_batch(0, documents, plans, {kLongest});
      const ir::Program program = compiler::assemble(plan, plans, {});
      auto fabrics = comm::thread_fabrics(4, plans.cluster(), {});
      std::vector<i64> peaks(4);
      const auto ends = comm::run_ranks(fabrics, [&](comm::Fabric& fabric) {
        kernels::RankMemory memory(i64{1} << 28);
        {
          const kernels::MemoryScope scope(&memory);
          Store store(plans, fabric.rank(), at::kCPU);
          {
            const kernels::MemoryScope outside(nullptr);
            store.home.initialize(tiny_values(plans.graph()));
          }
          memory.reset_peak();
          ExecutorOptions options;
          options.memory = &memory;
          Executor executor(plans, store, fabric, options);
          executor.run(program, {&plan, &documents, [](double) {
                                   return UpdateSettings{{1e-2, 0.9, 0.95, 1e-8, 0.1, 1}, 1};
                                 }});
          peaks[static_cast<size_t>(fabric.rank())] = memory.peak();
        }
      });
      ASSERT_EQ(ends, std::vector<std::string>(4));
      for (int rank = 0; rank < 4; ++rank)
        EXPECT_EQ(peaks[static_cast<size_t>(rank)],
                  compiler::predict_memory(program, plan, plans, compiler::Holdings(plans, rank)).total)
            << hosts << " hosts, rank " << rank;
    }
}

TEST(Executor, ReplicasWithoutDocumentsAddNothing) {
  const std::vector<Documents> batches = {tiny_documents(1, 3), tiny_documents(2, 4)};
  const TinyRun one = run_tiny(tiny_plans({"1,1,1"}, 1), batches), four = run_tiny(tiny_plans({"4,1,1"}, 4), batches);
  ASSERT_THAT(four.ends, Each(IsEmpty()));
  for (size_t s = 0; s < batches.size(); ++s) EXPECT_NEAR(four.steps[s].loss, one.steps[s].loss, 1e-10);
  EXPECT_LT(largest_gap(four.master, one.master), 1e-10);
}

TEST(Executor, AStepThatIsNotFiniteLeavesParametersAndGradientsOfTheNextStepClean) {
  const std::vector<Documents> batches = {tiny_documents(6, 7)};
  const compiler::Plans plans = tiny_plans({"1,2,1"}, 2);
  const TinyRun run = run_tiny(plans, batches, {.poison = std::numeric_limits<double>::infinity()});
  ASSERT_THAT(run.ends, Each(IsEmpty()));
  // The first master element belongs to token 0's embedding task, which the batch reads.
  EXPECT_FALSE(run.steps[0].finite);
  const auto& last = run.master.back();
  EXPECT_EQ(gap(last, tiny_value(plans.graph(), static_cast<int>(run.master.size()) - 1)), 0);
}

TEST(Executor, ARankThatFailsEndsAllRanksWithItsError) {
  for (const i64 nth : {1, 4, 9}) {
    const auto start = std::chrono::steady_clock::now();
    const TinyRun run = run_tiny(tiny_plans({"1,2,2", "4,1,1"}, 4), five_batches(),
                                 {.bounds = {24, 12}, .faulty_rank = 2, .faulty_transaction = nth});
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    EXPECT_THAT(run.ends, Each(HasSubstr("rank 2")));
  }
}

TEST(Executor, TimesAddUpToTheStep) {
  const StepTimes& times = on_one_rank().steps[0].times;
  EXPECT_GT(times.compute, 0);
  EXPECT_LE(times.compute + times.waiting, times.total + 1e-3);
  EXPECT_LE(times.parameters, times.waiting);
}

}  // namespace
}  // namespace switchyard::runtime
