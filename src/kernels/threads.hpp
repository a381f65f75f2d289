// What a thread that computes sets for itself.
#pragma once

namespace switchyard::kernels {

/// From now on the calling thread computes with `threads` threads, including itself, whatever other threads set, and
/// its operators go straight to their kernels. at::set_num_threads alone is not enough: a thread's first operation
/// replaces its number by the one set last by any thread. Gradients are operators of their own here, so nothing needs
/// what libtorch records for autograd at each operator and view, which costs the host time (bench/results/issue.md).
/// The first one also makes the first calls of the math library, alone.
void set_up_compute_thread(int threads);

}  // namespace switchyard::kernels
