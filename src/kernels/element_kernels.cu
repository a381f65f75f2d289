#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/element_launch.hpp"

namespace switchyard::kernels {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 1 << 16;  // each thread then does several elements

template <class Work>
__global__ void each(Work work, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) work(i);
}

}  // namespace

template <class Work>
const char* launch(const Work& work, void* stream) {
  const std::int64_t count = work.count();
  if (count == 0) return nullptr;
  const auto blocks = static_cast<unsigned>(std::min(kMostBlocks, (count + kThreads - 1) / kThreads));
  each<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(work, count);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

#define SWITCHYARD_WORK(Work)                              \
  template const char* launch(const Work<float>&, void*);  \
  template const char* launch(const Work<double>&, void*); \
  template const char* launch(const Work<Bf16>&, void*);
SWITCHYARD_WORK(RopeWork)
SWITCHYARD_WORK(SwigluWork)
SWITCHYARD_WORK(SwigluGradientWork)
SWITCHYARD_WORK(CrossEntropyWork)

}  // namespace switchyard::kernels
