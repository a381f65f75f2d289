// Error feedback: nothing that encoding loses is lost for good, whatever strategies and micro-batches send it.
#include "runtime/residuals.hpp"

#include <gmock/gmock.h>

#include "base/errors.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

using codecs::Codec;
using testing::Each;
using testing::IsEmpty;

constexpr Precision kFp32{DType::f32, DType::f32};

struct Case {
  std::vector<std::string> strategies;
  std::vector<i64> bounds{kLongest};
  int hosts = 1, zero = 1;
};

compiler::Plans plans_of(const Case& job, const config::Compression& compression) {
  config::StrategySettings settings;
  settings.compression = compression;
  return tiny_plans(job.strategies, 4, 0, kFp32, job.hosts, job.zero, settings);
}

// What some steps of the same documents give whose updates change nothing.
struct Sums {
  std::vector<at::Tensor> delivered, kept;  // by parameter: to home in all steps; residuals afterwards
};

Sums sums_of(const compiler::Plans& plans, const Case& job, int steps,
             const std::function<void(int step, Store& store)>& before = {}) {
  const Documents documents = tiny_documents(13, 4);
  const batch::StepPlan plan = tiny_batch(0, documents, plans, job.bounds);
  const ir::Program program = compiler::assemble(plan, plans, {});
  Sums sums;
  for (std::vector<at::Tensor>* all : {&sums.delivered, &sums.kept})
    for (const ir::Param& param : plans.graph().params()) all->push_back(zeros(param.shape.size, DType::f64, at::kCPU));
  const auto whole = [&](std::vector<at::Tensor>& all, int param, const layout::Box& box) {
    return view_of(all[static_cast<size_t>(param)], layout::whole(plans.graph().param(param).shape.size), box);
  };
  std::mutex mutex;
  auto fabrics = comm::thread_fabrics(4, plans.cluster(), {});
  const auto ends = comm::run_ranks(fabrics, [&](comm::Fabric& fabric) {
    const at::Device device = standin::test_device();
    Store store(plans, fabric.rank(), device);
    store.home.initialize(tiny_values(plans.graph()));
    ExecutorOptions options;
    options.device = device;
    Executor executor(plans, store, fabric, options);
    for (int step = 0; step < steps; ++step) {
      if (before) before(step, store);
      executor.run(program, {.plan = &plan, .documents = &documents, .update = [&](double) {
                               const std::lock_guard lock(mutex);
                               for (const HomeUnit& unit : store.home.units())
                                 for (const HomeShard& shard : unit.shards)
                                   for (const layout::Box* owned : store.holdings.owned(shard.param))
                                     if (shard.box.contains(*owned))
                                       whole(sums.delivered, shard.param, *owned)
                                           .add_(view_of(shard.grad, shard.box, *owned).to(at::kCPU, at::kDouble));
                               return UpdateSettings{{0, 0.9, 0.95, 1e-8, 0, step + 1}, 1};
                             }});
    }
    const std::lock_guard lock(mutex);
    for (const Residuals::Part& part : store.residuals.parts())
      whole(sums.kept, part.param, part.box).add_(part.values.to(at::kDouble));
  });
  EXPECT_THAT(ends, Each(IsEmpty()));
  return sums;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {{{"4,1,1"}},
                                           {{"4,1,1"}, {kLongest}, 2},
                                           {{"4,1,1"}, {kLongest}, 2, 0},
                                           {{"2,2,1"}, {kLongest}, 2},
                                           {{"dp=4"}, {kLongest}, 2, 2},
                                           {{"dp=4"}, {kLongest}, 1, 3},
                                           {{"dp=2,pp=2"}, {kLongest}, 1, 3},
                                           {{"dp=2,depth=2"}},
                                           {{"ring=2,ulysses=2"}},
                                           {{"1,2,2", "4,1,1"}, {kLongest, 10}, 2},
                                           {{"dp=4", "2,2,1"}, {kLongest, 10}, 1, 3}};
  return kCases;
}

double largest(const std::vector<at::Tensor>& all) {
  double most = 0;
  for (const at::Tensor& one : all) most = std::max(most, one.abs().max().item<double>());
  return most;
}

// Sums of n equal gradients, but for rounding of fp32.
TEST(Residuals, WhatStepsDeliverAndWhatRanksKeepIsTheSumOfAllGradients) {
  constexpr int kSteps = 6;
  for (const Case& job : cases())
    for (const Codec codec : {Codec::top_128, Codec::int4}) {
      SCOPED_TRACE(job.strategies.front());
      const Sums exact = sums_of(plans_of(job, {}), job, kSteps);
      const config::Compression coded{.gradients = codec, .error_feedback = config::ErrorFeedback::on, .smallest = {0}};
      const Sums sent = sums_of(plans_of(job, coded), job, kSteps);
      EXPECT_GT(largest(sent.kept), codec == Codec::top_128 ? 1e-3 : 1e-6);
      for (size_t p = 0; p < exact.delivered.size(); ++p)
        EXPECT_LT(gap(sent.delivered[p].add(sent.kept[p]), exact.delivered[p]), 1e-5) << "parameter " << p;
    }
}

TEST(Residuals, WithoutFeedbackWhatIsLostIsLost) {
  const Case job{{"4,1,1"}};
  const Sums exact = sums_of(plans_of(job, {}), job, 6),
             sent = sums_of(
                 plans_of(job,
                          {.gradients = Codec::top_128, .error_feedback = config::ErrorFeedback::off, .smallest = {0}}),
                 job, 6);
  EXPECT_EQ(largest(sent.kept), 0);
  double lost = 0;
  for (size_t p = 0; p < exact.delivered.size(); ++p) lost = std::max(lost, gap(sent.delivered[p], exact.delivered[p]));
  EXPECT_GT(lost, 0.01);
}

// What a step that is left out leaves behind would be part of the next one.
TEST(Residuals, AStepThatIsLeftOutTakesThemAlong) {
  const Case job{{"dp=4"}, {kLongest}, 1, 2};
  const auto poison = [](int step, Store& store) {
    if (store.holdings.rank() == 0 && (step == 2 || step == 3))
      store.home.units()[0].master.fill_(step == 2 ? std::nan("") : 0.1);
    if (step != 3) return;
    for (const Residuals::Part& part : store.residuals.parts()) EXPECT_EQ(part.values.abs().max().item<double>(), 0);
  };
  const compiler::Plans plans = plans_of(job, {.gradients = Codec::top_32, .smallest = {0}});
  const Sums sums = sums_of(plans, job, 4, poison);
  EXPECT_GT(largest(sums.kept), 0);
}

TEST(Residuals, AViewLiesInOneOfThem) {
  const compiler::Plans plans = plans_of({{"4,1,1"}}, {.gradients = Codec::top_32, .smallest = {0}});
  const Residuals residuals(plans, 1);
  ASSERT_FALSE(residuals.parts().empty());
  for (const Residuals::Part& part : residuals.parts()) {
    EXPECT_EQ(dtype_of(part.values), DType::f32);
    EXPECT_TRUE(residuals.view(part.param, part.box).is_same(part.values) ||
                residuals.view(part.param, part.box).data_ptr() == part.values.data_ptr());
    layout::Box beyond = part.box;
    ++beyond.hi[0];
    EXPECT_THROW(residuals.view(part.param, beyond), InternalError);
  }
}

}  // namespace
}  // namespace switchyard::runtime
