#include "runtime/executor.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "../standin/device.hpp"
#include "comm/forwarding_fabric.hpp"
#include "compiler/memory.hpp"
#include "kernels/memory.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

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

// A fabric that does something before each transaction.
class WatchedFabric final : public comm::ForwardingFabric {
 public:
  using Before = std::function<void(int rank, const comm::Transaction&)>;
  WatchedFabric(std::unique_ptr<comm::Fabric> inner, Before before)
      : ForwardingFabric(std::move(inner)), before_(std::move(before)) {}
  void run(const comm::Channel& channel, const comm::Transaction& transaction) override {
    before_(rank(), transaction);
    inner().run(channel, transaction);
  }

 private:
  Before before_;
};

auto watched(WatchedFabric::Before before) {
  return [before](std::unique_ptr<comm::Fabric> inner) -> std::unique_ptr<comm::Fabric> {
    return std::make_unique<WatchedFabric>(std::move(inner), before);
  };
}

// Transactions start late by up to a millisecond, at random.
WatchedFabric::Before late(unsigned seed) {
  return [seed](int rank, const comm::Transaction& transaction) {
    const size_t mixed =
        std::hash<std::string>{}(fmt::format("{} {} {} {}", seed, rank, transaction.name, transaction.number));
    if (mixed % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(mixed / 2 % 1000));
  };
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
    broadcast += task.kind() == ir::TaskKind::broadcast ? task.bytes : 0;
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
       {config::Recompute::none, config::Recompute::gathers, config::Recompute::selective, config::Recompute::full}) {
    const std::vector<std::string> specs = {"1,4,1", "1,2,2"};
    const compiler::Plans plans = tiny_plans(specs, 4, 0, kFp64, 2, 1, {.recompute = recompute});
    const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
    EXPECT_TRUE(std::ranges::any_of(stage.forward.code, [](const ir::Instr& instr) {
      return !instr.op && !instr.exchanges[0]->scratch[0].empty();
    }));
    expect_like_one_rank(run_tiny(plans, five_batches(), {.bounds = {24, 12}}));
  }
}

// Random strategies with tensor parallel ranks, or whose parameters are gathered for runs, messages that are late at
// random: loss, global norm and all parameters are equal to the last bit, wherever collectives run, and those of one
// rank but for rounding.
TEST(Executor, CollectivesBesideComputingChangeNoBit) {
  std::mt19937 random(14);
  const auto pick = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  const std::vector<std::vector<std::string>> jobs = {{"1,4,1", "1,2,2"},
                                                      {"2,2,1", "1,2,2"},
                                                      {"1,2,2"},
                                                      {"1,4,1"},
                                                      {"tp=4,inner=2"},
                                                      {"tp=2,ulysses=2,inner=2"},
                                                      {"ring=4,packing=stream,exchange=ring"},
                                                      {"tp=2,ring=2,exchange=ring", "ring=4"},
                                                      {"dp=4,zero=3", "dp=2,pp=2,zero=2"},
                                                      {"depth=4", "dp=2,tp=2,zero=2"},
                                                      {"dp=2,pp=2,zero=3,schedule=zero-bubble"},
                                                      {"dp=2,tp=2,paired=true", "1,2,2"},
                                                      {"depth=2,pp=2,every=2"},
                                                      {"tp=2,pp=2,schedule=zb-v"},
                                                      {"dp=2,pp=2,schedule=zeropp,zero=3,every=3"},
                                                      {"tp=2,pp=2,schedule=interleaved"},
                                                      {"1,2,1 + 1,1,2", "2,2,1"},
                                                      {"dp=2,zero=2 + tp=2", "1,2,2"}};
  config::ModelConfig model = tiny_llama();
  model.layers = 4;  // two chunks for each of two stages
  for (int round = 0; round < 27; ++round) {
    const std::vector<std::string>& specs = jobs[static_cast<size_t>(round) % jobs.size()];
    const int hosts = 1 + pick(2);
    config::StrategySettings settings{.recompute = static_cast<config::Recompute>(pick(3)),
                                      .sequence_parallel = pick(3) > 0};
    if (specs.size() == 1 && specs[0] == "1,2,2" && pick(2) == 0) settings.schedule = config::ScheduleKind::zero_bubble;
    SCOPED_TRACE(fmt::format("round {}: {} on {} hosts, recompute {}, sequence parallel {}, schedule {}", round,
                             specs[0], hosts, static_cast<int>(settings.recompute), settings.sequence_parallel,
                             static_cast<int>(settings.schedule)));
    const std::vector<Documents> batches = {tiny_documents(8, 2 * static_cast<unsigned>(round) + 1),
                                            tiny_documents(6, 2 * static_cast<unsigned>(round) + 2)};
    const std::vector<i64> bounds =
        specs.size() == 1 ? std::vector<i64>{kLongest} : std::vector<i64>{kLongest, kLongest / 2};
    const auto run = [&](bool overlap, bool beside, bool delays) {
      const compiler::Plans plans =
          tiny_plans(specs, 4, 0, kFp64, hosts, 1, settings, {.overlap = overlap, .overlap_transfers = overlap}, model);
      TinyOptions options{.bounds = bounds, .beside = beside};
      if (delays) options.wrap = watched(late(static_cast<unsigned>(round)));
      return run_tiny(plans, batches, options);
    };
    const TinyRun one_by_one = run(false, false, false);
    ASSERT_THAT(one_by_one.ends, Each(IsEmpty()));
    for (const auto& [beside, delays] : {std::pair(true, true), std::pair(true, false), std::pair(false, false)}) {
      const TinyRun with = run(true, beside, delays);
      ASSERT_THAT(with.ends, Each(IsEmpty()));
      ASSERT_EQ(with.steps.size(), one_by_one.steps.size());
      for (size_t s = 0; s < with.steps.size(); ++s) {
        EXPECT_EQ(with.steps[s].loss, one_by_one.steps[s].loss);
        EXPECT_EQ(with.steps[s].norm, one_by_one.steps[s].norm);
      }
      EXPECT_EQ(largest_gap(with.master, one_by_one.master), 0);
    }
  }
}

