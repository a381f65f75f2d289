#include "train/checkpoint_saver.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../comm/rank_threads.hpp"
#include "../files/scratch.hpp"
#include "base/errors.hpp"
#include "comm/collectives.hpp"
#include "compiler/job_plans.hpp"
#include "kernels/memory.hpp"
#include "runtime/store.hpp"
#include "small_run.hpp"
#include "train/channels.hpp"
#include "train/weights.hpp"

namespace switchyard::train {
namespace {

/// Calls `work` on each of the job's ranks, with a store of random weights.
std::vector<std::string> on_ranks_of(
    const config::Job& job, const std::function<void(CheckpointSaver&, const StatePart&, runtime::Store&)>& work) {
  return comm::run_ranks(job.run.ranks, {}, [&](comm::Fabric& fabric) {
    const compiler::Plans plans = compiler::plans_of(job, fabric.cluster());
    runtime::Store store(plans, fabric.rank(), at::kCPU);
    store.home.initialize(random_weights(plans.graph(), 5));
    CheckpointSaver saver(job, plans, fabric,
                          {fabric, comm::everyone(fabric, kCheckpointChannel), std::chrono::milliseconds(10)},
                          {{"config.json", "{}"}}, [](const std::string&) {});
    work(saver, state_part(plans, store, fabric.rank()), store);
  });
}

TEST(CheckpointSaver, TheStoreMayChangeWhileACopyIsWritten) {
  kernels::install_rank_allocator();
  const Scratch scratch;
  const config::Job job = small_job("unused", (scratch / "run").string());
  const auto ends = on_ranks_of(job, [](CheckpointSaver& saver, const StatePart& part, runtime::Store& store) {
    {
      kernels::RankMemory memory(i64{1} << 30);
      const kernels::MemoryScope scope(&memory);
      const StatePart copy = part.copy();
      EXPECT_EQ(memory.live(), saver.copy_bytes());
    }
    saver.begin(part, {.step = 1, .places = {{}}});
    store.home.initialize([](int, const layout::Box&, at::Tensor values) { values.fill_(7); });
    saver.finish();
    EXPECT_FALSE(saver.writing());
    EXPECT_EQ(saver.copied_bytes(), 0);
    store.home.initialize([](int, const layout::Box&, at::Tensor values) { values.fill_(0); });
  });
  EXPECT_EQ(ends, std::vector<std::string>(2));
  EXPECT_EQ(on_ranks_of(job,
                        [&](CheckpointSaver&, const StatePart& part, runtime::Store& store) {
                          const StatePart expected = part.copy();
                          const compiler::Plans plans = compiler::plans_of(job, cluster::uniform(1, 2));
                          load_checkpoint((scratch / "run").string(), plans, store, job);
                          for (size_t b = 0; b < part.boxes.size(); ++b)
                            EXPECT_TRUE(part.boxes[b].values.equal(expected.boxes[b].values))
                                << part.boxes[b].entry.key;
                        }),
            std::vector<std::string>(2));
}

TEST(CheckpointSaver, AFailureIsThrownByTheNextFinishAndEndsTheJobOfAll) {
  const Scratch scratch;
  files::put(scratch / "run", "no folder");
  const auto ends = on_ranks_of(small_job("unused", (scratch / "run").string()),
                                [](CheckpointSaver& saver, const StatePart& part, runtime::Store&) {
                                  saver.begin(part, {.step = 1, .places = {{}}});
                                  saver.finish();
                                });
  EXPECT_THAT(ends, testing::Each(testing::HasSubstr((scratch / "run").string())));
}

}  // namespace
}  // namespace switchyard::train
