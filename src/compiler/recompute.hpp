// Recomputation: values that the backward pass reads and that are not stashed are computed again.
#pragma once

#include "config/strategy.hpp"
#include "ir/code.hpp"

namespace switchyard::compiler {

/// none: all that the backward pass reads is kept. gathers: what a collective gathers is gathered again, since each
/// rank keeps its part of it anyway. selective: results of attention are recomputed, too. full: only the inputs of each
/// layer are kept. Recomputed calls stand right before their first reader, so that their memory is alive for one layer
/// at most. Source: arXiv 2205.05198 (selective), arXiv 1604.06174 (full).
void recompute(ir::StageCode& stage, config::Recompute policy);

/// Moves the calls that only weight gradients need from the backward segment to a segment of their own, order kept.
/// Operators that compute both kinds of gradients are split in two (ir::Halves). What was the backward segment becomes
/// the joined one. Source: arXiv 2401.10241, section 2.
void split_gradients(ir::StageCode& stage);

/// Fills in the drop lists and the stash.
void annotate_lifetimes(ir::StageCode& stage);

}  // namespace switchyard::compiler
