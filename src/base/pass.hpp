// What a run does with a micro-batch.
#pragma once

#include <string_view>

namespace switchyard {

/// Forward, gradients of the inputs, gradients of the weights, or both kinds of gradients at once.
enum class Pass { F, B, W, BW };
/// "F", "B", "W", "BW".
std::string_view name_of(Pass pass);

}  // namespace switchyard
