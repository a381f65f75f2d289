// What a compiled segment takes on a cluster, part by part.
#pragma once

#include <vector>

#include "cluster/hardware.hpp"
#include "ir/code.hpp"

namespace switchyard::simulator {

enum class Activity { compute, communication };

/// A part of a segment without events inside, on the slowest rank of the lane. It takes fixed + per_pair * pairs + per_square * squares
/// seconds; pairs: of a query and a key that it sees, squares: squared lengths, both over the micro-batch's documents.
struct Piece {
  Activity what = Activity::compute;
  double fixed = 0, per_pair = 0, per_square = 0;
};

/// At the start of piece `before`.
struct UnitMark {
  size_t before = 0;
  int unit = 0;
};

struct SegmentTimes {
  std::vector<Piece> pieces;
  std::vector<UnitMark> awaits, releases;
};

/// Of a micro-batch of T tokens on the ranks of a lane, by position. Computing and the lane's collectives follow one another, as they are
/// executed. An operator takes what the longer of its arithmetic and its memory traffic takes (roofline; S. Williams et al., CACM 52(4),
/// 2009), with the device's efficiency curves; attention takes both. Computing between two collectives is slowed as the device's lockstep
/// curve says.
/// errors  UserError if the device has no rates for a data type
SegmentTimes segment_times(const ir::StageCode& stage, const ir::Segment& segment, i64 T, const std::vector<int>& ranks,
                           const cluster::Hardware& hardware, const cluster::Cluster& placement);

}  // namespace switchyard::simulator
