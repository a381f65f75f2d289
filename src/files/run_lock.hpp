// Keeps two runs out of one run folder.
#pragma once

#include <filesystem>

#include "files/disk.hpp"

namespace switchyard::files {

/// Holds RUN/lock with flock(2) while it lives. The kernel releases it when the process ends, even if it is killed; the
/// file remains, and says which process holds the lock or held it last. Between hosts the lock is only as good as the
/// file system's: NFS (Linux) and Lustre mounted with flock keep runs of different hosts apart, local locks only runs
/// of one host.
class RunLock {
 public:
  /// Makes the folder. UserError naming the process and host that hold the lock; ClusterError for the disk.
  static RunLock take(const std::filesystem::path& run);
  /// False where the file system has no locks: then nothing keeps a second run out.
  bool held() const { return held_; }

 private:
  Descriptor file_;
  bool held_ = false;
};

/// Whether there is a file RUN/lock, held or not.
bool has_lock(const std::filesystem::path& run);

/// Whether a run holds RUN/lock now. False also where there is no such file or the file system has no locks.
bool in_use(const std::filesystem::path& run);

}  // namespace switchyard::files
