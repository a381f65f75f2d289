#include "schedule/zeropp.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>

#include "../message_of.hpp"
#include "base/errors.hpp"

namespace switchyard::schedule {
namespace {

Costs equal(double f, double b, double w, double send = 0) {
  return {.at = {{Seconds{f}, Seconds{b}, Seconds{w}}}, .send = Seconds{send}};
}

double idle(const Schedule& made, const Costs& costs) { return replay(made, costs).worst_idle().count; }

TEST(ZeroPP, runs_a_block_through_one_chunk_after_the_other) {
  const Schedule made = zeropp(2, 3, 2, 3, equal(1, 1, 1));
  EXPECT_EQ(to_string(made.order[0]), "F0 F1 F2 F0.1 F1.1 F2.1 B0.1 W0.1 B1.1 W1.1 B2.1 W2.1 B0 B1 B2 W0 W1 W2");
  EXPECT_EQ(to_string(made.order[1]), "F0 F1 F2 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 W0.1 B0 B1 B2 W1.1 W2.1 W0 W1 W2");
}

// methods.md, section 5.
TEST(ZeroPP, idles_not_at_all_if_a_block_has_2p_minus_1_micro_batches_and_else_it_does) {
  const Costs units = equal(1, 1, 1);
  for (int stages = 1; stages <= 6; ++stages)
    for (int chunks = 1; chunks <= 3; ++chunks)
      for (int every = 1; every <= 2 * stages + 2; ++every)
        for (int blocks = 1; blocks <= 3; ++blocks) {
          const Schedule made = zeropp(stages, blocks * every, chunks, every, units);
          EXPECT_EQ(idle(made, units) == 0, every >= 2 * stages - 1)
              << stages << " stages, " << chunks << " chunks, " << blocks << " blocks of " << every;
        }
}

// A chunk's parameters are read in one stretch for the forward items of a block and in one for its gradient items, in
// the last chunk in one for both; weight gradients read none. So with those of the next stretch there are two chunks at
// most.
TEST(ZeroPP, reads_one_chunk_after_the_other_in_two_stretches_of_a_block) {
  std::mt19937 random(7);
  const auto pick = [&](int most) { return 1 + static_cast<int>(random() % static_cast<unsigned>(most)); };
  for (int round = 0; round < 60; ++round) {
    const int stages = pick(5), chunks = pick(4), every = pick(9), mbs = pick(30);
    Costs costs{.at = {}, .send = Seconds{0.1 * pick(5)}};
    for (int p = 0; p < stages * chunks; ++p)
      costs.at.push_back({Seconds{1.0 * pick(4)}, Seconds{1.0 * pick(4)}, Seconds{1.0 * pick(4)}});
    const Schedule made = zeropp(stages, mbs, chunks, every, costs);
    verify(made);
    const int blocks = (mbs + every - 1) / every;
    for (const std::vector<Item>& items : made.order) {
      std::vector<std::pair<int, int>> stretches;  // chunk, block
      std::set<std::pair<int, int>> weights;       // chunk, micro-batch: whose gradients of weights are to come
      for (const Item& item : items) {
        if (item.pass == Pass::W) {
          EXPECT_EQ(weights.erase({item.chunk, item.mb}), 1u);
          continue;
        }
        const std::pair stretch{item.chunk, item.mb / every};
        if (stretches.empty() || stretches.back() != stretch) {
          if (item.pass == Pass::F && item.chunk == 0) {
            EXPECT_TRUE(weights.empty()) << "of the block before";
          }
          stretches.push_back(stretch);
        }
        if (item.pass == Pass::B) weights.emplace(item.chunk, item.mb);
      }
      EXPECT_EQ(stretches.size(), static_cast<size_t>(blocks * (2 * chunks - 1)));
    }
  }
}

TEST(ZeroPP, keeps_few_weight_gradients_waiting_where_that_takes_no_time) {
  const Schedule made = zeropp(4, 32, 3, 16, equal(1, 1, 1));
  for (int stage = 0; stage < 4; ++stage) {
    int waiting = 0, most = 0;
    for (const Item& item : made.order[static_cast<size_t>(stage)]) {
      if (item.pass == Pass::B) most = std::max(most, ++waiting);
      if (item.pass == Pass::W) --waiting;
    }
    EXPECT_LE(most, 16 + 2 * stage);
  }
}

TEST(ZeroPP, is_never_longer_than_the_time_of_its_rules_and_takes_any_costs) {
  const Costs slow_last{.at = {{Seconds{1}, Seconds{1}, Seconds{1}},
                               {Seconds{1}, Seconds{1}, Seconds{1}},
                               {Seconds{1}, Seconds{1}, Seconds{1}},
                               {Seconds{2}, Seconds{2}, Seconds{2}}}};
  const Schedule made = zeropp(2, 8, 2, 4, slow_last);
  const Timing timing = replay(made, slow_last);
  EXPECT_GE(timing.makespan.count, 8 * (3 + 6) + 1);
  EXPECT_LE(timing.makespan.count, 1.1 * (8 * (3 + 6) + 1));
  EXPECT_TRUE(zeropp(3, 0, 2, 4, equal(1, 1, 1)).order[2].empty());
  verify(zeropp(3, 5, 2, 4, equal(0, 0, 0)));
}

TEST(ZeroPP, refuses_what_is_no_pipeline) {
  const auto error = [](int stages, int mbs, int chunks, int every) {
    return message_of<InternalError>([&] { zeropp(stages, mbs, chunks, every, equal(1, 1, 1)); });
  };
  EXPECT_EQ(error(0, 4, 2, 3), "zeropp: 0 stages, 4 micro-batches in blocks of 3 and 2 chunks");
  for (const auto& text : {error(2, -1, 2, 3), error(2, 4, 0, 3), error(2, 4, 2, 0)})
    EXPECT_THAT(text, testing::HasSubstr("zeropp: "));
  EXPECT_THROW(zeropp(2, 4, 2, 2, {.at = std::vector<ItemTimes>(3)}), InternalError);
}

}  // namespace
}  // namespace switchyard::schedule
