// Step plans as bytes, to be broadcast from rank 0.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "batch/step_plan.hpp"

namespace switchyard::batch {

/// The plan as a version byte and a list of variable-length integers (7 bits per byte, zigzag), about 10 bytes per
/// document.
std::vector<std::byte> encode(const StepPlan& plan);

/// The inverse. ClusterError if the bytes are cut short, go on after the plan, or are of another version.
StepPlan decode(std::span<const std::byte> bytes);

}  // namespace switchyard::batch
