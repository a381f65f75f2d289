// Messages that turn one ShardMap into another.
#pragma once

#include <vector>

#include "layout/layout.hpp"

namespace switchyard::layout {

/// One box of one tensor from src to dst; it lies inside one shard of each. src == dst: a local copy (or view).
/// `tensor` indexes the caller's list of tensors.
struct Msg {
  int src = 0, dst = 0, tensor = 0;
  Box box;
  bool operator==(const Msg&) const = default;
};

/// Rounds of messages: a round may forward (or add) what earlier rounds brought; messages of one round are concurrent.
struct Rounds {
  std::vector<std::vector<Msg>> rounds;
};

/// Sorted by source, destination, tensor, lower corner: the order in which messages are packed and sums are formed.
void sort_messages(std::vector<Msg>& messages);

}  // namespace switchyard::layout
