#include "schedule/interleaved.hpp"

#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "schedule/replay.hpp"

namespace switchyard::schedule {
namespace {

TEST(Interleaved, two_stages_with_two_chunks_run_the_published_order) {
  const Schedule made = interleaved(2, 4, 2);
  EXPECT_EQ(to_string(made.order[0]), "F0 F1 F0.1 F1.1 F2 BW0.1 F3 BW1.1 F2.1 BW0 F3.1 BW1 BW2.1 BW3.1 BW2 BW3");
  EXPECT_EQ(to_string(made.order[1]), "F0 F1 F0.1 BW0.1 F1.1 BW1.1 F2 BW0 F3 BW1 F2.1 BW2.1 F3.1 BW3.1 BW2 BW3");
}

TEST(Interleaved, any_numbers_of_stages_micro_batches_and_chunks_verify) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int mbs = 0; mbs <= 20; ++mbs) {
      for (int chunks = 1; chunks <= 4; ++chunks) {
        const Schedule made = interleaved(stages, mbs, chunks);
        EXPECT_NO_THROW(verify(made)) << stages << " stages, " << mbs << " micro-batches, " << chunks << " chunks";
        for (const std::vector<Item>& items : made.order)
          EXPECT_EQ(items.size(), static_cast<size_t>(2 * mbs * chunks));
      }
    }
  }
}

TEST(Interleaved, idle_time_falls_to_that_of_one_chunk) {
  const Costs costs{.at = {{Seconds{1}, Seconds{1}, Seconds{1}}}};
  for (const int stages : {2, 4, 8}) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      const Timing timing = replay(interleaved(stages, 3 * stages, chunks), costs);
      EXPECT_EQ(timing.worst_idle(), Seconds{3.0 * (stages - 1)}) << stages << " stages, " << chunks << " chunks";
      EXPECT_EQ(timing.makespan, Seconds{3.0 * (3 * stages * chunks + stages - 1)});
    }
  }
}

TEST(Interleaved, one_chunk_is_1f1b) { EXPECT_EQ(interleaved(4, 7, 1), one_f_one_b(4, 7)); }

TEST(Interleaved, senseless_numbers_are_refused) {
  EXPECT_THROW(interleaved(0, 1, 1), InternalError);
  EXPECT_THROW(interleaved(1, -1, 1), InternalError);
  EXPECT_THROW(interleaved(1, 1, 0), InternalError);
}

}  // namespace
}  // namespace switchyard::schedule
