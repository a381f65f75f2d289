#include "ir/operators/head.hpp"

#include <gtest/gtest.h>

#include "one_call.hpp"

namespace switchyard::runtime {
namespace {

constexpr i64 kT = 600, kH = 4, kV = 6;  // more tokens than a chunk

struct Head {
  at::Tensor x = wave({kT, kH}, 1), w = wave({kV, kH}, 2), weights = wave({kT}, 3).abs(), labels;
  Head() {
    std::vector<i64> values;
    for (i64 t = 0; t < kT; ++t) values.push_back(t % 7 == 0 ? -1 : t % kV);
    labels = integers(values);
    for (i64 t = 0; t < kT; t += 7) weights.select(0, t).zero_();
  }
  // Loss, dx and dw of the part [first, first + rows) of the vocabulary.
  std::vector<at::Tensor> run(i64 first, i64 rows, const ReplicaLink& replica) const {
    OneCall call(std::make_shared<ir::HeadLoss>());
    call.replica = replica;
    const at::Tensor part = w.narrow(0, first, rows);
    call.in = {x, part, labels, weights};
    call.out = {nothing({kT}), nothing({kT, kH}), nothing({rows, kH}).add(1)};
    call.instr.in = {call.buffer(x), call.buffer(part, first, rows < kV), call.buffer(labels), call.buffer(weights)};
    call.run();
    return call.out;
  }
};

// The same, computed by the operator's halves.
std::vector<at::Tensor> run_halves(const Head& head, i64 first, i64 rows, const ReplicaLink& replica) {
  const ir::Halves halves = ir::HeadLoss().halves();
  const at::Tensor part = head.w.narrow(0, first, rows);
  OneCall inputs(halves.inputs), weights(halves.weights);
  inputs.replica = replica;
  inputs.in = {head.x, part, head.labels, head.weights};
  inputs.out = {nothing({kT}), nothing({kT, kH}), nothing({kT, rows})};
  inputs.instr.in = {inputs.buffer(head.x), inputs.buffer(part, first, rows < kV), inputs.buffer(head.labels),
                     inputs.buffer(head.weights)};
  inputs.run();
  weights.in = {inputs.out[2], head.x};
  weights.out = {nothing({rows, kH}).add(1)};
  weights.run();
  return {inputs.out[0], inputs.out[1], weights.out[0]};
}

TEST(HeadBinding, HalvesGiveWhatTheWholeDoes) {
  const Head head;
  const auto expect_same = [](const std::vector<at::Tensor>& whole, const std::vector<at::Tensor>& halves) {
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_LT(gap(whole[i], halves[i]), i < 2 ? 1e-300 : 1e-12) << i;
  };
  expect_same(head.run(0, kV, {}), run_halves(head, 0, kV, {}));
  const auto ends = comm::run_ranks(2, {}, [&](comm::Fabric& fabric) {
    i64 number = 0, again = 100;
    const i64 first = fabric.rank() == 0 ? 0 : 4, rows = fabric.rank() == 0 ? 4 : 2;
    expect_same(head.run(first, rows, {&fabric, {7, {0, 1}}, &number}),
                run_halves(head, first, rows, {&fabric, {7, {0, 1}}, &again}));
    EXPECT_EQ(again, 104) << "maximum and sums of two chunks, once";
  });
  ASSERT_EQ(ends, std::vector<std::string>(2));
}

TEST(HeadBinding, LossAndGradientsAreThoseOfTheSoftmax) {
  const Head head;
  const auto out = head.run(0, kV, {});
  const at::Tensor logits = head.x.mm(head.w.t()), p = logits.softmax(1), logp = logits.log_softmax(1);
  at::Tensor onehot = nothing({kT, kV}), loss = nothing({kT});
  for (i64 t = 0; t < kT; ++t)
    if (const i64 label = head.labels.data_ptr<i64>()[t]; label >= 0) {
      onehot.select(0, t).select(0, label).fill_(1);
      loss.select(0, t).copy_(logp.select(0, t).select(0, label).neg());
    }
  const at::Tensor g = p.sub(onehot).mul(head.weights.unsqueeze(1));
  EXPECT_LT(gap(out[0], loss.mul(head.weights)), 1e-13);
  EXPECT_LT(gap(out[1], g.mm(head.w)), 1e-13);
  EXPECT_LT(gap(out[2].sub(1), g.t().mm(head.x)), 1e-11);
}

TEST(HeadBinding, AVocabularyCutOverTwoRanksGivesTheSame) {
  const Head head;
  const auto whole = head.run(0, kV, {});
  std::vector<std::vector<at::Tensor>> parts(2);
  const auto ends = comm::run_ranks(2, {}, [&](comm::Fabric& fabric) {
    i64 number = 0;
    parts[static_cast<size_t>(fabric.rank())] =
        head.run(fabric.rank() == 0 ? 0 : 4, fabric.rank() == 0 ? 4 : 2, {&fabric, {7, {0, 1}}, &number});
    EXPECT_EQ(number, 4);  // maximum and sums of two chunks
  });
  ASSERT_EQ(ends, std::vector<std::string>(2));
  for (const auto& part : parts) EXPECT_LT(gap(part[0], whole[0]), 1e-14);
  EXPECT_LT(gap(parts[0][1].add(parts[1][1]), whole[1]), 1e-14);
  EXPECT_LT(gap(parts[0][2], whole[2].narrow(0, 0, 4)), 1e-12);
  EXPECT_LT(gap(parts[1][2], whole[2].narrow(0, 4, 2)), 1e-12);
}

}  // namespace
}  // namespace switchyard::runtime
