// What a reader wants to know first about a run.
#pragma once

#include <string>
#include <vector>

#include "report/page.hpp"

namespace switchyard::report {

/// Sentences: what limits the step, the gain over the best single strategy that was compared and fits, the measured
/// step against the predicted one, what would help most, and that times were emulated. What is unknown is left out;
/// measured shares go before predicted ones.
std::vector<std::string> headline_of(const Run& run);

}  // namespace switchyard::report
