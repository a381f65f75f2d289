#include "files/run_lock.hpp"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/errors.hpp"
#include "scratch.hpp"

namespace switchyard::files {
namespace {

TEST(RunLock, KeepsASecondRunOutAndNamesTheFirst) {
  const Scratch scratch;
  const std::filesystem::path run = scratch / "a/run";
  {
    const RunLock lock = RunLock::take(run);
    EXPECT_TRUE(lock.held());
    EXPECT_TRUE(in_use(run));
    EXPECT_THAT(
        message_of<UserError>([&] { RunLock::take(run); }),
        testing::MatchesRegex(
            run.string() + " is in use by another run: process " + std::to_string(getpid()) +
            " on host .+, since ....-..-.. ..:..:.. UTC\\. Wait until it ends, end it, or choose another run.out\\."));
    EXPECT_TRUE(RunLock::take(scratch / "b").held());
  }
  EXPECT_FALSE(in_use(run)) << "the file remains";
  EXPECT_TRUE(has_lock(run));
  EXPECT_FALSE(in_use(scratch / "nothing"));
  EXPECT_FALSE(has_lock(scratch / "nothing"));
  EXPECT_TRUE(RunLock::take(run).held());
}

TEST(RunLock, IsFreeOnceItsProcessWasKilled) {
  const Scratch run;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const RunLock lock = RunLock::take(run.path());
    [[maybe_unused]] const ssize_t n = write(ready[1], "x", 1);
    pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_THAT(message_of<UserError>([&] { RunLock::take(run.path()); }),
              testing::HasSubstr("process " + std::to_string(child) + " on host"));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(RunLock::take(run.path()).held());
  EXPECT_THAT(get(run / "lock"), testing::StartsWith("process " + std::to_string(getpid()) + " on host"));
}

TEST(RunLock, NeedsAFolderItMayWrite) {
  const Scratch scratch;
  put(scratch / "file", "");
  EXPECT_THAT(message_of<UserError>([&] { RunLock::take(scratch / "file"); }),
              testing::HasSubstr((scratch / "file").string()));
}

}  // namespace
}  // namespace switchyard::files
