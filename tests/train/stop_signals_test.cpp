#include "train/stop_signals.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <optional>

namespace switchyard::train {
namespace {

/// The signal that ends a process that does `work`; 0 if none does.
int ending_of(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(StopSignals, TheFirstIsKept) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1})
    EXPECT_EQ(ending_of([&] {
                const StopSignals signals;
                if (StopSignals::received() != 0) ::abort();
                ::raise(signal);
                if (StopSignals::received() != signal) ::abort();
              }),
              0)
        << name_of_signal(signal);
}

TEST(StopSignals, AnotherInterruptEndsTheProcess) {
  for (const int first : {SIGINT, SIGTERM})
    EXPECT_EQ(ending_of([&] {
                const StopSignals signals;
                ::raise(first);
                ::raise(SIGINT);
              }),
              SIGINT);
}

TEST(StopSignals, ATerminationThatIsSentTwiceIsOneRequestAndALaterOneEndsTheProcess) {
  EXPECT_EQ(ending_of([] {
              const StopSignals signals;
              ::raise(SIGTERM);
              ::raise(SIGTERM);
            }),
            0);
  EXPECT_EQ(ending_of([] {
              const StopSignals signals;
              ::raise(SIGINT);
              ::usleep(1'100'000);
              ::raise(SIGTERM);
            }),
            SIGTERM);
}

TEST(StopSignals, ASchedulersWarningIsNoReasonToEndAtTheFirstTermination) {
  EXPECT_EQ(ending_of([] {
              const StopSignals signals;
              ::raise(SIGUSR1);
              ::usleep(1'100'000);
              ::raise(SIGUSR1);
              ::raise(SIGTERM);
              if (StopSignals::received() != SIGUSR1) ::abort();
            }),
            0);
}

TEST(StopSignals, AreAnsweredWithWhatEndsTheProcessAtOnce) {
  EXPECT_EQ(answer_to_signal(SIGTERM),
            "SIGTERM: the run ends after this step; another SIGINT or SIGTERM ends it at once");
  EXPECT_EQ(answer_to_signal(SIGUSR1), "SIGUSR1: the run ends after this step; SIGINT twice ends it at once");
}

TEST(StopSignals, AnIgnoredSignalStaysIgnoredAndTheOldActionsComeBack) {
  EXPECT_EQ(ending_of([] {
              std::signal(SIGINT, SIG_IGN);
              std::optional<StopSignals> signals(std::in_place), of_another_rank(std::in_place);
              ::raise(SIGINT);
              if (StopSignals::received() != 0) ::abort();
              signals.reset();
              ::raise(SIGUSR1);
              if (StopSignals::received() != SIGUSR1) ::abort();
              of_another_rank.reset();
              ::raise(SIGTERM);
            }),
            SIGTERM);
}

}  // namespace
}  // namespace switchyard::train
