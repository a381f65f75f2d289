#include "switching/share.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/errors.hpp"

namespace switchyard::switching {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Share, one_candidate_takes_all) { EXPECT_THAT(share({{100, {3}}}), ElementsAre(ElementsAre(Part{3, 0, 100}))); }
TEST(Share, no_elements_give_no_parts) { EXPECT_THAT(share({{0, {3, 4}}}), ElementsAre(IsEmpty())); }
TEST(Share, a_demand_without_candidates_is_a_bug) { EXPECT_THROW(share({{5, {}}}), InternalError); }

TEST(Share, demands_of_about_the_mean_stay_whole) {
  EXPECT_THAT(share({{96, {0, 1}}, {104, {0, 1}}}),
              ElementsAre(ElementsAre(Part{0, 0, 96}), ElementsAre(Part{1, 0, 104})));
}

TEST(Share, a_large_demand_is_cut_at_the_mean) {
  EXPECT_THAT(share({{400, {0, 1, 2, 3}}}),
              ElementsAre(ElementsAre(Part{0, 0, 100}, Part{1, 100, 200}, Part{2, 200, 300}, Part{3, 300, 400})));
}

TEST(Share, those_with_few_candidates_choose_first) {
  EXPECT_THAT(share({{100, {0, 1}}, {100, {0}}}),
              ElementsAre(ElementsAre(Part{1, 0, 100}), ElementsAre(Part{0, 0, 100})));
}

TEST(Share, equal_parts_are_given_where_nobody_gets_too_much) {
  EXPECT_THAT(share({{3072, {2}}, {3328, {3}}, {64, {2, 3}, -1, true}})[2],
              ElementsAre(Part{2, 0, 32}, Part{3, 32, 64}));
  EXPECT_THAT(share({{1000, {2}}, {400, {2, 3}, -1, true}})[1], ElementsAre(Part{3, 0, 400}));
}

TEST(Share, work_for_the_same_partner_stays_with_one_rank) {
  const auto parts = share({{100, {0, 1}, 7}, {100, {0, 1}, 8}, {4, {0, 1}, 8}});
  EXPECT_THAT(parts[1], ElementsAre(Part{1, 0, 100}));
  EXPECT_THAT(parts[2], ElementsAre(Part{1, 0, 4}));
}

TEST(Share, small_demands_fill_one_rank_after_the_other) {
  const auto parts = share({{25, {0, 1}}, {25, {0, 1}}, {25, {0, 1}}, {25, {0, 1}}});
  EXPECT_EQ(parts[1][0].rank, 0);
  EXPECT_EQ(parts[2][0].rank, 1);
  EXPECT_EQ(parts[3][0].rank, 1);
}

TEST(Share, what_fits_nowhere_is_levelled) {
  const auto parts = share({{900, {0}}, {100, {1}}, {600, {0, 1}}, {400, {2}}, {400, {3}}});
  EXPECT_THAT(parts[2], ElementsAre(Part{1, 0, 600}));
  const auto level = share({{10, {0, 1}}, {1000, {2}}, {500, {0, 1}}, {0, {3, 4, 5, 6, 7, 8, 9}}});
  EXPECT_EQ(level[2].back().end, 500);
}

TEST(ShareProperties, parts_are_gapless_among_candidates_and_balanced_when_all_may_do_all) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    SCOPED_TRACE(round);
    const bool free = round % 2 == 0;
    const int ranks = 1 + static_cast<int>(random() % 8);
    std::vector<Demand> demands;
    i64 total = 0;
    for (size_t d = 0, count = 1 + random() % 10; d < count; ++d) {
      Demand demand{static_cast<i64>(random() % 1000), {}, static_cast<int>(random() % 3) - 1, random() % 2 == 0};
      for (int r = 0; r < ranks; ++r) {
        if (free || random() % 2 == 0) demand.candidates.push_back(r);
      }
      if (demand.candidates.empty()) demand.candidates.push_back(0);
      total += demand.elements;
      demands.push_back(demand);
    }
    std::map<int, i64> load;
    const auto parts = share(demands);
    for (size_t d = 0; d < demands.size(); ++d) {
      i64 at = 0;
      for (const Part& part : parts[d]) {
        EXPECT_EQ(part.begin, at);
        EXPECT_LT(part.begin, part.end);
        at = part.end;
        EXPECT_TRUE(std::find(demands[d].candidates.begin(), demands[d].candidates.end(), part.rank) !=
                    demands[d].candidates.end());
        load[part.rank] += part.end - part.begin;
      }
      EXPECT_EQ(at, demands[d].elements);
    }
    if (!free) continue;
    const i64 mean = (total + ranks - 1) / ranks;
    for (const auto& [rank, elements] : load) EXPECT_LE(elements, mean + mean / 8 + ranks) << "rank " << rank;
  }
}

}  // namespace
}  // namespace switchyard::switching
