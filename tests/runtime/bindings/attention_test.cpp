#include "ir/operators/attention.hpp"

#include <gtest/gtest.h>

#include "../../standin/device.hpp"
#include "../../standin/gpu_operators.hpp"
#include "compiler/memory.hpp"
#include "ir/operators/unfused_attention.hpp"
#include "one_call.hpp"

namespace switchyard::runtime {
namespace {

constexpr i64 kT = 5, kHeads = 2, kD = 4;

void two_documents(OneCall& call) {
  call.feeds.T = kT;
  call.feeds.blocks = {{{0, 3, 0, 3, true}, {3, 2, 3, 2, true}}};
}

// One key/value head serves both query heads. Returns o and lse.
std::vector<at::Tensor> forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  OneCall call(std::make_shared<ir::Attention>(kD, 1));
  two_documents(call);
  call.in = {q, k, v};
  call.out = {nothing({kT, kHeads * kD}), nothing({kT, kHeads})};
  call.run();
  return call.out;
}

const at::Tensor kQ = wave({kT, kHeads*kD}, 1), kK = wave({kT, kD}, 2), kV = wave({kT, kD}, 3);

TEST(AttentionBinding, ScoresAreDividedByTheRootOfTheHeadsSizeAndDocumentsAreApart) {
  const auto out = forward(kQ, kK, kV);
  // A document's first token sees itself alone.
  for (const i64 first : {0, 3})
    for (i64 h = 0; h < kHeads; ++h)
      EXPECT_LT(gap(out[0].select(0, first).narrow(0, h * kD, kD), kV.select(0, first)), 1e-15);
  // Token 4 sees tokens 3 and 4.
  for (i64 h = 0; h < kHeads; ++h) {
    const at::Tensor scores = kK.narrow(0, 3, 2).mv(kQ.select(0, 4).narrow(0, h * kD, kD)).div(2);
    EXPECT_LT(gap(out[0].select(0, 4).narrow(0, h * kD, kD), kV.narrow(0, 3, 2).t().mv(scores.softmax(0))), 1e-14);
    // Statistics are stored head by head in the value's memory.
    EXPECT_NEAR(out[1].view({kHeads, kT}).select(0, h).select(0, 4).item<double>(),
                scores.logsumexp({0}).item<double>(), 1e-14);
  }
}

TEST(AttentionBinding, GradientsAreSlopes) {
  const at::Tensor go = wave({kT, kHeads * kD}, 4);
  const auto saved = forward(kQ, kK, kV);
  OneCall call(std::make_shared<ir::AttentionDx>(kD, 1));
  two_documents(call);
  call.in = {go, kQ, kK, kV, saved[0], saved[1]};
  call.out = {nothing({kT, kHeads * kD}), nothing({kT, kD}), nothing({kT, kD})};
  call.run();
  const auto loss = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return forward(q, k, v)[0].mul(go).sum().item<double>();
  };
  const double h = 1e-5;
  const at::Tensor dq = wave({kT, kHeads * kD}, 5).mul(h), dkv = wave({kT, kD}, 6).mul(h);
  EXPECT_NEAR(call.out[0].mul(dq).sum().item<double>() / h,
              (loss(kQ.add(dq), kK, kV) - loss(kQ.sub(dq), kK, kV)) / (2 * h), 1e-8);
  EXPECT_NEAR(call.out[1].mul(dkv).sum().item<double>() / h,
              (loss(kQ, kK.add(dkv), kV) - loss(kQ, kK.sub(dkv), kV)) / (2 * h), 1e-8);
  EXPECT_NEAR(call.out[2].mul(dkv).sum().item<double>() / h,
              (loss(kQ, kK, kV.add(dkv)) - loss(kQ, kK, kV.sub(dkv))) / (2 * h), 1e-8);
}

