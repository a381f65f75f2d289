#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "kernels/element_launch.hpp"

namespace switchyard::kernels {
namespace {

constexpr int kThreads = 256, kWarp = 32;
constexpr std::int64_t kMostRows = 65535;  // largest grid; its threads then do several

template <int N, class Work>
__global__ void each(Work work) {
  const std::int64_t rows = work.rows(), columns = work.columns();
  const std::int64_t column_step = static_cast<std::int64_t>(gridDim.x) * blockDim.x * N,
                     row_step = static_cast<std::int64_t>(gridDim.y) * blockDim.y;
  const std::int64_t first_column = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N,
                     first_row = static_cast<std::int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
  for (std::int64_t row = first_row; row < rows; row += row_step)
    for (std::int64_t column = first_column; column < columns; column += column_step) work.template run<N>(row, column);
}

template <int N, class Work>
void launch_each(const Work& work, cudaStream_t stream) {
  const std::int64_t packs = (work.columns() + N - 1) / N;
  unsigned wide = kWarp;
  while (wide < kThreads && wide < packs) wide *= 2;
  const unsigned high = kThreads / wide;
  const dim3 grid(static_cast<unsigned>(std::min((packs + wide - 1) / wide, kMostRows)),
                  static_cast<unsigned>(std::min((work.rows() + high - 1) / high, kMostRows)));
  each<N><<<grid, dim3(wide, high), 0, stream>>>(work);
}

template <class Work, class = void>
constexpr bool kHasSums = false;
template <class Work>
constexpr bool kHasSums<Work, std::void_t<typename Work::Sum>> = true;
template <class Work, class = void>
constexpr bool kApplies = false;
template <class Work>
constexpr bool kApplies<Work, std::void_t<decltype(&Work::template apply<1>)>> = true;

// A block for each row. The order of a row's sum depends on its width alone.
template <int N, class Work>
__global__ void each_row(Work work) {
  using Sum = typename Work::Sum;
  __shared__ Sum of_warps[kThreads / kWarp];
  const std::int64_t columns = work.columns(), first = static_cast<std::int64_t>(threadIdx.x) * N;
  for (std::int64_t row = blockIdx.x; row < work.rows(); row += gridDim.x) {
    Sum sum = 0;
    for (std::int64_t column = first; column < columns; column += kThreads * N)
      sum += work.template part<N>(row, column);
    for (int distance = kWarp / 2; distance > 0; distance /= 2) sum += __shfl_down_sync(~0u, sum, distance);
    __syncthreads();  // all have read those of the row before
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = sum;
    __syncthreads();
    sum = 0;
    for (const Sum of_warp : of_warps) sum += of_warp;
    if (threadIdx.x == 0) work.finish(row, sum);
    if constexpr (kApplies<Work>)
      for (std::int64_t column = first; column < columns; column += kThreads * N)
        work.template apply<N>(row, column, sum);
  }
}

template <int N, class Work>
void launch_rows(const Work& work, cudaStream_t stream) {
  each_row<N><<<static_cast<unsigned>(std::min(work.rows(), kMostRows)), kThreads, 0, stream>>>(work);
}

template <int N, class Work>
void launch_packs(const Work& work, cudaStream_t stream) {
  if constexpr (kHasSums<Work>) {
    launch_rows<N>(work, stream);
  } else {
    launch_each<N>(work, stream);
  }
}

}  // namespace

template <class Work>
const char* launch(const Work& work, void* stream) {
  if (work.rows() == 0 || work.columns() == 0) return nullptr;
  if (work.packs()) {
    launch_packs<Work::kPack>(work, static_cast<cudaStream_t>(stream));
  } else {
    launch_packs<1>(work, static_cast<cudaStream_t>(stream));
  }
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

#define SWITCHYARD_STATE_WORK(Work)                       \
  template const char* launch(const Work<float>&, void*); \
  template const char* launch(const Work<double>&, void*);
#define SWITCHYARD_WORK(Work) \
  SWITCHYARD_STATE_WORK(Work) \
  template const char* launch(const Work<Bf16>&, void*);
SWITCHYARD_WORK(RopeWork)
SWITCHYARD_WORK(SwigluWork)
SWITCHYARD_WORK(SwigluGradientWork)
SWITCHYARD_WORK(RmsNormWork)
SWITCHYARD_WORK(RmsNormGradientWork)
SWITCHYARD_WORK(NormWeightWork)
SWITCHYARD_WORK(SumOfExponentialsWork)
SWITCHYARD_WORK(CrossEntropyWork)
SWITCHYARD_STATE_WORK(SquaresWork)
SWITCHYARD_STATE_WORK(AdamWWork)

}  // namespace switchyard::kernels
