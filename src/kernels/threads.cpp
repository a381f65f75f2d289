#include "kernels/threads.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>

namespace switchyard::kernels {

void set_up_compute_thread(int threads) {
  at::get_num_threads();                  // takes over the number set last, in libtorch ...
  at::internal::lazy_init_num_threads();  // ... and in this library, which may have a flag of its own
  at::set_num_threads(threads);
  thread_local const at::AutoDispatchBelowADInplaceOrView without_autograd;
}

}  // namespace switchyard::kernels