// Steps in bf16: the stand-in device's kernels are exact, those of the CPU have scores in fp32.
TEST(AttentionBinding, DevicesThatHaveFlashAttentionTrainWithItAsCpusDoByScores) {
  const at::Device device = standin::test_device().is_cpu() ? standin::device() : standin::test_device();
  const std::vector<Documents> batches = {tiny_documents(7, 1), tiny_documents(7, 2)};
  for (const char* spec : {"dp=2", "tp=2", "ring=2", "ring=2,exchange=ring", "ulysses=2,recompute=full"}) {
    SCOPED_TRACE(spec);
    const compiler::Plans plans = tiny_plans({spec}, 2, 0, precision_from("bf16"));
    const TinyRun expected = run_tiny(plans, batches, {.device = at::kCPU});
    const standin::FlashAttentionCalls before = standin::flash_attention_calls();
    const TinyRun run = run_tiny(plans, batches, {.device = device});
    EXPECT_EQ(run.ends, expected.ends);
    ASSERT_EQ(run.steps.size(), 2u);
    for (size_t s = 0; s < 2; ++s) {
      EXPECT_NEAR(run.steps[s].loss, expected.steps[s].loss, 2e-3 * expected.steps[s].loss);
      // The first update has about the size of the learning rate, whatever the gradient's size. All of a GPU's kernels
      // round in other places.
      const double after_an_update = device.is_cuda() ? 0.15 : 5e-2;
      EXPECT_NEAR(run.steps[s].norm, expected.steps[s].norm,
                  (s == 0 ? 1e-2 : after_an_update) * expected.steps[s].norm);
    }
    if (device.is_cuda()) continue;
    EXPECT_GT(standin::flash_attention_calls().forward, before.forward);
    EXPECT_GT(standin::flash_attention_calls().backward, before.backward);
  }
}

// Sequences go to the device with the feeds: a rank waits once in a step, for the norm.
TEST(AttentionBinding, FlashAttentionDoesNotMakeTheHostWait) {
  if (standin::test_device().is_cuda()) GTEST_SKIP() << "pinned memory is CUDA's, which the stand-in device waits for";
  const std::vector<Documents> batches = {tiny_documents(7, 1), tiny_documents(7, 2)};
  for (const char* spec : {"dp=2", "ring=2", "ring=2,exchange=ring"}) {
    const compiler::Plans plans = tiny_plans({spec}, 2, 0, precision_from("bf16"));
    const auto waits = [&](std::ptrdiff_t steps) {
      const i64 before = standin::host_synchronizations();
      run_tiny(plans, {batches.begin(), batches.begin() + steps}, {.device = standin::device()});
      return standin::host_synchronizations() - before;
    };
    EXPECT_EQ(waits(2) - waits(1), 2) << spec;
  }
}

// What is predicted for devices bounds what a step takes there, which without flash attention is more: 2 matrices of 4
// heads, 512 queries and 1024 keys in fp32.
TEST(AttentionBinding, DevicesTakeNoMemoryForScores) {
  if (standin::test_device().is_cuda()) GTEST_SKIP() << "GPUs have allocators that keep more";
  const Documents documents = {Documents::value_type(512, 7)};
  const auto plans_with = [](bool on_devices) {
    return tiny_plans({"1,1,1"}, 1, 0, precision_from("bf16"), 1, 1, {}, {.on_devices = on_devices});
  };
  const auto predicted = [&](const compiler::Plans& plans) {
    const batch::StepPlan plan = tiny_batch(0, documents, plans, {512});
    return compiler::predict_memory(compiler::assemble(plan, plans, {.prefetch_units = 0, .train = true}), plan, plans,
                                    compiler::Holdings(plans, 0))
        .total;
  };
  const i64 on_devices = predicted(plans_with(true)), on_cpus = predicted(plans_with(false));
  const i64 before = standin::live_bytes();
  standin::reset_peak();
  const TinyRun run =
      run_tiny(plans_with(true), {documents}, {.bounds = {512}, .prefetch = false, .device = standin::device()});
  EXPECT_EQ(run.ends, std::vector<std::string>{""});
  const i64 measured = standin::peak_bytes() - before;
  EXPECT_LE(measured, on_devices + 64) << "with sums of the loss, which are no strategy's";
  EXPECT_GT(2 * measured, on_devices) << "not far below";
  EXPECT_GT(on_cpus, on_devices + 2 * 4 * 512 * 512 * 4 / 2);
}

