#include "comm/collectives.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/errors.hpp"
#include "fabric_suite.hpp"
#include "rank_threads.hpp"

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(Collectives, AgreeBitForBitWithBruteForceOnOneToEightRanks) {
  EXPECT_THAT(run_ranks(8, {120s, true}, [](Fabric& fabric) { suite::collectives(fabric, 0, 11, 1); }), Each(""));
}

TEST(Collectives, AllReduceSendsRingVolume) {
  const auto fabrics = thread_fabrics(4, two_hosts(4), {120s, true});
  EXPECT_THAT(run_ranks(fabrics,
                        [](Fabric& fabric) {
                          std::vector<float> x(1000, 1.0f);
                          all_reduce(fabric, {0, {0, 1, 2, 3}}, "x", 1, x.data(), 1000, DType::f32);
                        }),
              Each(""));
  for (const auto& fabric : fabrics) {
    EXPECT_EQ(fabric->traffic()[1] + fabric->traffic()[2], 2 * 3 * 1000);  // 2 (n-1)/n of 4000 bytes
    EXPECT_EQ(fabric->traffic()[2], 2 * (fabric->traffic()[1]));
  }
}

// 0.1 + 0.2 + 0.3 ... depends on the order.
TEST(Collectives, AFewNumbersAreSummedInPairsOfRanks) {
  for (const int ranks : {2, 3, 5, 8}) {
    std::vector<double> sums(static_cast<size_t>(ranks)), expected;
    for (int rank = 0; rank < ranks; ++rank) expected.push_back(sums[static_cast<size_t>(rank)] = 0.1 * (rank + 1));
    for (size_t distance = 1; distance < expected.size(); distance *= 2)
      for (size_t i = 0; i + distance < expected.size(); i += 2 * distance) expected[i] += expected[i + distance];
    std::vector<int> all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
    const auto fabrics = thread_fabrics(ranks, two_hosts(ranks), {120s, true});
    EXPECT_THAT(
        run_ranks(fabrics,
                  [&](Fabric& fabric) {
                    all_reduce(fabric, {0, all}, "x", 1, &sums[static_cast<size_t>(fabric.rank())], 1, DType::f64);
                  }),
        Each(""));
    EXPECT_THAT(sums, Each(expected[0])) << ranks;
    i64 bytes = 0;
    for (const auto& fabric : fabrics) bytes += fabric->traffic()[1] + fabric->traffic()[2];
    EXPECT_EQ(bytes, 2 * 8 * (ranks - 1)) << "there and back";
  }
}

TEST(Collectives, TheMaximumSendsNoMoreThanASum) {
  for (const i64 elements : {2, 4, 10}) {
    std::vector<std::vector<double>> values(4, std::vector<double>(static_cast<size_t>(elements)));
    for (size_t rank = 0; rank < 4; ++rank)
      for (size_t i = 0; i < values[rank].size(); ++i) values[rank][i] = (rank + i) % 4 == 3 ? 7 : 1;
    const auto fabrics = thread_fabrics(4, two_hosts(4), {120s, true});
    EXPECT_THAT(run_ranks(fabrics,
                          [&](Fabric& fabric) {
                            all_reduce_max(fabric, {0, {0, 1, 2, 3}}, "x", 1,
                                           values[static_cast<size_t>(fabric.rank())].data(), elements, DType::f64);
                          }),
                Each(""));
    for (const auto& x : values) EXPECT_THAT(x, Each(7));
    i64 bytes = 0;
    for (const auto& fabric : fabrics) bytes += fabric->traffic()[1] + fabric->traffic()[2];
    EXPECT_EQ(bytes, 2 * 3 * 8 * elements) << "a reduction and a gather";
  }
}

TEST(Collectives, TheMaximumOfANumberAndNaNIsNaNOnAllRanks) {
  std::vector<std::vector<float>> values{{1, NAN, 3}, {2, 5, NAN}, {0, 9, 9}};
  EXPECT_THAT(run_ranks(3, {120s, true},
                        [&](Fabric& fabric) {
                          all_reduce_max(fabric, {0, {0, 1, 2}}, "x", 1,
                                         values[static_cast<size_t>(fabric.rank())].data(), 3, DType::f32);
                        }),
              Each(""));
  for (const auto& x : values) {
    EXPECT_EQ(x[0], 2);
    EXPECT_TRUE(std::isnan(x[1]) && std::isnan(x[2]));
  }
}

TEST(Collectives, RefuseWhatCanNotBe) {
  const auto fabrics = thread_fabrics(3, two_hosts(3));
  Fabric& fabric = *fabrics[0];
  const Channel pair{4, {0, 1}};
  std::vector<float> x(4);
  const Block block = contiguous(x.data(), 16);
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const InternalError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message([&] { all_gather(fabric, pair, "g", 1, std::vector<Block>{block}); }),
            "\"g\": 1 pieces for 2 ranks");
  EXPECT_EQ(
      message([&] {
        reduce_scatter(fabric, pair, "s", 1, std::vector<Block>{block, block}, contiguous(x.data(), 8), DType::f32);
      }),
      "\"s\": own piece of 16 bytes, result of 8");
  EXPECT_EQ(message([&] { all_reduce_max(fabric, pair, "m", 1, x.data(), 4, DType::bf16); }), "\"m\": maximum of bf16");
  EXPECT_EQ(message([&] {
              all_reduce(fabric, {4, {1, 2}}, "r", 1, x.data(), 4, DType::f32);
            }),
            "rank 0: \"r\" on channel 4, of which it is not a member");
}

}  // namespace
}  // namespace switchyard::comm
