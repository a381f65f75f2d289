// Reverse-mode differentiation on the graph, before any layout is chosen.
#pragma once

#include "ir/graph.hpp"

namespace switchyard::ir {

/// Appends the backward pass of a forward graph whose last call computes the loss: calls of phase B (gradients of
/// activations) and W (gradients of parameters, added to their accumulators). A call's W directly follows its B; both
/// keep the unit of the forward call. The gradients of a value with several readers are added.
/// errors  InternalError if the graph has no calls or an operator has no gradient
void differentiate(Graph& graph);
/// Whether that was done.
bool is_differentiated(const Graph& graph);

}  // namespace switchyard::ir
