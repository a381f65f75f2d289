#include "kernels/gemm.hpp"

#include "oracle.hpp"

namespace switchyard::kernels {
namespace {

using namespace oracle;

template <class T>
void compare_with_loops() {
  const auto type = c10::CppTypeToScalarType<T>::value;
  const i64 m = 5, n = 7, k = 3;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const at::Tensor a = random(ta ? std::vector<i64>{k, m} : std::vector<i64>{m, k}, type, 1, 4);
      const at::Tensor b = random(tb ? std::vector<i64>{n, k} : std::vector<i64>{k, n}, type, 2, 2);
      const auto a_v = values(a), b_v = values(b);
      const at::Tensor c = random({m, n}, type, 3, 6);
      Doubles expected = values(c);
      for (i64 i = 0; i < m; ++i) {
        for (i64 j = 0; j < n; ++j) {
          double sum = 0;
          for (i64 l = 0; l < k; ++l)
            sum += (ta ? a_v[l * m + i] : a_v[i * k + l]) * (tb ? b_v[j * k + l] : b_v[l * n + j]);
          expected[i * n + j] = 2 * sum + 0.5 * expected[i * n + j];
        }
      }
      gemm(m, n, k, T(2), {a.const_data_ptr<T>(), a.stride(0), ta}, {b.const_data_ptr<T>(), b.stride(0), tb}, T(0.5),
           c.mutable_data_ptr<T>(), c.stride(0));
      expect_close(c, expected, tolerance_of(type), "c");
    }
  }
}

TEST(Gemm, AgreesWithPlainLoopsForEveryTranspositionAndStride) {
  compare_with_loops<float>();
  compare_with_loops<double>();
}

TEST(Gemm, OverwritesNaNWhenBetaIsZero) {
  const float a = 2, b = 3;
  float c = NAN;
  gemm(1, 1, 1, 1.0f, {&a, 1}, {&b, 1}, 0.0f, &c, 1);
  EXPECT_EQ(c, 6.0f);
}

TEST(Gemm, ProductsKeptOnThisThreadAreTheSame) {
  const i64 n = 200;
  const auto a = random({n, n}, at::kFloat, 1), b = random({n, n}, at::kFloat, 2);
  const auto product = [&] {
    const at::Tensor c = hole({n, n}, at::kFloat);
    gemm(n, n, n, 1.0f, {a.const_data_ptr<float>(), n}, {b.const_data_ptr<float>(), n}, 0.0f,
         c.mutable_data_ptr<float>(), n);
    return c;
  };
  const auto before = product();
  at::Tensor alone;
  {
    const ProductsOnThisThread here, twice;
    alone = product();
  }
  expect_close(alone, values(before), 1e-6, "alone");
  expect_close(product(), values(before), 1e-6, "after");
}

}  // namespace
}  // namespace switchyard::kernels
