#include "layout/verify.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "../message_of.hpp"
#include "base/errors.hpp"
#include "layout/slices.hpp"
#include "random_maps.hpp"

namespace switchyard::layout {
namespace {

using testing::HasSubstr;

Box range(i64 lo, i64 hi) { return {1, {lo}, {hi}}; }
Shard shard(int rank, i64 lo, i64 hi, int partial = 0) { return {rank, partial, range(lo, hi)}; }
ShardMap map(std::vector<Shard> shards, int partials = 1) { return {plain({8}), partials, std::move(shards)}; }

using Maps = std::vector<ShardMap>;

void verify_copy(const Rounds& plan, const Maps& from, const Maps& to) {
  verify_copied(std::vector<std::span<const Msg>>(plan.rounds.begin(), plan.rounds.end()), from, to);
}
void verify_sum(const Rounds& plan, const Maps& from, const Maps& to) {
  verify_summed(std::vector<std::span<const Msg>>(plan.rounds.begin(), plan.rounds.end()), from, to);
}

std::string proved_or(const std::string& error) { return error == "no error" ? "proved" : error; }
std::string copy_error(const Rounds& plan, const ShardMap& from, const ShardMap& to) {
  return proved_or(message_of<InternalError>([&] { verify_copy(plan, {from}, {to}); }));
}
std::string sum_error(const Rounds& plan, const ShardMap& from, const ShardMap& to) {
  return proved_or(message_of<InternalError>([&] { verify_sum(plan, {from}, {to}); }));
}

const ShardMap kFrom = map({shard(0, 0, 8)}), kTo = map({shard(1, 0, 8), shard(2, 0, 8)});

TEST(VerifyCopy, proves_a_relay) {
  EXPECT_EQ(copy_error({{{{0, 1, 0, range(0, 8)}}, {{1, 2, 0, range(0, 8)}}}}, kFrom, kTo), "proved");
}

TEST(VerifyCopy, wants_one_local_message_for_what_a_rank_holds) {
  EXPECT_EQ(copy_error({{{{0, 0, 0, range(2, 6)}}}}, kFrom, map({shard(0, 2, 6)})), "proved");
  EXPECT_THAT(copy_error({{{{0, 0, 0, range(2, 6)}, {0, 0, 0, range(2, 3)}}}}, kFrom, map({shard(0, 2, 6)})),
              HasSubstr("placed twice"));
  EXPECT_EQ(copy_error({{{{0, 0, 0, range(2, 5)}}}}, kFrom, map({shard(0, 2, 6)})),
            "tensor 0 box [5,6) is not copied on rank 0, which holds it");
  EXPECT_THAT(copy_error({{{{0, 1, 0, range(0, 8)}}, {{1, 1, 0, range(0, 8)}}}}, kFrom, map({shard(1, 0, 8)})),
              HasSubstr("a local copy of what was not held before"));
}

TEST(VerifyCopy, sees_a_part_that_a_rank_holds_apart_from_the_rest) {
  EXPECT_EQ(copy_error({{{{0, 0, 0, range(0, 3)}}}}, map({shard(0, 0, 3)}), map({shard(0, 0, 8)})),
            "tensor 0 box [3,8) never reaches rank 0");
  EXPECT_THAT(copy_error({}, map({shard(0, 0, 3)}), map({shard(0, 0, 8)})), HasSubstr("box [0,3) is not copied"));
}

TEST(VerifyCopy, finds_what_never_arrives) {
  EXPECT_THAT(copy_error({{{{0, 1, 0, range(0, 8)}, {0, 2, 0, range(0, 5)}}}}, kFrom, kTo),
              HasSubstr("tensor 0 box [5,8) never reaches rank 2"));
}

TEST(VerifyCopy, finds_what_arrives_twice) {
  EXPECT_THAT(copy_error({{{{0, 1, 0, range(0, 8)}, {0, 1, 0, range(3, 4)}}}}, kFrom, kTo),
              HasSubstr("tensor 0 box [3,4) from rank 0 to rank 1 in round 0: the destination has [3,4) already"));
  EXPECT_THAT(copy_error({{{{0, 1, 0, range(0, 8)}}}}, map({shard(0, 0, 8), shard(1, 0, 8)}), map({shard(1, 0, 8)})),
              HasSubstr("has [0,8) already"));
}

TEST(VerifyCopy, finds_a_source_that_has_nothing_yet) {
  EXPECT_THAT(copy_error({{{{0, 1, 0, range(0, 8)}, {1, 2, 0, range(0, 8)}}}}, kFrom, kTo),
              HasSubstr("from rank 1 to rank 2 in round 0: the source does not hold it then"));
}

TEST(VerifyCopy, finds_messages_outside_the_shards) {
  EXPECT_THAT(copy_error({{{{0, 3, 0, range(0, 8)}}}}, kFrom, kTo),
              HasSubstr("to rank 3 in round 0: not inside one destination shard"));
  EXPECT_THAT(copy_error({{{{3, 1, 0, range(0, 8)}}}}, kFrom, kTo), HasSubstr("not inside one shard of the source"));
  EXPECT_THAT(copy_error({{{{0, 1, 0, range(2, 6)}}}}, map({shard(0, 0, 4), shard(0, 4, 8)}), kTo),
              HasSubstr("not inside one shard of the source"));
}

TEST(VerifyCopy, finds_malformed_plans) {
  for (const int tensor : {-1, 1})
    EXPECT_EQ(copy_error({{{{0, 1, tensor, range(0, 8)}}}}, kFrom, kTo),
              fmt::format("message of tensor {} of 1", tensor));
  EXPECT_THAT(copy_error({{{{0, 1, 0, range(4, 4)}}}}, kFrom, kTo), HasSubstr("empty message"));
  EXPECT_THAT(copy_error({}, map({shard(0, 0, 8, 1)}, 2), kTo), HasSubstr("copied with 2 partials"));
  EXPECT_THAT(copy_error({}, kFrom, map({shard(0, 0, 8)}, 2)), HasSubstr("copied with 1 partials to 2"));
  for (const auto verify : {verify_copied, verify_summed})
    EXPECT_EQ(message_of<InternalError>([&] { verify({}, {kFrom}, {}); }), "1 tensors become 0");
}

const ShardMap kPartials = map({shard(0, 0, 8, 0), shard(1, 0, 8, 1), shard(2, 0, 8, 2)}, 3),
               kOwner = map({shard(2, 0, 8)});

TEST(VerifySum, proves_a_relay_to_an_owner_that_has_its_own_partial) {
  EXPECT_EQ(
      sum_error({{{{0, 1, 0, range(0, 8)}}, {{1, 2, 0, range(0, 8)}}, {{2, 2, 0, range(0, 8)}}}}, kPartials, kOwner),
      "proved");
}

TEST(VerifySum, proves_sends_to_an_owner_that_has_none) {
  EXPECT_EQ(sum_error({{{{0, 5, 0, range(0, 8)}, {1, 5, 0, range(0, 8)}, {2, 5, 0, range(0, 8)}}}}, kPartials,
                      map({shard(5, 0, 8)})),
            "proved");
}

TEST(VerifySum, a_message_carries_the_sum_at_the_start_of_its_round) {
  EXPECT_THAT(
      sum_error({{{{0, 1, 0, range(0, 8)}, {1, 2, 0, range(0, 8)}}, {{2, 2, 0, range(0, 8)}}}}, kPartials, kOwner),
      HasSubstr("tensor 0 box [0,8) on rank 2 has partial 0 0 times"));
}

TEST(VerifySum, finds_partials_missing_or_counted_twice) {
  EXPECT_THAT(sum_error({{{{0, 2, 0, range(0, 8)}, {1, 2, 0, range(0, 8)}}}}, kPartials, kOwner),
              HasSubstr("partial 0 0 times"))
      << "the owner's running sum never reaches the destination";
  EXPECT_THAT(
      sum_error(
          {{{{0, 1, 0, range(0, 8)}, {0, 2, 0, range(0, 4)}}, {{1, 2, 0, range(0, 8)}}, {{2, 2, 0, range(0, 8)}}}},
          kPartials, kOwner),
      HasSubstr("box [0,4) on rank 2 has partial 0 2 times"));
}

TEST(VerifySum, finds_messages_outside_the_shards) {
  EXPECT_THAT(sum_error({{{{4, 2, 0, range(0, 8)}}}}, kPartials, kOwner),
              HasSubstr("not inside one shard of the source"));
  EXPECT_THAT(sum_error({{{{0, 4, 0, range(0, 8)}}}}, kPartials, kOwner),
              HasSubstr("to rank 4 in round 0: the destination neither holds nor owns it"));
  const ShardMap half = map({shard(0, 0, 8, 0), shard(1, 0, 4, 1), shard(2, 4, 8, 1)}, 2);
  EXPECT_THAT(sum_error({{{{0, 1, 0, range(2, 6)}}}}, half, kOwner),
              HasSubstr("not inside one shard of the destination"));
  const ShardMap in_two = map({shard(0, 0, 8, 0), shard(1, 0, 4, 1), shard(1, 4, 8, 1)}, 2);
  EXPECT_THAT(sum_error({{{{0, 1, 0, range(0, 8)}}}}, in_two, map({shard(1, 0, 8)})),
              HasSubstr("not inside one shard of the destination"));
}

TEST(VerifySum, refuses_overlapping_sources_several_owners_and_several_partials) {
  EXPECT_THAT(sum_error({}, map({shard(0, 0, 8, 0), shard(0, 4, 8, 1)}, 2), kOwner),
              HasSubstr("box [4,8) is in two source shards of rank 0"));
  EXPECT_THAT(sum_error({}, kPartials, kTo), HasSubstr("held by ranks 1 and 2"));
  EXPECT_THAT(sum_error({}, kPartials, kPartials), HasSubstr("summed into 3 partials"));
}

TEST(VerifySum, refuses_a_partial_that_the_map_does_not_have) {
  for (const int partial : {-1, 2})
    EXPECT_EQ(sum_error({}, map({shard(0, 0, 8, 0), shard(1, 0, 8, partial)}, 2), kOwner),
              fmt::format("tensor 0 has partial {} of 2 on rank 1", partial));
}

/// Two tensors with equal maps and messages.
struct Twins {
  Rounds plan;
  Maps from, to;
};

TEST(VerifyCopy, finds_any_difference_of_a_tensor_that_is_wrong_from_one_that_is_right) {
  const auto error = [](const std::function<void(Twins&)>& change) {
    Twins twins{{{{}, {}}}, {kFrom, kFrom}, {kTo, kTo}};
    for (const int tensor : {0, 1}) {
      twins.plan.rounds[0].push_back({0, 1, tensor, range(0, 8)});
      twins.plan.rounds[1].push_back({1, 2, tensor, range(0, 8)});
    }
    change(twins);
    return message_of<InternalError>([&] { verify_copy(twins.plan, twins.from, twins.to); });
  };
  EXPECT_EQ(error([](Twins&) {}), "no error");
  for (const auto& on_rank_3 : std::vector<std::function<void(Twins&)>>{
           [](Twins& t) { t.plan.rounds[1][1].src = 3; }, [](Twins& t) { t.plan.rounds[1][1].dst = 3; },
           [](Twins& t) { t.from[1].shards[0].rank = 3; }, [](Twins& t) { t.to[1].shards[1].rank = 3; }})
    EXPECT_THAT(error(on_rank_3), HasSubstr("tensor 1 box [0,8) from rank"));
  EXPECT_THAT(error([](Twins& t) { t.plan.rounds[1][1].box = range(0, 7); }),
              HasSubstr("tensor 1 box [7,8) never reaches rank 2"));
  EXPECT_THAT(error([](Twins& t) { t.plan.rounds[1].pop_back(); }),
              HasSubstr("tensor 1 box [0,8) never reaches rank 2"));
  EXPECT_THAT(error([](Twins& t) {
                t.plan.rounds[0].push_back(t.plan.rounds[1][1]);
                t.plan.rounds[1].pop_back();
              }),
              HasSubstr("tensor 1 box [0,8) from rank 1 to rank 2 in round 0: the source does not hold it then"));
  EXPECT_THAT(error([](Twins& t) { t.from[1].shards[0].box = range(0, 7); }),
              HasSubstr("tensor 1 box [0,8) from rank 0 to rank 1 in round 0: not inside one shard of the source"));
  EXPECT_THAT(error([](Twins& t) { t.to[1].shards.push_back(shard(3, 0, 8)); }),
              HasSubstr("tensor 1 box [0,8) never reaches rank 3"));
  EXPECT_THAT(error([](Twins& t) { t.from[1].partials = 2; }), HasSubstr("tensor 1 is copied with 2 partials to 1"));
  EXPECT_THAT(error([](Twins& t) { t.to[1].partials = 2; }), HasSubstr("tensor 1 is copied with 1 partials to 2"));
}

TEST(VerifySum, finds_any_difference_of_a_tensor_that_is_wrong_from_one_that_is_right) {
  const auto error = [](const std::function<void(Twins&)>& change) {
    Twins twins{{{{}, {}}}, {kPartials, kPartials}, {kOwner, kOwner}};
    for (const int tensor : {0, 1}) {
      for (const int rank : {0, 1}) twins.plan.rounds[0].push_back({rank, 2, tensor, range(0, 8)});
      twins.plan.rounds[1].push_back({2, 2, tensor, range(0, 8)});
    }
    change(twins);
    return message_of<InternalError>([&] { verify_sum(twins.plan, twins.from, twins.to); });
  };
  EXPECT_EQ(error([](Twins&) {}), "no error");
  EXPECT_THAT(error([](Twins& t) { t.from[1].partials = 4; }),
              HasSubstr("tensor 1 box [0,8) on rank 2 has partial 3 0"));
  EXPECT_THAT(error([](Twins& t) { t.from[1].shards[1].partial = 0; }),
              HasSubstr("tensor 1 box [0,8) on rank 2 has partial 0 2 times"));
  EXPECT_THAT(error([](Twins& t) { t.to[1].shape = plain({9}); }), HasSubstr("box [8,9) of partial 0 is on no rank"));
}

TEST(VerifyCopy, leaves_out_only_tensors_that_nobody_has_wants_or_sends) {
  const ShardMap nothing = map({});
  EXPECT_EQ(copy_error({}, nothing, nothing), "proved");
  EXPECT_EQ(sum_error({}, nothing, nothing), "proved");
  EXPECT_EQ(copy_error({}, kFrom, nothing), "proved");
  EXPECT_THAT(copy_error({{{{0, 1, 0, range(0, 8)}}}}, nothing, nothing),
              HasSubstr("not inside one destination shard"));
  EXPECT_THAT(copy_error({{{{0, 1, 0, range(0, 8)}}}}, kFrom, nothing), HasSubstr("not inside one destination shard"));
  EXPECT_THAT(copy_error({}, nothing, kTo), HasSubstr("never reaches rank 1"));
  EXPECT_THAT(sum_error({}, kPartials, nothing), HasSubstr("box [0,8) of partial 0 is on no rank"));
}

/// Copies each slice from the receiver itself or from its first holder.
Rounds copies(const ShardMap& from, const ShardMap& to) {
  Rounds plan{{{}}};
  for (const Slice& slice : slices(from, to))
    for (const int taker : slice.takers) {
      const bool here = std::ranges::count(slice.holders, taker) > 0;
      plan.rounds[0].push_back({here ? taker : slice.holders[0], taker, 0, slice.box});
    }
  return plan;
}

/// Brings each partial to its owner from the first holder; the owner's own sum follows.
Rounds sums(const ShardMap& from, const ShardMap& owners) {
  Rounds plan{{{}, {}}};
  for (const Slice& slice : slices(from, owners))
    for (int partial = 0; partial < from.partials; ++partial) {
      const std::vector<int> holders = slice.holders_of(partial);
      const int owner = slice.takers[0];
      const bool here = std::ranges::count(holders, owner) > 0;
      plan.rounds[here ? 1 : 0].push_back({here ? owner : holders.at(0), owner, 0, slice.box});
    }
  return plan;
}

/// Any single change of a right plan is found: the verifier sees each message.
TEST(VerifyProperties, a_plan_with_a_message_lost_or_doubled_is_refused) {
  int tried = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    RandomMaps random(seed);
    const Shape shape = random.shape();
    const ShardMap a = random.map(shape, 8, false), b = random.map(shape, 8, false);
    const Rounds plan = copies(a, b);
    ASSERT_NO_THROW(verify_copy(plan, {a}, {b}));
    for (size_t m = 0; m < plan.rounds[0].size(); ++m) {
      Rounds lost = plan, doubled = plan;
      lost.rounds[0].erase(lost.rounds[0].begin() + static_cast<std::ptrdiff_t>(m));
      doubled.rounds[0].push_back(plan.rounds[0][m]);
      ASSERT_THROW(verify_copy(lost, {a}, {b}), InternalError);
      ASSERT_THROW(verify_copy(doubled, {a}, {b}), InternalError);
      ++tried;
    }
  }
  EXPECT_GT(tried, 200);
}

TEST(VerifyProperties, a_sum_with_a_message_lost_or_doubled_is_refused) {
  int tried = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    RandomMaps random(seed);
    const Shape shape = random.shape();
    const ShardMap a = random.map(shape, 8, true), b = one_owner(random.map(shape, 8, false));
    if (a.partials == 1) continue;
    Rounds plan = sums(a, b);
    ASSERT_NO_THROW(verify_sum(plan, {a}, {b}));
    for (auto& round : plan.rounds) {
      for (size_t m = 0; m < round.size(); ++m) {
        const Msg msg = round[m];
        round.push_back(msg);
        ASSERT_THROW(verify_sum(plan, {a}, {b}), InternalError);
        round.pop_back();
        round.erase(round.begin() + static_cast<std::ptrdiff_t>(m));
        ASSERT_THROW(verify_sum(plan, {a}, {b}), InternalError);
        round.insert(round.begin() + static_cast<std::ptrdiff_t>(m), msg);
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 200);
}

}  // namespace
}  // namespace switchyard::layout
