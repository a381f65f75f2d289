#pragma once

#include <vector>

namespace switchyard {

/// The median of at least one value; of an even number, the mean of the middle two.
double median(std::vector<double> values);

}  // namespace switchyard
