#include "train/wandb_log.hpp"

#include <gtest/gtest.h>

#include "../files/scratch.hpp"

namespace switchyard::train {
namespace {

// tests/system/test_wandb.py has the other side.
TEST(WandbLog, waits_for_the_process_that_it_ends_by_closing_its_input) {
  const Scratch scratch;
  std::ofstream(scratch / "python") << "#!/bin/sh\ncat >/dev/null\nsleep 0.2\necho \"$@\" >" << scratch.path().string()
                                    << "/ended\n";
  std::filesystem::permissions(scratch / "python", std::filesystem::perms::owner_all);
  ::setenv("SWITCHYARD_PYTHON", (scratch / "python").c_str(), 1);
  ::setenv("SWITCHYARD_ROOT", SWITCHYARD_SOURCE, 1);
  {
    const WandbLog log("the run", 5);
    EXPECT_FALSE(std::filesystem::exists(scratch / "ended"));
  }
  ::unsetenv("SWITCHYARD_PYTHON");
  ::unsetenv("SWITCHYARD_ROOT");
  EXPECT_TRUE(files::get(scratch / "ended").ends_with(" switchyard_data.wandb_log the run --from 5\n"));
}

}  // namespace
}  // namespace switchyard::train
