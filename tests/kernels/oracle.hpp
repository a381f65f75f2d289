// Shared by the kernel tests: tensors with known values on the device of the tests, fp64 copies for references in plain
// loops, and comparisons.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "../standin/device.hpp"
#include "../standin/test_device.hpp"
#include "base/dtype.hpp"

namespace switchyard::kernels::oracle {

using Doubles = std::vector<double>;
inline const at::ScalarType kTypes[] = {at::kDouble, at::kFloat, at::kBFloat16};

inline at::TensorOptions there(at::ScalarType type) {
  return at::TensorOptions().dtype(type).device(standin::test_device());
}

inline at::ScalarType state_of(at::ScalarType compute) { return compute == at::kDouble ? at::kDouble : at::kFloat; }

/// Rounding error of one operation, times a margin for short chains of operations.
inline double tolerance_of(at::ScalarType type) {
  return type == at::kDouble ? 1e-13 : type == at::kFloat ? 5e-6 : 2e-2;
}

/// A tensor full of NaN, which shows elements that a kernel doesn't write. `spare`: columns between its rows.
inline at::Tensor hole(at::IntArrayRef shape, at::ScalarType type, i64 spare = 0) {
  std::vector<i64> whole = shape.vec();
  if (spare > 0) whole.back() += spare;
  const at::Tensor all = at::full(whole, type == at::kLong ? -1 : NAN, there(type));
  return spare > 0 ? all.narrow(static_cast<i64>(whole.size()) - 1, spare / 2, shape.back()) : all;
}

/// Normally distributed values that depend only on the seed.
inline at::Tensor random(at::IntArrayRef shape, at::ScalarType type, unsigned seed, i64 spare = 0) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  const at::Tensor flat = at::empty(shape, at::TensorOptions().dtype(at::kDouble));
  for (i64 i = 0; i < flat.numel(); ++i) flat.mutable_data_ptr<double>()[i] = normal(engine);
  at::Tensor x = hole(shape, type, spare);
  x.copy_(flat);
  return x;
}

inline at::Tensor filled(at::IntArrayRef shape, at::ScalarType type, double value) {
  return at::full(shape, value, there(type));
}

inline at::Tensor integers(const std::vector<i64>& values) {
  const at::Tensor x = at::empty({static_cast<i64>(values.size())}, at::TensorOptions().dtype(at::kLong));
  std::copy(values.begin(), values.end(), x.mutable_data_ptr<i64>());
  return x.to(standin::test_device());
}

/// The values of x in row-major order.
inline Doubles values(const at::Tensor& x) {
  const at::Tensor dense = x.to(at::kCPU, at::kDouble).contiguous();
  return {dense.const_data_ptr<double>(), dense.const_data_ptr<double>() + dense.numel()};
}

/// Checks every element within tolerance, relative to the largest expected one; NaN always fails.
inline void expect_close(const at::Tensor& got, const Doubles& expected, double tolerance, const char* what) {
  const Doubles have = values(got);
  ASSERT_EQ(have.size(), expected.size()) << what;
  double largest = 1e-30;
  for (const double e : expected) largest = std::max(largest, std::abs(e));
  for (std::size_t i = 0; i < have.size(); ++i) {
    ASSERT_TRUE(have[i] == expected[i] || std::abs(have[i] - expected[i]) <= tolerance * largest)
        << what << " [" << i << "]: " << have[i] << " instead of " << expected[i] << " (" << toString(got.scalar_type())
        << ")";
  }
}

inline void expect_same_bits(const at::Tensor& a, const at::Tensor& b, const char* what) {
  const at::Tensor x = a.cpu().contiguous(), y = b.cpu().contiguous();
  ASSERT_EQ(x.nbytes(), y.nbytes()) << what;
  EXPECT_EQ(std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()), 0) << what;
}

/// Operators that f gives to the stand-in device; 0 on another one.
inline i64 operators_of(const std::function<void()>& f) {
  if (standin::test_device().type() != c10::DeviceType::PrivateUse1) {
    f();
    return 0;
  }
  const i64 before = standin::operators();
  f();
  return standin::operators() - before;
}

/// Runs f with 1, 2 and 3 threads; its tensor must have the same bits each time. A device has its own.
inline void expect_same_for_any_threads(const std::function<at::Tensor()>& f, const char* what) {
  if (!standin::test_device().is_cpu()) return;
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = f().clone();
  for (const int threads : {2, 3}) {
    at::set_num_threads(threads);
    expect_same_bits(f(), one, what);
  }
  at::set_num_threads(before);
}

}  // namespace switchyard::kernels::oracle
