// Works for elements on a GPU. Internal to kernels; without other headers of ours, which nvcc may not understand.
#pragma once

#include "kernels/element_works.hpp"

namespace switchyard::kernels {

/// Queues the work on a stream of CUDA's (its handle). It exists for all works of fp32, fp64 and bf16, and for those of
/// gradients and states of fp32 and fp64, where nvcc has compiled it (SWITCHYARD_CUDA_KERNELS). Returns CUDA's words if
/// it did not start, else null.
template <class Work>
const char* launch(const Work& work, void* stream);

}  // namespace switchyard::kernels
