// How a round of messages falls apart into transactions that share no rank.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "layout/message_list.hpp"
#include "layout/messages.hpp"

namespace switchyard::compiler {

/// Ranks that exchange messages are in one part, named by the lowest of them. Those that have messages to themselves
/// only share the part kLocal.
class RoundParts {
 public:
  static constexpr int kLocal = -1, kNone = -2;

  explicit RoundParts(std::span<const layout::Msg> round);
  /// kNone: the rank has no message.
  int of(int rank) const;
  /// One more than the highest rank.
  int ranks() const { return static_cast<int>(part_.size()); }

 private:
  int leader(int rank);

  std::vector<int> part_;  // by rank
};

/// A transaction of a round; ranks as the round's pattern numbers them.
struct RoundPart {
  layout::MessageList::Pattern messages;
  std::vector<int> ranks;
  i64 elements = 0;  // over links
};
/// Messages of a round, parted into transactions that share no rank. Local messages go with their rank's transaction;
/// those of ranks without one share a last part. Parts that lie in one piece in the round are not copied.
std::vector<RoundPart> parts_of(const layout::MessageList::Pattern& pattern);

/// The parts of patterns that outlive it, each found once. Thread-safe.
class KnownParts {
 public:
  const std::vector<RoundPart>& of(const layout::MessageList::Pattern& pattern);

 private:
  std::mutex mutex_;
  std::map<const layout::MessagePattern*, std::vector<RoundPart>> parts_;
};

}  // namespace switchyard::compiler
