// Intra-op threads of one thread.
#pragma once

namespace switchyard::kernels {

/// From now on the calling thread computes with `threads` threads (itself one of them), whatever other threads ask for.
/// at::set_num_threads alone does not hold: a thread's first operation replaces its count by the one that any thread
/// set last.
void use_threads(int threads);

}  // namespace switchyard::kernels
