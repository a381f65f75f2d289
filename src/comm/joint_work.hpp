// Work of several ranks that may take longer than any message: files that are read or written.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "comm/fabric.hpp"

namespace switchyard::comm {

/// Signs of life for a fabric with this timeout: at least four within it, at least one a second.
std::chrono::milliseconds sign_interval(std::chrono::milliseconds timeout);

/// Joint work of a channel's members. While a member works, a thread of it exchanges signs of life with the others
/// every `interval`. So the fabric's timeout bounds the silence of a rank, not the time of its work: a slow disk is
/// waited for, a rank that died is missed. One object for each channel that only it uses. Not thread-safe.
class JointWork {
 public:
  JointWork(Fabric& fabric, Channel channel, std::chrono::milliseconds interval);

  /// Long work calls it now and then: throws ClusterError once another member is lost.
  using Check = std::function<void()>;

  /// Runs `work`, and returns when it has ended on all members. What it throws is thrown here, after the work of all
  /// members has ended; the other members then wait for this rank's abort of the fabric and throw what it says.
  /// ClusterError if a member is lost: after the own work has ended, or at its next check.
  void run(const std::string& name, const std::function<void(const Check&)>& work);

 private:
  Fabric& fabric_;
  Channel channel_;
  std::chrono::milliseconds interval_;
  i64 row_ = 0;
};

}  // namespace switchyard::comm
