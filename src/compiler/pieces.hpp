// Which units a segment reads and writes, and the pieces into which its runs are cut.
#pragma once

#include "ir/code.hpp"

namespace switchyard::compiler {

/// Fills in the units that a segment awaits and releases, and where it last reads and first writes them.
void annotate_units(const ir::Graph& graph, const ir::StageCode& stage, ir::Segment& segment);

/// Cuts the segments of a stage whose runs have transfers (depth, ZeRO-2 and 3): a piece begins where a unit is first
/// touched, by reading gathered parameters or by writing gradients that are reduced behind it. So a piece waits for
/// transfers before it begins, and transfers wait for pieces that have ended. Collectives end in the piece in which
/// they start. Where micro-batches run in pairs, collectives are pieces of their own, and a piece begins where an
/// operator waits for one. To be called when units are annotated, and before lifetimes are.
void cut_into_pieces(ir::StageCode& stage);

}  // namespace switchyard::compiler
