// Signals that ask a run to stop.
#pragma once

#include <array>
#include <csignal>
#include <string>

namespace switchyard::train {

inline constexpr std::array kStopSignals = {SIGINT, SIGTERM, SIGUSR1};

/// While one lives, the first SIGINT, SIGTERM or SIGUSR1 (Slurm's --signal) does not end this process, but is kept for
/// the run, which stops after its step. After a SIGINT or SIGTERM another one ends the process at once; a SIGTERM only
/// if it comes more than a second later, because a launcher may pass on what the scheduler has sent to all processes. A
/// SIGINT that was ignored before stays ignored. Ranks that are threads have one each. From the first one on SIGPIPE is
/// ignored: that nobody reads the output any more, such as `tee` after a Ctrl-C, ends no run.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The first signal since this object was made, 0: none. From any thread.
  static int received();
};

/// "SIGTERM: the run ends after this step; another SIGINT or SIGTERM ends it at once".
std::string answer_to_signal(int signal);
/// "SIGTERM"; of one that StopSignals keeps.
std::string name_of_signal(int signal);

}  // namespace switchyard::train
