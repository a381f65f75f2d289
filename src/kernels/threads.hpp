// Number of intra-op threads per thread.
#pragma once

namespace switchyard::kernels {

/// From now on the calling thread computes with `threads` threads, including itself, whatever other threads set.
/// at::set_num_threads alone is not enough: a thread's first operation replaces its number by the one set last by any
/// thread.
void use_threads(int threads);

}  // namespace switchyard::kernels
