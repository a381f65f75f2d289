// Measures the speed of the thread fabric against the memory bandwidth of this machine.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/fabric.hpp"

namespace switchyard::comm {

/// All-reduce of `bytes` of fp32 on `ranks` threads of one process. An all-reduce brings 2 (n-1)/n of the bytes to
/// every rank. As its bound, copy_seconds is the time in which as many threads concurrently memcpy that much between
/// two arrays of their own. The bound is not tight: a sum reads its target too, so a perfect all-reduce at 2 ranks
/// moves 5 bytes through memory where the copy moves 4. Both are medians of alternating repetitions in one run.
struct CommFigure {
  int ranks = 0;
  i64 bytes = 0;
  double all_reduce_seconds = 0;
  double copy_seconds = 0;
  /// Bytes brought to a rank per second.
  double bytes_per_second() const;
  /// Share of the memory-copy bound: 1 is as fast as memcpy.
  double share() const { return copy_seconds / all_reduce_seconds; }
};

/// 2 (n-1)/n of the bytes.
i64 all_reduce_volume(i64 bytes, int ranks);
/// One figure per size (bytes, multiples of 4). ranks >= 2.
std::vector<CommFigure> measure_all_reduce(std::span<const i64> sizes, int ranks, int repetitions);
/// The figures as lines of text, with a heading.
std::string table(std::span<const CommFigure> figures);

}  // namespace switchyard::comm
