#include "train/stop_signals.hpp"

#include <atomic>
#include <ctime>
#include <mutex>

#include "base/dtype.hpp"
#include "base/errors.hpp"

namespace switchyard::train {
namespace {

constexpr i64 kSameRequest = 1'000'000'000;  // nanoseconds within which a further SIGTERM asks for the same

// A signal handler belongs to the process, so its state does, too. Handlers may use lock-free atomics only.
std::atomic<int> first_signal{0};
std::atomic<i64> asked{0};  // nanoseconds of the monotonic clock at the first SIGINT or SIGTERM, 0: none came
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<i64>::is_always_lock_free);

std::mutex users_mutex;
int users = 0;
std::array<struct sigaction, kStopSignals.size()> before{};

i64 nanoseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return i64{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void keep(int signal) {
  int none = 0;
  first_signal.compare_exchange_strong(none, signal);
  if (signal == SIGUSR1) return;
  const i64 now = nanoseconds();
  i64 never = 0;
  if (asked.compare_exchange_strong(never, now)) return;
  if (signal == SIGTERM && now - never < kSameRequest) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);  // takes effect when this handler returns
}

}  // namespace

StopSignals::StopSignals() {
  const std::lock_guard lock(users_mutex);
  if (users++ > 0) return;
  first_signal = 0;
  asked = 0;
  struct sigaction action {};
  action.sa_handler = keep;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kStopSignals.size(); ++i) {
    ::sigaction(kStopSignals[i], &action, &before[i]);
    if (before[i].sa_handler == SIG_IGN) ::sigaction(kStopSignals[i], &before[i], nullptr);
  }
  std::signal(SIGPIPE, SIG_IGN);
}

StopSignals::~StopSignals() {
  const std::lock_guard lock(users_mutex);
  if (--users > 0) return;
  for (size_t i = 0; i < kStopSignals.size(); ++i) ::sigaction(kStopSignals[i], &before[i], nullptr);
}

int StopSignals::received() { return first_signal; }

std::string answer_to_signal(int signal) {
  return fmt::format("{}: the run ends after this step; {}", name_of_signal(signal),
                     signal == SIGUSR1 ? "SIGINT twice ends it at once" : "another SIGINT or SIGTERM ends it at once");
}

std::string name_of_signal(int signal) {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    default:
      throw InternalError(fmt::format("signal {} is not kept", signal));
  }
}

}  // namespace switchyard::train
