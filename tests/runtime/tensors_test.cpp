#include "runtime/tensors.hpp"

#include <gmock/gmock.h>

#include "base/errors.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

using testing::HasSubstr;

const layout::Box kShard{2, {10, 20}, {14, 26}};  // 4 x 6

TEST(Tensors, ACopyBetweenViewsLeavesTheRestAlone) {
  const at::Tensor from = wave({1024, 1024});
  at::Tensor to = zeros({1024, 1030}, DType::f64, at::kCPU);
  copy_view(to.narrow(1, 3, 512), from.narrow(1, 500, 512));  // large enough to bypass the caches
  EXPECT_TRUE(to.narrow(1, 3, 512).equal(from.narrow(1, 500, 512)));
  EXPECT_EQ(to.narrow(1, 0, 3).abs().sum().item<double>() + to.narrow(1, 515, 515).abs().sum().item<double>(), 0);
}

TEST(Tensors, AViewSharesMemoryAndHasItsGlobalPosition) {
  at::Tensor shard = wave({4, 6});
  const at::Tensor view = view_of(shard, kShard, {2, {11, 22}, {13, 26}});
  EXPECT_EQ(view.size(0), 2);
  EXPECT_EQ(view.size(1), 4);
  EXPECT_TRUE(view.equal(shard.narrow(0, 1, 2).narrow(1, 2, 4)));
  view.zero_();
  EXPECT_EQ(shard.select(0, 1).select(0, 2).item<double>(), 0);
  EXPECT_NE(shard.select(0, 1).select(0, 1).item<double>(), 0);
}

TEST(Tensors, ABoxOutsideOfTheShardIsRefused) {
  try {
    view_of(wave({4, 6}), kShard, {2, {9, 20}, {14, 26}});
    ADD_FAILURE() << "nothing thrown";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("lies outside of shard"));
  }
}

TEST(Tensors, ScalarTypesAreThoseOfTorch) {
  EXPECT_EQ(scalar_type(DType::f64), at::kDouble);
  EXPECT_EQ(scalar_type(DType::f32), at::kFloat);
  EXPECT_EQ(scalar_type(DType::bf16), at::kBFloat16);
  EXPECT_EQ(scalar_type(DType::i64), at::kLong);
  EXPECT_EQ(scalar_type(DType::i32), at::kInt);
  EXPECT_EQ(zeros({2, 3}, DType::f32, at::kCPU).abs().sum().item<double>(), 0);
}

TEST(Transfer, MovesAndAddsViewsBetweenRanks) {
  const at::Tensor a = wave({4, 6}, 1), b = wave({4, 6}, 2);
  std::vector<at::Tensor> got = {a.clone(), b.clone()};
  const layout::Box left{2, {10, 20}, {14, 23}}, right{2, {10, 23}, {14, 26}};
  const auto ends = comm::run_ranks(2, {}, [&](comm::Fabric& fabric) {
    at::Tensor& mine = got[static_cast<size_t>(fabric.rank())];
    const int peer = 1 - fabric.rank();
    Transfer transfer;
    EXPECT_TRUE(transfer.empty());
    transfer.send(peer, view_of(mine, kShard, left));
    transfer.receive(peer, view_of(mine, kShard, right), fabric.rank() == 1);  // rank 1 adds
    EXPECT_FALSE(transfer.empty());
    transfer.run(fabric, {3, {0, 1}}, "halves", 1);
    EXPECT_TRUE(transfer.empty());
  });
  EXPECT_EQ(ends, std::vector<std::string>(2));
  EXPECT_TRUE(got[0].narrow(1, 3, 3).equal(b.narrow(1, 0, 3)));
  EXPECT_TRUE(got[1].narrow(1, 3, 3).equal(b.narrow(1, 3, 3).add(a.narrow(1, 0, 3))));
  EXPECT_TRUE(got[0].narrow(1, 0, 3).equal(a.narrow(1, 0, 3)));
}

TEST(Transfer, LocalPartsAreCopiedOrAdded) {
  at::Tensor to = wave({5}, 1);
  const at::Tensor before = to.clone(), from = wave({5}, 2);
  comm::run_ranks(1, {}, [&](comm::Fabric& fabric) {
    Transfer transfer;
    transfer.local(to, from, true);
    transfer.local(to, from, true);
    transfer.run(fabric, {3, {0}}, "sum", 1);
  });
  EXPECT_TRUE(to.equal(before.add(from).add(from)));
}

TEST(Transfer, EmptyViewsAreLeftOut) {
  Transfer transfer;
  transfer.send(1, empty({0, 3}, DType::f64, at::kCPU));
  transfer.receive(1, empty({0}, DType::f64, at::kCPU), false);
  EXPECT_TRUE(transfer.empty());
}

}  // namespace
}  // namespace switchyard::runtime