// On a thread of their own, where something is to be hidden; else on the one that computes.
TEST(Executor, CollectivesRunBesideComputingWhereTheyMay) {
  const auto threads_of = [](bool overlap, std::optional<bool> beside) {
    std::mutex mutex;
    std::set<std::thread::id> threads;
    TinyOptions options{.beside = beside};
    options.wrap = watched([&](int rank, const comm::Transaction& transaction) {
      const std::lock_guard lock(mutex);
      if (rank == 0 && transaction.name.starts_with("reshard")) threads.insert(std::this_thread::get_id());
    });
    const TinyRun run =
        run_tiny(tiny_plans({"1,2,1"}, 2, 0, kFp64, 1, 1, {}, {.overlap = overlap}), {tiny_documents(4, 5)}, options);
    EXPECT_THAT(run.ends, Each(IsEmpty()));
    return threads.size();
  };
  EXPECT_EQ(threads_of(true, true), 2u);
  EXPECT_EQ(threads_of(true, false), 1u);
  EXPECT_EQ(threads_of(false, true), 1u);
  EXPECT_EQ(threads_of(true, {}), 1u) << "threads of a process move no message by themselves";
}

// Keys of the next step, and gradients of the one before, beside a step of attention.
TEST(Executor, KeysThatComeInStepsMoveBesideComputingWhereTheyMay) {
  const auto threads_of = [](const std::string& spec, bool beside) {
    std::mutex mutex;
    std::map<std::string, std::set<std::thread::id>> threads;
    TinyOptions options{.beside = beside};
    options.wrap = watched([&](int rank, const comm::Transaction& transaction) {
      const std::lock_guard lock(mutex);
      if (rank == 0) threads[transaction.name].insert(std::this_thread::get_id());
    });
    EXPECT_THAT(run_tiny(tiny_plans({spec}, 3), {tiny_documents(4, 5)}, options).ends, Each(IsEmpty()));
    EXPECT_GT(threads["keys and values of attention"].size(), 0u);
    threads["gradients of keys and values"].merge(threads["keys and values of attention"]);
    return threads["gradients of keys and values"].size();
  };
  EXPECT_EQ(threads_of("ring=3,packing=stream,exchange=ring", true), 2u);
  EXPECT_EQ(threads_of("ring=3,packing=stream,exchange=ring", false), 1u);
  EXPECT_EQ(threads_of("ring=3,packing=stream", true), 1u) << "nothing is computed meanwhile";
}

// What fails while a collective is on its way ends all ranks, and its message names rank, operation and peer.
TEST(Executor, ASilentRankIsNamedByWhoWaitsForItsCollective) {
  const compiler::Plans plans = tiny_plans({"1,2,1"}, 2);
  int named = 0;
  for (i64 nth = 3; nth < 12; ++nth) {
    const TinyRun run = run_tiny(plans, {tiny_documents(4, 5)},
                                 {.faulty_rank = 1,
                                  .faulty_transaction = nth,
                                  .beside = true,
                                  .silent = true,
                                  .fabric = {.timeout = std::chrono::milliseconds(200)}});
    ASSERT_THAT(run.ends, Each(Not(IsEmpty())));
    named += run.ends[0].find("\"reshard") != std::string::npos &&
             run.ends[0].find("heard nothing from rank 1") != std::string::npos;
  }
  EXPECT_GT(named, 0);
}

