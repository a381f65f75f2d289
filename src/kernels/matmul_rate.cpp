#include "kernels/matmul_rate.hpp"

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include "kernels/memory.hpp"

namespace switchyard::kernels {

FlopsPerSecond matmul_rate(at::ScalarType type, const at::Device& device, Seconds duration, SecondsClock clock) {
  constexpr int64_t kSize = 1024;
  const MemoryScope outside(nullptr);
  const at::Tensor a = at::ones({kSize, kSize}, at::TensorOptions().dtype(type).device(device));
  at::Tensor product = at::mm(a, a);
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
  return FlopsPerSecond{2.0 * kSize * kSize * kSize * static_cast<double>(products) / seconds};
}

}  // namespace switchyard::kernels
