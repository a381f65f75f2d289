#include "runtime/transfer.hpp"

#include "base/errors.hpp"
#include "serving_fabric.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

const layout::Box kShard{2, {10, 20}, {14, 26}};  // 4 x 6

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

TEST(Transfer, WhatEncodingLosesIsKeptAndSentNextTime) {
  const at::Tensor x = wave({4, 64}, 3).to(at::kFloat);
  at::Tensor lost = zeros({4, 70}, DType::f32, at::kCPU).narrow(1, 2, 64), got = zeros({4, 64}, DType::f32, at::kCPU);
  constexpr int kSends = 40;
  const auto ends = comm::run_ranks(2, {}, [&](comm::Fabric& fabric) {
    Transfer transfer(empty({24}, DType::u8, at::kCPU));
    for (int i = 0; i < kSends; ++i) {
      if (fabric.rank() == 0)
        transfer.send(1, x, codecs::Codec::top_32, lost);
      else
        transfer.receive(0, got, true, codecs::Codec::top_32);
      transfer.run(fabric, {3, {0, 1}}, "sums", i + 1);
    }
  });
  EXPECT_EQ(ends, std::vector<std::string>(2));
  EXPECT_GT(lost.abs().max().item<double>(), 0);
  EXPECT_LT(gap(got.add(lost), x.mul(kSends)), 1e-3);
}

TEST(Transfer, CollectivesOfAGroupStandBesideMessages) {
  CallsSeen seen;
  const at::Tensor a = wave({4, 6}, 1), b = wave({4, 6}, 2);
  std::vector<at::Tensor> sums = {wave({4, 3}, 3), wave({4, 3}, 4)}, got(2);
  auto fabrics = comm::thread_fabrics(2, cluster::uniform(1, 2), {});
  for (auto& fabric : fabrics)
    fabric = std::make_unique<ServingFabric>(std::move(fabric), std::vector<comm::Channel>{{3, {0, 1}}}, true, seen);
  const auto ends = comm::run_ranks(std::move(fabrics), [&](comm::Fabric& fabric) {
    const auto mine = static_cast<size_t>(fabric.rank());
    const at::Tensor& x = mine == 0 ? a : b;
    got[mine] = zeros({4, 6}, DType::f64, at::kCPU);
    Transfer transfer;
    transfer.collective(GroupCall::reduce_scatter, {0, 1}, {x.narrow(1, 0, 3), x.narrow(1, 3, 3)}, {sums[mine]}, true);
    EXPECT_FALSE(transfer.empty());
    transfer.send(1 - fabric.rank(), x);
    transfer.receive(1 - fabric.rank(), got[mine], false);
    transfer.run(fabric, {3, {0, 1}}, "both", 1);
    EXPECT_TRUE(transfer.empty());
    EXPECT_THROW(transfer.collective(GroupCall::all_reduce, {0, 1}, {x}, {x.to(at::kFloat)}, false), InternalError);
  });
  EXPECT_EQ(ends, std::vector<std::string>(2));
  EXPECT_EQ(seen.calls[GroupCall::reduce_scatter], 2);
  EXPECT_TRUE(got[0].equal(b) && got[1].equal(a));
  for (int r = 0; r < 2; ++r)
    EXPECT_TRUE(
        sums[static_cast<size_t>(r)].equal(wave({4, 3}, 3 + r).add(a.narrow(1, 3 * r, 3)).add(b.narrow(1, 3 * r, 3))));
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
