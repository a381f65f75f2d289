// Channels: the numbers under which the tasks of programs exchange messages.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "comm/fabric.hpp"
#include "ir/program.hpp"

namespace switchyard::runtime {

/// Channels below this number are for others who use an executor's fabric.
inline constexpr int kFirstChannel = 16;

/// row: number of the last transaction, for transactions that are no tasks of the program (inside runs).
struct NumberedChannel {
  comm::Channel channel;
  i64 row = 0;
};

/// What is exchanged within a run: by operators, by collectives, which run beside them, and between ring ranks.
enum class Within { operators, collectives, ring };

/// Consecutive numbers, so that no two channels share one. Transfers have a channel for each queue and set of ranks,
/// those between stages for each sending stage, too; what runs exchange has three for each replica's ranks, of
/// which the first two are shared by ring ranks that pass nothing to one another. Lookups may
/// come from several threads at once.
class Channels {
 public:
  /// Numbers what the program needs and none before it needed: for the tasks of all ranks, in their order. So ranks
  /// that add the same programs in the same order have the same numbers.
  void add(const ir::Program& program);

  /// Of a transfer or a norm. InternalError if its program wasn't added.
  const comm::Channel& of(const ir::Task& task) const;
  /// Of what is exchanged within a run. InternalError if its program wasn't added.
  NumberedChannel& within(const ir::Task& run, Within who);

 private:
  using Key = std::tuple<int, int, std::vector<int>>;  // queue or kWithin, stage or who, ranks
  static Key key_of(const ir::Task& transfer);

  std::map<Key, NumberedChannel> channels_;
};

}  // namespace switchyard::runtime
