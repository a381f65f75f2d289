#include "base/median.hpp"

#include <algorithm>

namespace switchyard {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return values.size() % 2 ? *middle : (*std::max_element(values.begin(), middle) + *middle) / 2;
}

}  // namespace switchyard