TEST(AttentionBinding, DevicesComputeInOtherPrecisionsByScores) {
  const standin::FlashAttentionCalls before = standin::flash_attention_calls();
  const at::Device device = standin::test_device().is_cpu() ? standin::device() : standin::test_device();
  run_tiny(tiny_plans({"1,1,1"}, 1, 0, precision_from("fp32")), {tiny_documents(3, 1)}, {.device = device});
  EXPECT_EQ(standin::flash_attention_calls().forward, before.forward);
}

// Squares of both documents: 9 + 4 pairs.
std::vector<at::Tensor> unfused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double dropout) {
  OneCall call(std::make_shared<ir::UnfusedAttention>(kD, 1, dropout, 3));
  two_documents(call);
  call.feeds.keys = integers({11, -7, 5000000000000, 123456789, 42});
  call.in = {q, k, v};
  call.out = {nothing({kT, kHeads * kD}), nothing({kHeads, 13})};
  if (dropout > 0) call.out.insert(call.out.end(), {empty({kHeads, 13}, DType::u8, at::kCPU), nothing({kHeads, 13})});
  for (const at::Tensor& out : call.out) call.instr.out.push_back(call.buffer(out));
  call.run();
  return call.out;
}

TEST(UnfusedAttentionBinding, EqualsTheFusedOneAndStoresItsWeights) {
  const auto out = unfused(kQ, kK, kV, 0);
  EXPECT_LT(gap(out[0], forward(kQ, kK, kV)[0]), 1e-14);
  const at::Tensor second = out[1].narrow(1, 9, 4).view({kHeads, 2, 2});
  EXPECT_LT(gap(second.sum(2), nothing({kHeads, 2}).fill_(1)), 1e-15);
  EXPECT_EQ(second.select(1, 0).select(1, 1).abs().max().item<double>(), 0) << "a token doesn't see the next one";
}

TEST(UnfusedAttentionBinding, GradientsAreSlopesWithAndWithoutDropout) {
  for (const double dropout : {0.0, 0.4}) {
    const at::Tensor go = wave({kT, kHeads * kD}, 4);
    const auto saved = unfused(kQ, kK, kV, dropout);
    OneCall call(std::make_shared<ir::UnfusedAttentionDx>(kD, 1, dropout));
    two_documents(call);
    call.in = {go, kQ, kK, kV, saved[1]};
    if (dropout > 0) call.in.insert(call.in.end(), {saved[2], saved[3]});
    call.out = {nothing({kT, kHeads * kD}), nothing({kT, kD}), nothing({kT, kD})};
    call.run();
    const auto loss = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
      return unfused(q, k, v, dropout)[0].mul(go).sum().item<double>();
    };
    const double h = 1e-5;
    const at::Tensor dq = wave({kT, kHeads * kD}, 5).mul(h), dkv = wave({kT, kD}, 6).mul(h);
    EXPECT_NEAR(call.out[0].mul(dq).sum().item<double>() / h,
                (loss(kQ.add(dq), kK, kV) - loss(kQ.sub(dq), kK, kV)) / (2 * h), 1e-8);
    EXPECT_NEAR(call.out[1].mul(dkv).sum().item<double>() / h,
                (loss(kQ, kK.add(dkv), kV) - loss(kQ, kK.sub(dkv), kV)) / (2 * h), 1e-8);
    EXPECT_NEAR(call.out[2].mul(dkv).sum().item<double>() / h,
                (loss(kQ, kK, kV.add(dkv)) - loss(kQ, kK, kV.sub(dkv))) / (2 * h), 1e-8);
  }
}

TEST(UnfusedAttentionBinding, DropsWeightsAndScalesTheOthers) {
  const auto out = unfused(kQ, kK, kV, 0.4);
  EXPECT_LT(gap(out[3], out[1].mul(out[2]).div(0.6)), 1e-15);
  EXPECT_GT(out[2].to(at::kDouble).mean().item<double>(), 0.2);
  EXPECT_LT(out[2].to(at::kDouble).mean().item<double>(), 0.95);
}

}  // namespace
}  // namespace switchyard::runtime
