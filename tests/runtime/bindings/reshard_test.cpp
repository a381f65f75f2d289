#include <gtest/gtest.h>

#include "one_call.hpp"

namespace switchyard::runtime {
namespace {

constexpr i64 kT = 6, kH = 4;
const layout::Mesh kLane{{{"tp", 2}}, {0, 1}};
const layout::Layout kWhole{{{}, {}}, {}}, kRows{{{0}, {}}, {}}, kColumns{{{}, {0}}, {}}, kSum{{{}, {}}, {0}};

// Both ranks of a lane of two turn a (T, H) value from one layout to the other.
std::vector<at::Tensor> reshard(const layout::Layout& from, const layout::Layout& to, const std::vector<at::Tensor>& in) {
  const layout::Shape units{{2, kH}, {{}, {}}};  // tokens in units of T / 2
  ir::StageCode stage;
  stage.lane = kLane;
  for (const layout::Layout* l : {&from, &to}) {
    ir::Buffer b;
    b.name = "stream";
    b.type = {DType::f64, {{ir::kTokens, kH}, {{}, {}}}};
    b.layout = *l;
    for (int position = 0; position < 2; ++position) b.box.push_back(layout::shard_box(kLane, *l, units, position));
    stage.buffers.push_back(b);
  }
  ir::Instr instr;
  instr.steps = layout::exchange(layout::expand(kLane, from, units), layout::expand(kLane, to, units));
  instr.in = {0};
  instr.out = {1};
  std::vector<at::Tensor> out(2);
  const auto ends = comm::run_ranks(2, {}, [&](comm::Fabric& fabric) {
    const size_t rank = static_cast<size_t>(fabric.rank());
    MicroBatchFeeds feeds;
    feeds.T = kT;
    RopeTables rope(10000, {});
    i64 row = 0;
    out[rank] = empty(ir::local_size(stage.buffers[1], fabric.rank(), 2, {kT}), DType::f64, at::kCPU);
    KernelCall call{instr, stage, fabric.rank(), {in[rank]}, {out[rank]}, feeds, rope, {&fabric, {5, {0, 1}}, &row}, DType::f64};
    run_reshard(call);
    EXPECT_EQ(row, static_cast<i64>(instr.steps.size()));
  });
  EXPECT_EQ(ends, std::vector<std::string>(2));
  return out;
}

const at::Tensor kA = wave({kT, kH}, 1), kB = wave({kT, kH}, 2);

TEST(ReshardBinding, GathersTokens) {
  for (const at::Tensor& out : reshard(kRows, kWhole, {kA.narrow(0, 0, 3), kA.narrow(0, 3, 3)})) EXPECT_TRUE(out.equal(kA));
}

TEST(ReshardBinding, SumsIntoPartsOfTheTokens) {
  const auto out = reshard(kSum, kRows, {kA, kB});
  for (i64 r = 0; r < 2; ++r) EXPECT_TRUE(out[static_cast<size_t>(r)].equal(kA.add(kB).narrow(0, 3 * r, 3)));
}

TEST(ReshardBinding, SumsForEveryRank) {
  for (const at::Tensor& out : reshard(kSum, kWhole, {kA, kB})) EXPECT_TRUE(out.equal(kA.add(kB)));
}

TEST(ReshardBinding, TurnsTokensIntoFeatures) {
  const auto out = reshard(kRows, kColumns, {kA.narrow(0, 0, 3), kA.narrow(0, 3, 3)});
  for (i64 r = 0; r < 2; ++r) EXPECT_TRUE(out[static_cast<size_t>(r)].equal(kA.narrow(1, 2 * r, 2)));
}

TEST(ReshardBinding, CutsWhatARankHas) {
  const auto out = reshard(kWhole, kRows, {kA, kA});
  for (i64 r = 0; r < 2; ++r) EXPECT_TRUE(out[static_cast<size_t>(r)].equal(kA.narrow(0, 3 * r, 3)));
}

TEST(ReshardBinding, ACopyThatBecomesAnAddendIsZeroOnAllButOne) {
  const auto out = reshard(kWhole, kSum, {kA, kA});
  EXPECT_TRUE(out[0].add(out[1]).equal(kA));
}

}  // namespace
}  // namespace switchyard::runtime
