#include "runtime/residuals.hpp"

#include <algorithm>

#include "base/errors.hpp"
#include "runtime/flat_memory.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {

Residuals::Residuals(const compiler::Plans& plans, int rank) {
  for (const compiler::Residual& residual : plans.residuals()[static_cast<size_t>(rank)])
    parts_.push_back({.param = residual.param,
                      .box = residual.box,
                      .values = zeros(sizes_of(residual.box), plans.graph().precision().state, at::kCPU)});
}

at::Tensor Residuals::view(int param, const layout::Box& box) const {
  const auto part =
      std::ranges::find_if(parts_, [&](const Part& one) { return one.param == param && one.box.contains(box); });
  check(part != parts_.end(), "no residual of parameter {} has {}", param, layout::to_string(box));
  return view_of(part->values, part->box, box);
}

void Residuals::zero() {
  for (Part& part : parts_) part.values.zero_();
}

}  // namespace switchyard::runtime