// With the memory of sums for other hosts, and of collectives on their way.
TEST(Executor, TensorParallelRanksTakeAsMuchMemoryAsPredicted) {
  kernels::install_rank_allocator();
  for (const auto& [spec, hosts, overlap] :
       {std::tuple("1,4,1", 1, false), std::tuple("1,4,1", 1, true), std::tuple("1,4,1", 2, false),
        std::tuple("1,4,1", 2, true), std::tuple("tp=4,inner=2", 1, true)})
    for (const config::Recompute recompute :
         {config::Recompute::none, config::Recompute::gathers, config::Recompute::selective, config::Recompute::full}) {
      const compiler::Plans plans =
          tiny_plans({spec}, 4, 0, precision_from("fp32"), hosts, 1, {.recompute = recompute}, {.overlap = overlap});
      const Documents documents = tiny_documents(12, 5);
      const batch::StepPlan plan = tiny_batch(0, documents, plans, {kLongest});
      const ir::Program program = compiler::assemble(plan, plans, {});
      const std::vector<i64> peaks = measured(plans, program, plan, documents, {.beside = overlap}).peaks;
      for (int rank = 0; rank < 4; ++rank)
        EXPECT_EQ(peaks[static_cast<size_t>(rank)],
                  compiler::predict_memory(program, plan, plans, compiler::Holdings(plans, rank)).total)
            << spec << " on " << hosts << " hosts, overlap " << overlap << ", rank " << rank;
    }
}

// Each micro-batch has tables of its own, on a ring rank for the parts of documents that it has. In a pipeline, where
// several micro-batches are on their way, receives make the peak differ from run to run.
TEST(Executor, RanksThatRotateByDocumentTakeAsMuchMemoryAsPredicted) {
  kernels::install_rank_allocator();
  config::ModelConfig model = tiny_llama();
  model.rope_scaling = {.factor = 2, .original_context = 8, .type = config::RopeScalingType::dynamic};
  for (const char* spec : {"1,1,1", "1,2,1", "ulysses=2", "ring=2", "ring=2,exchange=ring", "2,1,1", "1,1,2"})
    for (const config::Recompute recompute : {config::Recompute::none, config::Recompute::full}) {
      const int ranks = spec == std::string("1,1,1") ? 1 : 2;
      const compiler::Plans plans =
          tiny_plans({spec}, ranks, 0, precision_from("fp32"), 1, 1, {.recompute = recompute}, {}, model);
      const Documents documents = tiny_documents(12, 5);
      const batch::StepPlan plan = tiny_batch(0, documents, plans, {kLongest});
      const ir::Program program = compiler::assemble(plan, plans, {});
      const std::vector<i64> peaks =
          measured(plans, program, plan, documents, {.rope_scaling = model.rope_scaling}).peaks;
      for (int rank = 0; rank < ranks; ++rank) {
        const i64 measured = peaks[static_cast<size_t>(rank)];
        const auto predicted = [&](compiler::ExecutionOrder order) {
          return compiler::predict_memory(program, plan, plans, compiler::Holdings(plans, rank), order).total;
        };
        EXPECT_LE(measured, predicted(compiler::ExecutionOrder::worst)) << spec << ", rank " << rank;
        if (plans.strategies()[0].groups[0].stages.size() == 1) {
          EXPECT_EQ(measured, predicted(compiler::ExecutionOrder::expected)) << spec << ", rank " << rank;
        }
      }
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
    const TinyRun run = run_tiny(tiny_plans({"1,2,2", "4,1,1"}, 4), five_batches(),
                                 {.bounds = {24, 12}, .faulty_rank = 2, .faulty_transaction = nth});
    EXPECT_THAT(run.ends, Each(HasSubstr("rank 2")));
  }
}

