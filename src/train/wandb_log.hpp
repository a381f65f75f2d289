// Weights & Biases, beside the log.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/dtype.hpp"
#include "files/disk.hpp"

namespace switchyard::train {

/// A Python process (switchyard_data/wandb_log.py) that follows the log in a run's folder and sends its lines. Where
/// the package wandb is missing, or the process can't be started, a note says so and the run goes on.
class WandbLog {
 public:
  /// first_step: lines of earlier steps were sent by the run that is resumed.
  WandbLog(const std::string& folder, i64 first_step);
  /// Waits until everything is sent.
  ~WandbLog();
  WandbLog(const WandbLog&) = delete;
  WandbLog& operator=(const WandbLog&) = delete;

 private:
  pid_t process_ = -1;
  files::Descriptor open_;  // the other end is the process's standard input, which ends with the run
};

}  // namespace switchyard::train
