#include "kernels/threads.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tanh.h>

#include <mutex>

namespace switchyard::kernels {
namespace {

// MKL chooses its code for the processor in the first call of a function. Where two threads make that call at the same
// time, one of them may compute with other code, whose results differ in the last bits: a run would not be the same
// again. So these calls are made one after the other.
void choose_code_of_mkl() {
  using Function = at::Tensor (*)(const at::Tensor&);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor x = at::full({2, 16, 16}, 0.5, at::TensorOptions().dtype(type));  // a batch of two products
    for (const Function f : {at::exp, at::expm1, at::log, at::log1p, at::sqrt, at::sin, at::cos, at::tanh, at::erf})
      f(x);
    at::matmul(x, x);
    at::matmul(x[0], x[0]);
  }
}

}  // namespace

void set_up_compute_thread(int threads) {
  at::get_num_threads();                  // takes over the number set last, in libtorch ...
  at::internal::lazy_init_num_threads();  // ... and in this library, which may have a flag of its own
  at::set_num_threads(threads);
  thread_local const at::AutoDispatchBelowADInplaceOrView without_autograd;
  static std::once_flag chosen;
  std::call_once(chosen, choose_code_of_mkl);
}

}  // namespace switchyard::kernels
