// Exchange: resharding among ranks that work in lock step, as transactions of sends and receives. Used inside segments
// (tensor and sequence parallel collectives) and between pipeline stages; switches and flushes plan with switching/.
#pragma once

#include <vector>

#include "layout/layout.hpp"

namespace switchyard::layout {

/// What one rank does in one transaction. Receives take effect in the order of the list; the first piece of an element
/// overwrites, later ones (add) are further addends. peer == the rank itself: a local piece.
struct Piece {
  int peer = 0;
  Box box;  // global coordinates
  bool add = false;
  bool operator==(const Piece&) const = default;
};
struct Part {
  int rank = 0;
  std::vector<Piece> sends, receives;
  bool zero = false;  // the destination is filled with zeros instead (a copy that becomes an addend)
};
struct Step {
  std::vector<Part> parts;  // of all ranks that hold something in `from` or `to`, ascending
};

/// Steps that turn `from` into `to`; each step reads the previous one's result. A rank has at most one shard in each map.
/// Sums are in order of addends, whoever receives. Where every copy of a sum is wanted, the sum is made in pieces first (one
/// step) and gathered after (ring volume of an all-reduce). Where `to` has several addends, each of `from` goes into the first of
/// them that one of its holders is to hold, so that most stay where they are; addends of `to` that get none are zero.
std::vector<Step> exchange(const ShardMap& from, const ShardMap& to);

/// Bytes that `part` sends to other ranks.
i64 sent_elements(const Part& part);

}  // namespace switchyard::layout
