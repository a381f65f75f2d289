// Starts of collectives, and the instructions that wait for them.
#pragma once

#include "ir/code.hpp"

namespace switchyard::compiler {

/// Orders the queues of each segment. overlap: a collective starts once its input is there: right behind the operator
/// that makes it, or, where that belongs to another unit or segment, one product ahead of its place, as its result
/// takes memory meanwhile. What touches its result first waits for it. So the sum of an input's gradient runs under the
/// product that makes the weight's, and what is gathered again for that one under the product before, ahead of that
/// sum. A collective overtakes those whose inputs are made later. Otherwise every instruction waits for the collective
/// ahead of it. Operators keep their order, and so do the sums of every accumulator: no bit of a result depends on it.
/// Collectives stay within their unit, so that times and memory of stages add up from those of units. To be called
/// before lifetimes are annotated. Source: arXiv 2205.05198, section 4.2.2 (gathers again), arXiv 2104.04473
/// (asynchronous reductions).
void order_collectives(ir::StageCode& stage, bool overlap);

/// A segment of the stage, ordered as with overlap.
ir::Segment overlapped(const ir::StageCode& stage, ir::Segment segment);

}  // namespace switchyard::compiler
