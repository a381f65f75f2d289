// Work of several ranks that may take longer than any message: files that are read or written.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "comm/fabric.hpp"

namespace switchyard::comm {

/// Time between signs of life for a fabric with this timeout: at least four within it, at least one per second.
std::chrono::milliseconds sign_interval(std::chrono::milliseconds timeout);

/// Joint work of a channel's members. While a member works, one of its threads exchanges signs of life with the others
/// every `interval`. The fabric's timeout thus bounds the silence of a rank and not its work: a slow disk is waited
/// for, a dead rank is noticed. Each object needs a channel of its own. Not thread-safe.
class JointWork {
 public:
  JointWork(Fabric& fabric, Channel channel, std::chrono::milliseconds interval);

  /// Long work calls this now and then; it throws ClusterError once another member is lost.
  using Check = std::function<void()>;

  /// Runs `work`, and returns when it has ended on all members. An exception of `work` is rethrown after the work of
  /// all members has ended; the other members then wait for this rank's abort of the fabric and throw its reason.
  /// ClusterError if a member is lost: after this rank's work has ended, or at its next check.
  void run(const std::string& name, const std::function<void(const Check&)>& work);

 private:
  Fabric& fabric_;
  Channel channel_;
  std::chrono::milliseconds interval_;
  i64 row_ = 0;
};

}  // namespace switchyard::comm
