#include "cost/compute_cost.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/errors.hpp"

namespace switchyard::cost {
namespace {

constexpr double kClose = 1e-12;

/// 1000 flops/s and 100 bytes/s, 3 s to launch.
cluster::Device toy() {
  cluster::Device device{.name = "toy", .launch = {3}};
  device.rates[DType::f32] = {.matmul = {1000}, .memory = {100}};
  device.rates[DType::bf16] = {.matmul = {4000}, .memory = {100}};
  return device;
}

Seconds matmul_time(const cluster::Device& device, DType type, double m, double n, double k) {
  return call_time(device, type,
                   {.flops = 2 * m * n * k,
                    .narrowest = std::min({m, n, k}),
                    .bytes = static_cast<double>(size_of(type)) * (m * k + k * n + m * n)});
}

TEST(MatmulTime, a_big_product_takes_its_flops_over_the_rate) {
  // 2 * 200^3 = 16e6 flops; 4 * 3 * 200^2 = 480e3 bytes take 4800 s, less than 16000 s
  EXPECT_NEAR(matmul_time(toy(), DType::f32, 200, 200, 200).count, 3 + 16000, kClose);
}

TEST(MatmulTime, a_narrow_product_takes_its_bytes_over_the_memory_bandwidth) {
  // 2 * 100 * 50 = 10^4 flops take 10 s; 4 * (100 * 1 + 1 * 50 + 100 * 50) = 20600 bytes take 206 s
  EXPECT_NEAR(matmul_time(toy(), DType::f32, 100, 50, 1).count, 3 + 206, kClose);
  EXPECT_NEAR(matmul_time(toy(), DType::f32, 1, 50, 100).count, 3 + 4 * (100 + 5000 + 50) / 100.0, kClose);
  EXPECT_NEAR(matmul_time(toy(), DType::bf16, 100, 50, 1).count, 3 + 103, kClose) << "half the bytes in bf16";
}

TEST(MatmulTime, both_curves_of_products_lower_the_rate) {
  cluster::Device device = toy();
  device.rates[DType::f32].matmul_curve = {{{1e6, 0.5}, {1e9, 0.8}}};
  EXPECT_NEAR(matmul_time(device, DType::f32, 1000, 1000, 500).count, 3 + 1e9 / 800, 1e-6);
  device.width_curve = {{{500, 0.25}, {1000, 1}}};
  EXPECT_NEAR(matmul_time(device, DType::f32, 1000, 1000, 500).count, 3 + 1e9 / 200, 1e-6) << "k is the narrowest";
  EXPECT_NEAR(matmul_time(device, DType::f32, 500, 1000, 1000).count, 3 + 1e9 / 200, 1e-6) << "m is";
  EXPECT_NEAR(matmul_time(device, DType::f32, 1000, 500, 1000).count, 3 + 1e9 / 200, 1e-6) << "n is";
}

TEST(KernelTime, a_kernel_takes_launch_and_bytes_over_bandwidth) {
  cluster::Device device = toy();
  EXPECT_EQ(call_time(device, DType::f32, {.bytes = 200}), Seconds{5});
  device.memory_curve = {{{200, 0.5}, {800, 1}}};
  EXPECT_EQ(call_time(device, DType::f32, {.bytes = 200}), Seconds{7});
  EXPECT_EQ(call_time(device, DType::f32, {.bytes = 800}), Seconds{11});
  device.rates[DType::bf16].memory = {50};
  EXPECT_EQ(call_time(device, DType::bf16, {.bytes = 800}), Seconds{19}) << "a data type may have its own bandwidth";
}

TEST(AttentionRate, is_the_devices_own_or_that_of_products) {
  cluster::Device device = toy();
  device.width_curve = {{{64, 0.6}, {128, 0.8}, {256, 1}}};
  EXPECT_NEAR(attention_rate(device, DType::f32, 64, false).count, 600, kClose) << "products of 64 features";
  device.rates[DType::f32].attention = {400};
  device.rates[DType::f32].attention_backward = {200};
  EXPECT_NEAR(attention_rate(device, DType::f32, 128, false).count, 400, kClose);
  EXPECT_NEAR(attention_rate(device, DType::f32, 64, false).count, 300, kClose) << "smaller heads, as products";
  EXPECT_NEAR(attention_rate(device, DType::f32, 128, true).count, 200, kClose);
  EXPECT_NEAR(attention_rate(device, DType::bf16, 128, true).count, 3200, kClose) << "of this type only";
}

TEST(CallTime, nothing_takes_no_time) {
  EXPECT_EQ(call_time(toy(), DType::f32, {}), Seconds{0});
  EXPECT_THROW(call_time(toy(), DType::f32, {.bytes = -1}), InternalError);
  EXPECT_THROW(call_time(toy(), DType::f32, {.flops = -1}), InternalError);
  EXPECT_THROW(call_time(toy(), DType::f64, {.bytes = 1}), UserError);
}

}  // namespace
}  // namespace switchyard::cost