// A fabric that takes its time to tell the others of a failure, while they and other queues hear of it.
class SlowToAbort final : public comm::ForwardingFabric {
 public:
  using ForwardingFabric::ForwardingFabric;
  void abort(const std::string& reason) override {
    inner().abort(reason);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
};

TEST(Executor, ARankTellsItsOwnErrorAndNotThatAQueueWasStoppedByIt) {
  for (const i64 nth : {6, 12, 18, 24}) {
    const TinyRun run =
        run_tiny(tiny_plans({"1,2,2", "4,1,1"}, 4), five_batches(),
                 {.bounds = {24, 12}, .faulty_rank = 2, .faulty_transaction = nth, .wrap = [](auto inner) {
                    return std::make_unique<SlowToAbort>(std::move(inner));
                  }});
    EXPECT_THAT(run.ends[2], AllOf(StartsWith("rank 2 (host 0): \""),
                                   EndsWith("\" failed on purpose as transaction " + std::to_string(nth) + ".")));
    for (const size_t other : {0u, 1u, 3u}) EXPECT_THAT(run.ends[other], HasSubstr("stopped: " + run.ends[2]));
  }
}

// A fabric whose rank's failure is that its device is lost.
class LosesDevice final : public comm::ForwardingFabric {
 public:
  using ForwardingFabric::ForwardingFabric;
  void abort(const std::string& reason) override {
    inner().abort(reason);
    standin::lose();
  }
};

TEST(Executor, ADeviceThatIsLostIsToldAsAnError) {
  if (standin::test_device().type() != c10::DeviceType::PrivateUse1) GTEST_SKIP() << "of the stand-in device";
  for (const i64 nth : {2, 9}) {
    const TinyRun run = run_tiny(tiny_plans({"1,2,1"}, 2), {tiny_documents(4, 5)},
                                 {.faulty_rank = 1, .faulty_transaction = nth, .wrap = [](auto inner) {
                                    return std::make_unique<LosesDevice>(std::move(inner));
                                  }});
    standin::start_over();
    EXPECT_THAT(run.ends, ElementsAre(Not(IsEmpty()), HasSubstr("failed on purpose as transaction")));
  }
}

// A fabric that counts how often its rank reports a failure.
class ReportedFabric final : public comm::ForwardingFabric {
 public:
  ReportedFabric(std::unique_ptr<comm::Fabric> inner, std::atomic<int>& reports)
      : ForwardingFabric(std::move(inner)), reports_(reports) {}
  void abort(const std::string& reason) override {
    ++reports_;
    inner().abort(reason);
  }

 private:
  std::atomic<int>& reports_;
};

// A fabric that counts how often its rank says that it works.
class CountsWork final : public comm::ForwardingFabric {
 public:
  CountsWork(std::unique_ptr<comm::Fabric> inner, std::vector<std::atomic<i64>>& counts)
      : ForwardingFabric(std::move(inner)), counts_(counts) {}
  void works() override { ++counts_[static_cast<size_t>(rank())]; }

 private:
  std::vector<std::atomic<i64>>& counts_;
};

// A step of which others wait for the first message may take longer than their timeout.
TEST(Executor, ARankSaysAfterEachOperatorThatItWorks) {
  const compiler::Plans plans = tiny_plans({"1,1,2"}, 2);
  std::vector<std::atomic<i64>> counts(2);
  const TinyRun run =
      run_tiny(plans, {tiny_documents(80, 1)},
               {.wrap = [&](auto inner) { return std::make_unique<CountsWork>(std::move(inner), counts); }});
  EXPECT_THAT(run.ends, Each(IsEmpty()));
  for (size_t stage = 0; stage < counts.size(); ++stage) {
    const ir::StageCode& code = plans.strategies()[0].groups[0].stages[stage];
    i64 operators = 0;
    for (const ir::Segment* segment : {&code.forward, &code.backward})
      operators += std::ranges::count_if(segment->code, [](const ir::Instr& instr) { return instr.op != nullptr; });
    EXPECT_GT(operators, 10);
    EXPECT_GE(counts[stage], operators);
  }
}

// Each of them might wait for what doesn't come, such as memory.
TEST(Executor, ATaskThatFailsIsTheLastOfItsRank) {
  constexpr int kQueues = 7;  // whose tasks may have begun
  std::atomic<int> reports = 0;
  const TinyRun run = run_tiny(tiny_plans({"1,2,1"}, 2), {tiny_documents(80, 1)},
                               {.faulty_rank = 1, .faulty_transaction = 4, .wrap = [&](auto inner) {
                                  return std::make_unique<ReportedFabric>(std::move(inner), reports);
                                }});
  EXPECT_THAT(run.ends, Each(HasSubstr("rank 1")));
  EXPECT_LE(reports, 2 * kQueues);
}

TEST(Executor, ADeviceWithoutMemoryIsToldWithWhatToDo) {
  if (standin::test_device().type() != c10::DeviceType::PrivateUse1) GTEST_SKIP() << "of the stand-in device";
  const compiler::Plans plans = tiny_plans({"1,1,1"}, 1);
  standin::reset_peak();
  run_tiny(plans, {tiny_documents(1, 3)});
  standin::start_over();
  standin::limit_memory(9 * standin::peak_bytes() / 10);
  const TinyRun run = run_tiny(plans, {tiny_documents(1, 3)});
  standin::start_over();
  EXPECT_THAT(run.ends, ElementsAre(AllOf(StartsWith("rank 0: its device has no memory left for "),
                                          HasSubstr("stand-in device: no memory for "),
                                          HasSubstr("or another run.memory_budget"), Not(HasSubstr("frame #0")))));
}

TEST(Executor, TimesAddUpToTheStep) {
  const StepTimes& times = on_one_rank().steps[0].times;
  EXPECT_GT(times.compute, 0);
  EXPECT_LE(times.compute + times.waiting, times.total + 1e-3);
  EXPECT_LE(times.parameters, times.waiting);
}

}  // namespace
}  // namespace switchyard::runtime
