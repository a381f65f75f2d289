#include <gtest/gtest.h>

#include <numeric>

#include "../one_reshard.hpp"
#include "one_call.hpp"

namespace switchyard::runtime {
namespace {

const layout::Layout kWhole{{{}, {}}, {}}, kRows{{{0}, {}}, {}}, kColumns{{{}, {0}}, {}}, kSum{{{}, {}}, {0}};

// The ranks of a replica turn a (T, H) value from one layout to the other. host: of each; bytes: what they send to
// other hosts.
std::vector<at::Tensor> reshard(const layout::Layout& from, const layout::Layout& to, const std::vector<at::Tensor>& in,
                                const std::vector<int>& host = {0, 0}, i64* bytes = nullptr) {
  const int ranks = static_cast<int>(host.size());
  std::vector<at::Tensor> out(host.size());
  std::vector<i64> sent(host.size());
  const auto ends =
      comm::run_ranks(comm::thread_fabrics(ranks, cluster::Cluster{host, {}}, {}), [&](comm::Fabric& fabric) {
        const size_t rank = static_cast<size_t>(fabric.rank());
        OneReshard one(from, to, host);
        i64 number = 0;
        out[rank] = one.output(fabric.rank());
        KernelCall call = one.call(fabric, in[rank], out[rank], number);
        run_reshard(call);
        EXPECT_EQ(number, static_cast<i64>(one.instr.exchanges[0]->steps.size()));
        sent[rank] = fabric.traffic()[2];
      });
  EXPECT_EQ(ends, std::vector<std::string>(host.size()));
  if (bytes) *bytes = std::accumulate(sent.begin(), sent.end(), i64{0});
  return out;
}

// Rows of 12 tokens on two hosts with two ranks each.
TEST(ReshardBinding, OverHostsSendsEverythingBetweenThemOnce) {
  const std::vector<int> hosts = {0, 0, 1, 1};
  std::vector<at::Tensor> sums, rows;
  for (int rank = 0; rank < 4; ++rank) sums.push_back(wave({kT, kH}, rank + 1));
  const at::Tensor sum = sums[0].add(sums[1]).add(sums[2].add(sums[3]));
  for (i64 rank = 0; rank < 4; ++rank) rows.push_back(sum.narrow(0, 3 * rank, 3));
  const i64 crossing = kT * kH * 8;  // half of it each way
  i64 bytes = 0;
  for (const at::Tensor& out : reshard(kRows, kWhole, rows, hosts, &bytes)) EXPECT_TRUE(out.equal(sum));
  EXPECT_EQ(bytes, crossing);
  const auto parts = reshard(kSum, kRows, sums, hosts, &bytes);
  for (size_t rank = 0; rank < 4; ++rank) EXPECT_TRUE(parts[rank].equal(rows[rank]));
  EXPECT_EQ(bytes, crossing);
  for (const at::Tensor& out : reshard(kSum, kWhole, sums, hosts, &bytes)) EXPECT_TRUE(out.equal(sum));
  EXPECT_EQ(bytes, 2 * crossing);
}

const at::Tensor kA = wave({kT, kH}, 1), kB = wave({kT, kH}, 2);

TEST(ReshardBinding, GathersTokens) {
  for (const at::Tensor& out : reshard(kRows, kWhole, {kA.narrow(0, 0, kT / 2), kA.narrow(0, kT / 2, kT / 2)}))
    EXPECT_TRUE(out.equal(kA));
}

TEST(ReshardBinding, SumsIntoPartsOfTheTokens) {
  const auto out = reshard(kSum, kRows, {kA, kB});
  for (i64 r = 0; r < 2; ++r) EXPECT_TRUE(out[static_cast<size_t>(r)].equal(kA.add(kB).narrow(0, kT / 2 * r, kT / 2)));
}

TEST(ReshardBinding, SumsForEveryRank) {
  for (const at::Tensor& out : reshard(kSum, kWhole, {kA, kB})) EXPECT_TRUE(out.equal(kA.add(kB)));
}

TEST(ReshardBinding, TurnsTokensIntoFeatures) {
  const auto out = reshard(kRows, kColumns, {kA.narrow(0, 0, kT / 2), kA.narrow(0, kT / 2, kT / 2)});
  for (i64 r = 0; r < 2; ++r) EXPECT_TRUE(out[static_cast<size_t>(r)].equal(kA.narrow(1, 2 * r, 2)));
}

TEST(ReshardBinding, CutsWhatARankHas) {
  const auto out = reshard(kWhole, kRows, {kA, kA});
  for (i64 r = 0; r < 2; ++r) EXPECT_TRUE(out[static_cast<size_t>(r)].equal(kA.narrow(0, kT / 2 * r, kT / 2)));
}

TEST(ReshardBinding, ACopyThatBecomesAnPartialIsZeroOnAllButOne) {
  const auto out = reshard(kWhole, kSum, {kA, kA});
  EXPECT_TRUE(out[0].add(out[1]).equal(kA));
}

}  // namespace
}  // namespace switchyard::runtime
