// Compiler settings for inner loops on CPU: they are compiled once per instruction set, chosen when the program is
// loaded, with settings that allow vectorization. The layer is compiled with -fno-math-errno, because a square root
// would otherwise be a function call. Internal to kernels.
#pragma once

#include <cmath>
#include <cstdint>

// An ifunc resolver runs before a sanitizer's runtime is set up, so sanitized builds take the plain version.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define SWITCHYARD_CLONES target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"),
#else
#define SWITCHYARD_CLONES
#endif
#if defined(__GNUC__) && !defined(__clang__)
/// Elementwise loops: IEEE arithmetic in the written order.
#define SWITCHYARD_LOOPS __attribute__((SWITCHYARD_CLONES optimize("O3", "no-trapping-math")))
/// Sums: additions may be reordered, in the same way on every run. Must not contain exp_of, whose two-part constants
/// must not be regrouped.
#define SWITCHYARD_SUMS \
  __attribute__((SWITCHYARD_CLONES optimize("O3", "no-trapping-math", "no-signed-zeros", "associative-math")))
/// Maxima: NaNs may be lost.
#define SWITCHYARD_MAXIMA \
  __attribute__((SWITCHYARD_CLONES optimize("O3", "no-trapping-math", "no-signed-zeros", "finite-math-only")))
#else
#define SWITCHYARD_LOOPS
#define SWITCHYARD_SUMS
#define SWITCHYARD_MAXIMA
#endif

namespace switchyard::kernels {

/// e^x within 2 ulp for x in [-87, 88.3], 0 below, infinity above; NaN stays NaN. Without branches and
/// selections, so that loops around it are vectorized.
/// source  range reduction by Cody and Waite, polynomial of Cephes' expf
[[gnu::always_inline]] inline float exp_of(float x) {
  // After adding 1.5 * 2^23 the last bits are the integer nearest to x / ln 2.
  const float shifted = x * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const float y = p * __builtin_bit_cast(float, (__builtin_bit_cast(std::uint32_t, shifted) + 127u) << 23);
  const auto below = -static_cast<std::uint32_t>(x < -87.0f), above = -static_cast<std::uint32_t>(x > 88.37f);
  return __builtin_bit_cast(float, (__builtin_bit_cast(std::uint32_t, y) & ~(below | above)) | (above & 0x7f800000u));
}
[[gnu::always_inline]] inline double exp_of(double x) { return std::exp(x); }

// std::sqrt has other compiler settings, so it would not be inlined into the loops.
[[gnu::always_inline]] inline float sqrt_of(float x) { return __builtin_sqrtf(x); }
[[gnu::always_inline]] inline double sqrt_of(double x) { return __builtin_sqrt(x); }

/// The sum of n elements, in an order that depends on n only.
template <class T>
SWITCHYARD_SUMS static T sum_of(const T* x, std::int64_t n) {
  T sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

}  // namespace switchyard::kernels
