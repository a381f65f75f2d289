// How the inner loops on CPU are compiled: once per instruction set, chosen when the program is loaded, and free of what
// keeps a compiler from using vector registers. Internal to kernels.
#pragma once

#include <cmath>
#include <cstdint>

// An ifunc resolver runs before a sanitizer's runtime is set up, so sanitized builds take the plain version.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SWITCHYARD_CLONES target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"),
#else
#define SWITCHYARD_CLONES
#endif
#if defined(__GNUC__) && !defined(__clang__)
/// Elementwise loops: IEEE arithmetic in the written order.
#define SWITCHYARD_LOOPS __attribute__((SWITCHYARD_CLONES optimize("O3", "no-math-errno", "no-trapping-math")))
/// Sums: may be added in another order, the same on every run. Never with exp_of inside: its two-part constants must not be regrouped.
#define SWITCHYARD_SUMS \
  __attribute__((SWITCHYARD_CLONES optimize("O3", "no-math-errno", "no-trapping-math", "no-signed-zeros", "associative-math")))
/// Maxima: NaNs may be lost.
#define SWITCHYARD_MAXIMA \
  __attribute__((SWITCHYARD_CLONES optimize("O3", "no-math-errno", "no-trapping-math", "no-signed-zeros", "finite-math-only")))
#else
#define SWITCHYARD_LOOPS
#define SWITCHYARD_SUMS
#define SWITCHYARD_MAXIMA
#endif

namespace switchyard::kernels {

/// e^x within 2 ulp for x in [-87, 88], 0 below, e^88 above; NaN stays NaN. Branch-free, so that loops around it vectorise.
/// source  range reduction by Cody and Waite, polynomial of Cephes' expf
[[gnu::always_inline]] inline float exp_of(float x) {
  const float clamped = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
  const float scaled = clamped * 1.44269504f;
  const auto exponent = static_cast<std::int32_t>(scaled + (scaled < 0 ? -0.5f : 0.5f));
  const auto n = static_cast<float>(exponent);
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const std::int32_t kept = -static_cast<std::int32_t>(!(x < -87.0f));
  return p * __builtin_bit_cast(float, ((exponent + 127) << 23) & kept);
}
[[gnu::always_inline]] inline double exp_of(double x) { return std::exp(x); }

}  // namespace switchyard::kernels
