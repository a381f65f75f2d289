#include "runtime/transfer.hpp"

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
