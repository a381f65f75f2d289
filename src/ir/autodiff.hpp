// Reverse-mode differentiation on the graph, before any layout is chosen.
#pragma once

#include "ir/graph.hpp"

namespace switchyard::ir {

/// Appends the backward pass of a forward graph whose last call makes the loss: calls of phase B (gradients of
/// activations) and W (gradients of parameters, added to their accumulators). A call's W follows its B at once; both
/// keep the unit of the forward call. Gradients of a value used several times are added.
void differentiate(Graph& graph);

}  // namespace switchyard::ir
