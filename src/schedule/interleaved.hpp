// Interleaved 1F1B: each stage has several chunks of the model, so that the pipeline fills faster.
#pragma once

#include "schedule/schedule.hpp"

namespace switchyard::schedule {

/// `chunks` chunks per stage, in a loop, gradients unsplit; one chunk is 1F1B. Micro-batches go through the chunks in
/// groups of at least `stages`: forwards of a group run through all chunks upward, gradients downward, and stage s runs
/// 2 (stages - 1 - s) + (chunks - 1) group forwards ahead. Where `stages` doesn't divide the micro-batches, the groups
/// share the rest, the first ones by one more; fewer than `stages` run like GPipe.
/// idle     (stages - 1) (F + B + W of a chunk) on every stage where `stages` divides mbs and mbs > stages
/// source   arXiv 2104.04473, section 2.2
/// errors   InternalError for stages < 1, mbs < 0 or chunks < 1
Schedule interleaved(int stages, int mbs, int chunks);

}  // namespace switchyard::schedule
