// Recomputation: what the backward pass reads and the stash does not keep is made again from what it keeps.
#pragma once

#include "config/strategy.hpp"
#include "ir/code.hpp"

namespace switchyard::compiler {

/// none: results of operators are kept; what a collective gathers is gathered again, since each rank keeps its part of
/// it anyway. selective: results of attention are made again, too. full: only what enters each layer is kept. Clones
/// stand right before their first reader, so that their memory is alive for one layer at most. Source: arXiv 2205.05198
/// (selective), arXiv 1604.06174 (full).
void recompute(ir::StageCode& stage, config::Recompute policy);

/// Moves what only the gradients of weights need from the backward segment to one of its own, order kept. Operators
/// that give both kinds of gradients come apart (ir::Halves). Source: arXiv 2401.10241, section 2.
void split_gradients(ir::StageCode& stage);

/// Fills drop lists, the stash, and the units each segment awaits and releases.
void annotate_lifetimes(const ir::Graph& graph, ir::StageCode& stage);

}  // namespace switchyard::compiler
