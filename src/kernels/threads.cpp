#include "kernels/threads.hpp"

#include <ATen/Parallel.h>

namespace switchyard::kernels {

void use_threads(int threads) {
  at::get_num_threads();                  // takes over the number set last, in libtorch ...
  at::internal::lazy_init_num_threads();  // ... and in this library, which may have a flag of its own
  at::set_num_threads(threads);
}

}  // namespace switchyard::kernels
