#include "schedule/schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/errors.hpp"

namespace switchyard::schedule {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(const Order& order) {
  try {
    verify(order);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Schedule, one_f_one_b_of_four_stages_and_eight_micro_batches_is_the_published_order) {
  const Order order = one_f_one_b(4, 8).order;
  ASSERT_EQ(order.size(), 4u);
  EXPECT_EQ(to_string(order[0]), "F0 F1 F2 F3 BW0 F4 BW1 F5 BW2 F6 BW3 F7 BW4 BW5 BW6 BW7");
  EXPECT_EQ(to_string(order[1]), "F0 F1 F2 BW0 F3 BW1 F4 BW2 F5 BW3 F6 BW4 F7 BW5 BW6 BW7");
  EXPECT_EQ(to_string(order[2]), "F0 F1 BW0 F2 BW1 F3 BW2 F4 BW3 F5 BW4 F6 BW5 F7 BW6 BW7");
  EXPECT_EQ(to_string(order[3]), "F0 BW0 F1 BW1 F2 BW2 F3 BW3 F4 BW4 F5 BW5 F6 BW6 F7 BW7");
}

TEST(Schedule, gpipe_runs_all_forwards_first_on_every_stage) {
  for (const std::vector<Item>& stage : gpipe(3, 3).order) EXPECT_EQ(to_string(stage), "F0 F1 F2 BW0 BW1 BW2");
}

TEST(Schedule, every_item_runs_once_and_every_order_verifies) {
  for (const auto schedule_of : {gpipe, one_f_one_b}) {
    for (int stages = 1; stages <= 6; ++stages) {
      for (int mbs = 0; mbs <= 9; ++mbs) {
        const Order order = schedule_of(stages, mbs).order;
        EXPECT_NO_THROW(verify(order)) << stages << " stages, " << mbs << " micro-batches";
        for (const std::vector<Item>& items : order) {
          std::set<std::tuple<Pass, int, int>> seen;
          for (const Item& item : items) seen.insert({item.pass, item.chunk, item.mb});
          EXPECT_EQ(items.size(), static_cast<size_t>(2 * mbs));
          EXPECT_EQ(seen.size(), items.size());
        }
      }
    }
  }
}

TEST(Schedule, one_f_one_b_keeps_p_minus_s_micro_batches_and_gpipe_all) {
  EXPECT_THAT(peak_in_flight(one_f_one_b(4, 8).order), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(peak_in_flight(one_f_one_b(4, 2).order), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(peak_in_flight(gpipe(4, 8).order), ElementsAre(8, 8, 8, 8));
  EXPECT_THAT(peak_in_flight(gpipe(2, 0).order), ElementsAre(0, 0));
}

TEST(Schedule, an_activation_is_alive_until_its_weight_gradient) {
  const Order order{
      {{Pass::F, 0, 0}, {Pass::B, 0, 0}, {Pass::F, 0, 1}, {Pass::B, 0, 1}, {Pass::W, 0, 0}, {Pass::W, 0, 1}}};
  EXPECT_NO_THROW(verify(order));
  EXPECT_THAT(peak_in_flight(order), ElementsAre(2));
}

TEST(Schedule, a_cycle_between_stages_is_printed) {
  const Order order{{{Pass::F, 0, 0}, {Pass::BW, 0, 0}, {Pass::F, 0, 1}, {Pass::BW, 0, 1}},
                    {{Pass::F, 0, 0}, {Pass::F, 0, 1}, {Pass::BW, 0, 0}, {Pass::BW, 0, 1}}};
  EXPECT_EQ(
      error_of(order),
      "schedule: the order deadlocks: stage 1 at F1 waits for F1 of stage 0; stage 0 at BW0 waits for BW0 of stage 1");
}

TEST(Schedule, a_backward_before_its_own_forward_is_a_cycle_of_one_stage) {
  EXPECT_EQ(error_of({{{Pass::BW, 0, 0}, {Pass::F, 0, 0}}}),
            "schedule: the order deadlocks: stage 0 at BW0 waits for F0 of stage 0");
}

TEST(Schedule, a_weight_gradient_waits_for_its_input_gradient) {
  EXPECT_THAT(error_of({{{Pass::F, 0, 0}, {Pass::W, 0, 0}, {Pass::B, 0, 0}}}),
              HasSubstr("stage 0 at W0 waits for B0 of stage 0"));
}

TEST(Schedule, chunks_follow_each_other_through_all_stages) {
  const Order order{{{Pass::F, 0, 0}, {Pass::F, 1, 0}, {Pass::BW, 1, 0}, {Pass::BW, 0, 0}},
                    {{Pass::F, 0, 0}, {Pass::F, 1, 0}, {Pass::BW, 1, 0}, {Pass::BW, 0, 0}}};
  EXPECT_NO_THROW(verify(order));
  Order wrong = order;
  std::swap(wrong[0][0], wrong[0][1]);
  EXPECT_THAT(error_of(wrong), HasSubstr("stage 0 at F0.1 waits for F0 of stage 1"));
}

TEST(Schedule, missing_repeated_and_unknown_items_are_refused) {
  EXPECT_EQ(error_of({{{Pass::F, 0, 0}}}), "schedule: stage 0 never runs B0 (or BW)");
  EXPECT_EQ(error_of({{{Pass::F, 0, 0}, {Pass::B, 0, 0}}}), "schedule: stage 0 never runs W0");
  EXPECT_EQ(error_of({{{Pass::F, 0, 0}, {Pass::BW, 0, 0}}, {}}), "schedule: stage 1 never runs F0");
  EXPECT_EQ(error_of({{{Pass::F, 0, 0}, {Pass::BW, 0, 0}, {Pass::BW, 0, 0}}}), "schedule: stage 0 runs BW0 twice");
  EXPECT_EQ(error_of({{{Pass::F, 0, 0}, {Pass::BW, 0, 0}, {Pass::W, 0, 0}}}),
            "schedule: stage 0 runs W0 after BW0, which has the weight gradient");
  EXPECT_EQ(error_of({{{Pass::F, 0, -1}}}), "schedule: stage 0 has a negative chunk or micro-batch in F-1");
}

TEST(Schedule, numbers_beyond_those_of_the_schedule_and_missing_micro_batches_are_refused) {
  const auto error = [](const Schedule& given) {
    try {
      verify(given);
    } catch (const InternalError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const Order one{{{Pass::F, 0, 0}, {Pass::BW, 0, 0}}};
  EXPECT_EQ(error({.order = one, .mbs = 1}), "no error");
  EXPECT_EQ(error({.order = one, .mbs = 0}),
            "schedule: stage 0 has F0, but chunks end before 1, micro-batches before 0");
  EXPECT_EQ(error({.order = one, .mbs = 1 << 30}), "schedule: stage 0 never runs F1");
  EXPECT_EQ(error({.order = one, .mbs = 1, .chunks = 2}), "schedule: stage 0 never runs F0.1");
  EXPECT_EQ(error({.order = one, .mbs = 1, .chunks = 0}), "schedule: 1 stages with 0 chunks and 1 micro-batches");
}

TEST(Schedule, in_a_v_every_other_chunk_runs_back) {
  std::vector<int> loop, back;
  for (int chunk = 0; chunk < 3; ++chunk) {
    for (int stage = 0; stage < 3; ++stage) {
      loop.push_back(position_of(Placement::loop, 3, stage, chunk));
      back.push_back(position_of(Placement::v, 3, stage, chunk));
      EXPECT_EQ(stage_of(Placement::loop, 3, loop.back()), stage);
      EXPECT_EQ(stage_of(Placement::v, 3, back.back()), stage);
    }
  }
  EXPECT_THAT(loop, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(back, ElementsAre(0, 1, 2, 5, 4, 3, 6, 7, 8));
  EXPECT_EQ(name_of(Placement::loop), "loop");
  EXPECT_EQ(name_of(Placement::v), "v");
}

TEST(Schedule, in_a_v_the_second_chunk_of_the_last_stage_comes_first) {
  Schedule made{.order = {{{Pass::F, 0, 0}, {Pass::F, 1, 0}, {Pass::BW, 1, 0}, {Pass::BW, 0, 0}},
                          {{Pass::F, 0, 0}, {Pass::F, 1, 0}, {Pass::BW, 1, 0}, {Pass::BW, 0, 0}}},
                .mbs = 1,
                .chunks = 2,
                .placement = Placement::v};
  EXPECT_NO_THROW(verify(made));
  std::swap(made.order[1][0], made.order[1][1]);
  EXPECT_THROW(verify(made), InternalError);
}

TEST(Schedule, memory_counts_activations_until_w_and_output_gradients_from_b_to_w) {
  const std::vector<Item> split{{Pass::F, 0, 0}, {Pass::F, 0, 1}, {Pass::B, 0, 0},
                                {Pass::B, 0, 1}, {Pass::W, 0, 0}, {Pass::W, 0, 1}};
  const std::vector<Item> joined{{Pass::F, 0, 0}, {Pass::BW, 0, 0}, {Pass::F, 0, 1}, {Pass::BW, 0, 1}};
  EXPECT_THAT(peak_bytes({split, joined}, Bytes{100}, Bytes{7}), ElementsAre(Bytes{214}, Bytes{107}));
}

TEST(Schedule, no_stages_or_negative_micro_batches_are_refused) {
  EXPECT_THROW(gpipe(0, 1), InternalError);
  EXPECT_THROW(gpipe(1, -1), InternalError);
}

}  // namespace
}  // namespace switchyard::schedule
