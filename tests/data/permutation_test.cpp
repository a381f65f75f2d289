#include "data/permutation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/errors.hpp"

namespace switchyard::data {
namespace {

std::vector<i64> all_of(const Permutation& order, i64 size) {
  std::vector<i64> out;
  for (i64 place = 0; place < size; ++place) out.push_back(order[place]);
  return out;
}

TEST(Permutation, HoldsEachNumberOnceForAnySize) {
  for (const i64 size : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 64, 65, 1000, 4097})
    for (std::uint64_t stream = 0; stream < 3; ++stream) {
      std::vector<i64> all = all_of(Permutation(size, 7, stream), size);
      std::sort(all.begin(), all.end());
      for (i64 i = 0; i < size; ++i) ASSERT_EQ(all[static_cast<std::size_t>(i)], i) << size;
    }
}

TEST(Permutation, IsTheSameForeverForOneSeedAndStream) {
  // A changed order would break the continuation of older checkpoints.
  const std::vector<i64> golden = all_of(Permutation(10, 1, 0), 10);
  EXPECT_EQ(golden, (std::vector<i64>{2, 0, 8, 1, 7, 4, 9, 5, 6, 3}));
}

TEST(Permutation, SeedsAndStreamsGiveOtherOrders) {
  const std::vector<i64> base = all_of(Permutation(100, 1, 0), 100);
  EXPECT_NE(base, all_of(Permutation(100, 2, 0), 100));
  EXPECT_NE(base, all_of(Permutation(100, 1, 1), 100));
  EXPECT_NE(all_of(Permutation(100, 0, 1), 100), all_of(Permutation(100, 1, 0), 100));
}

TEST(Permutation, EveryNumberIsAsLikelyAtEveryPlace) {
  // Chi-squared over 20 numbers at each of 20 places: 380 degrees of freedom, standard deviation sqrt(2 * 380) = 27.6.
  constexpr i64 kSize = 20, kStreams = 20000;
  std::vector<double> count(kSize * kSize);
  for (i64 stream = 0; stream < kStreams; ++stream) {
    const Permutation order(kSize, 3, static_cast<std::uint64_t>(stream));
    for (i64 place = 0; place < kSize; ++place) count[static_cast<std::size_t>(place * kSize + order[place])] += 1;
  }
  double chi = 0;
  for (const double n : count) chi += (n - kStreams / 20.0) * (n - kStreams / 20.0) / (kStreams / 20.0);
  EXPECT_LT(std::abs(chi - 380), 5 * 27.6);
}

TEST(Permutation, NeighboursAreIndependent) {
  const i64 size = 100'000;
  const Permutation order(size, 5, 0);
  double sum = 0;
  for (i64 place = 0; place + 1 < size; ++place)
    sum += (static_cast<double>(order[place]) / size - 0.5) * (static_cast<double>(order[place + 1]) / size - 0.5);
  // Each product has variance 1/144.
  EXPECT_LT(std::abs(sum), 5 * std::sqrt(size / 144.0));
}

TEST(Permutation, PlacesOutsideAreBugs) {
  EXPECT_THROW(Permutation(0, 1, 1), InternalError);
  EXPECT_THROW(Permutation(3, 1, 1)[3], InternalError);
  EXPECT_THROW(Permutation(3, 1, 1)[-1], InternalError);
}

}  // namespace
}  // namespace switchyard::data
