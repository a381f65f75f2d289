#include "kernels/matmul_rate.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>

#include "kernels/memory.hpp"

namespace switchyard::kernels {

FlopsPerSecond matmul_rate(at::ScalarType type, const at::Device& device, Seconds duration, SecondsClock clock) {
  // One thread is as fast with small products; several, and CUDA devices, need large ones to be fully used.
  const int64_t size = device.is_cuda() ? 8192 : device.is_cpu() && at::get_num_threads() > 1 ? 1024 : 256;
  const MemoryScope outside(nullptr);
  const at::Tensor a = at::rand({size, size}, at::TensorOptions().dtype(type).device(device));
  at::Tensor product = at::empty_like(a);
  const auto multiply = [&] {
    at::mm_out(product, a, a);
    if (!device.is_cpu()) product.select(0, 0).select(0, 0).item();  // waits for the device
  };
  multiply();
  const double start = clock();
  double seconds = 0;
  int64_t products = 0;
  for (; seconds < duration.count; ++products) {
    multiply();
    seconds = clock() - start;
  }
  return FlopsPerSecond{2.0 * static_cast<double>(size * size * size * products) / seconds};
}

}  // namespace switchyard::kernels
