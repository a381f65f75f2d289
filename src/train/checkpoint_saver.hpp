// Checkpoints that are written while training goes on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <set>
#include <string>
#include <vector>

#include "train/checkpoint.hpp"

namespace switchyard::train {

/// One rank's side. All ranks begin the same checkpoints in the same order; what they write joins on a channel of its
/// own, so ranks need not wait for it at the same time. The destructor waits.
class CheckpointSaver {
 public:
  /// Collective. together: of all ranks, for nothing else. model_files: of rank 0. say: gets, on any thread, what is no
  /// error, such as an old checkpoint that can't be removed. Refers to job, plans and fabric.
  CheckpointSaver(const config::Job& job, const compiler::Plans& plans, comm::Fabric& fabric,
                  const comm::JointWork& together, files::ModelFiles model_files,
                  std::function<void(const std::string&)> say);

  /// Copies this rank's part of home and starts to write the copy, on a thread of its own. A failure ends the job on
  /// all ranks; the earlier checkpoint stays. InternalError unless the one before is finished.
  void begin(const StatePart& part, const TrainState& state);
  /// Writes without a copy, on the calling thread; complete on all ranks when it returns. Throws what failed.
  void save(const StatePart& part, const TrainState& state);
  /// Waits until what was begun is complete on all ranks, and drops the copy. Throws what failed.
  void finish();
  /// Waits as finish() does, but not longer than this, and throws nothing.
  void wait(std::chrono::milliseconds most) const;

  bool writing() const { return writing_; }
  /// Whether finish() will throw.
  bool failed() const { return failed_; }
  /// Bytes that a copy takes on this rank.
  i64 copy_bytes() const { return copy_bytes_; }
  /// Bytes of the copy that is kept now; 0: none.
  i64 copied_bytes() const { return copied_bytes_; }

 private:
  void tell(const std::vector<std::string>& remarks);

  const config::Job& job_;
  const compiler::Plans& plans_;
  comm::Fabric& fabric_;
  comm::JointWork together_;
  files::ModelFiles model_files_;
  std::function<void(const std::string&)> say_;
  std::set<std::string> remarked_;
  const i64 copy_bytes_;
  const std::uint32_t attempt_;
  std::atomic<bool> writing_ = false, failed_ = false;
  std::atomic<i64> copied_bytes_ = 0;
  std::future<void> writer_;  // its destructor waits
};

}  // namespace switchyard::train
