// Pipeline schedules as data: for every stage the order of its work. Sends follow from the edges between stages.
#pragma once

#include <string>
#include <vector>

namespace switchyard::schedule {

/// One piece of work of a stage on a micro-batch. what: F forward, B input gradient, W weight gradient, X both gradients.
/// chunk: which of the stage's model chunks; chunk c of stage s is position c * stages + s of the pipeline.
struct Item {
  char what = 'F';
  int chunk = 0, mb = 0;
  bool operator==(const Item&) const = default;
};

using Order = std::vector<std::vector<Item>>;  // [stage]

/// gpipe: all forwards, then all backwards, in the order of micro-batches, so that both kinds add gradients up in one order
/// and give equal bits (source: arXiv 1811.06965). one_f_one_b: stage s of p runs p - s
/// forwards ahead, then backward and forward in turn: it keeps at most min(mbs, p - s) micro-batches (source: arXiv 2006.09503).
enum class Kind { gpipe, one_f_one_b };

/// The order of each of `stages` stages for `mbs` micro-batches (0: nothing to do). InternalError for stages < 1 or mbs < 0.
Order schedule(Kind kind, int stages, int mbs);

/// Replays an order: F waits for the F of the position before, a gradient for that of the position after and for its own F,
/// W for its own B. InternalError if an item is missing, repeated or misplaced, or if the stages wait for each other in a
/// circle: the message prints the circle.
void verify(const Order& order);

/// Most micro-batches a stage holds activations of at any time: from F to X or W.
std::vector<int> peak_in_flight(const Order& order);

/// "F0 F1 X0 X1", with ".chunk" behind the micro-batch where chunk is not 0.
std::string to_string(const std::vector<Item>& items);

}  // namespace switchyard::schedule
