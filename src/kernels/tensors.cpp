#include "kernels/tensors.hpp"

#include <string>

#include "base/errors.hpp"

namespace switchyard::kernels {

void require(bool holds, const char* kernel, std::initializer_list<const at::Tensor*> tensors) {
  if (holds) return;
  std::string text;
  for (const at::Tensor* x : tensors) {
    if (!text.empty()) text += ", ";
    text += x->defined() ? fmt::format("({}) {}", fmt::join(x->sizes().begin(), x->sizes().end(), ", "),
                                       toString(x->scalar_type()))
                         : std::string("none");
  }
  throw InternalError(fmt::format("{}: these tensors don't fit together: {}", kernel, text));
}

bool is_rows(const at::Tensor& x) { return x.dim() == 2 && (x.stride(1) == 1 || x.size(1) <= 1 || x.size(0) == 0); }

bool same_shape(std::initializer_list<const at::Tensor*> tensors) {
  const at::Tensor& first = **tensors.begin();
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor* x) { return x->sizes() == first.sizes(); });
}

bool loops_apply(std::initializer_list<const at::Tensor*> tensors) {
  const at::ScalarType type = (*tensors.begin())->scalar_type();
  if (type != at::kFloat && type != at::kDouble) return false;
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor* x) { return x->is_cpu() && x->scalar_type() == type; });
}

}  // namespace switchyard::kernels
