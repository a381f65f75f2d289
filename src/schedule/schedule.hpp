// Pipeline schedules as data: for every stage the order of its work. Sends follow from the edges between stages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/pass.hpp"
#include "base/units.hpp"

namespace switchyard::schedule {

/// One pass of a stage over a micro-batch. chunk: which of the stage's model chunks; Placement says where it is in the
/// pipeline.
struct Item {
  Pass pass = Pass::F;
  int chunk = 0, mb = 0;
  bool operator==(const Item&) const = default;
};

using Order = std::vector<std::vector<Item>>;  // [stage]

/// The position of a chunk in the pipeline, 0 ... stages * chunks - 1. loop: chunk c of stage s is position c * stages
/// + s. v: every other chunk runs backwards, so that chunk 1 of stage s is position 2 * stages - 1 - s and the ends of
/// chunks that follow each other share a stage (source: arXiv 2405.15362).
enum class Placement { loop, v };
int position_of(Placement placement, int stages, int stage, int chunk);
int stage_of(Placement placement, int stages, int position);
/// "loop", "v".
std::string_view name_of(Placement placement);

/// A schedule of order.size() stages with `chunks` model chunks each, for micro-batches 0 ... mbs - 1.
struct Schedule {
  Order order;
  int mbs = 0, chunks = 1;
  Placement placement = Placement::loop;

  int stages() const { return static_cast<int>(order.size()); }
  int positions() const { return stages() * chunks; }
  bool operator==(const Schedule&) const = default;
};

// Schedules with one chunk, for `mbs` micro-batches (0: nothing to do). InternalError for stages < 1 or mbs < 0.
// Others, with chunks or split gradients: interleaved.hpp, zero_bubble.hpp, zeropp.hpp.

/// GPipe: all forwards, then all backwards, in the order of micro-batches, so that it adds gradients up in the same
/// order as 1F1B and gives equal bits. Source: arXiv 1811.06965.
Schedule gpipe(int stages, int mbs);
/// 1F1B: stage s of p runs p - s forwards ahead, then backward and forward in turn; it keeps at most min(mbs, p - s)
/// micro-batches. Source: arXiv 2006.09503.
Schedule one_f_one_b(int stages, int mbs);

/// Replays a schedule: F waits for the F of the position before, a gradient for that of the position after and for its
/// own F, W for its own B. InternalError if an item is missing, repeated or misplaced, or if the stages wait for each
/// other in a cycle: the message prints the cycle.
void verify(const Schedule& schedule);

/// The same as verify(Schedule), with the chunks (in a loop) and micro-batches that occur in the order.
void verify(const Order& order);

/// Most micro-batches whose activations a stage holds at any time, from F to BW or W. Chunks are counted separately.
std::vector<int> peak_in_flight(const Order& order);

/// Most bytes that a stage holds at any time. activation: bytes that F keeps for the gradients, until BW or W ends;
/// gradient: the output gradients that W also needs, kept from B until W ends, and while a BW runs. Both for one chunk
/// of a micro-batch.
std::vector<Bytes> peak_bytes(const Order& order, Bytes activation, Bytes gradient);

/// "F0 F1 BW0 BW1", with ".chunk" after the micro-batch where chunk is not 0.
std::string to_string(const Item& item);
std::string to_string(const std::vector<Item>& items);

}  // namespace switchyard::schedule
