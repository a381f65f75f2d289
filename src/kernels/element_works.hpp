// What fused kernels do for one element, as functions for GPUs and, so that they can be tested anywhere, for the host.
// Each work is called for all i below its count, in any order. Internal to kernels; no libtorch, no CUDA headers.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/bfloat16.hpp"

#if defined(__CUDACC__)
#define SWITCHYARD_ELEMENT __host__ __device__
#else
#define SWITCHYARD_ELEMENT
#endif

namespace switchyard::kernels {

/// An element of bf16, by its bits.
struct Bf16 {
  std::uint16_t bits;
};

/// Elements are computed in fp32, or in fp64 if they are fp64.
template <class T>
struct Wide {
  using type = float;
};
template <>
struct Wide<double> {
  using type = double;
};

template <class T>
SWITCHYARD_ELEMENT typename Wide<T>::type wide(T x) {
  return x;
}
template <>
SWITCHYARD_ELEMENT inline float wide<Bf16>(Bf16 x) {
  return bfloat16_value(x.bits);
}
template <class T>
SWITCHYARD_ELEMENT void store(T& to, typename Wide<T>::type x) {
  to = x;
}
template <>
SWITCHYARD_ELEMENT inline void store<Bf16>(Bf16& to, float x) {
  to.bits = bfloat16_bits(x);
}

/// Rows of a matrix, `stride` elements apart.
template <class T>
struct ElementRows {
  T* data;
  std::int64_t stride;
  SWITCHYARD_ELEMENT T& at(std::int64_t row, std::int64_t column) const { return data[row * stride + column]; }
};

/// Rotates the pair i of all pairs of all heads of all tokens: kernels/rope.hpp. sign: -1 rotates back.
template <class T>
struct RopeWork {
  using W = typename Wide<T>::type;
  ElementRows<T> y;
  ElementRows<const T> x;
  ElementRows<const W> cos, sin;
  const std::int64_t* positions;
  std::int64_t tokens, heads, half;
  W sign;
  SWITCHYARD_ELEMENT std::int64_t count() const { return tokens * heads * half; }
  SWITCHYARD_ELEMENT void operator()(std::int64_t i) const {
    const std::int64_t pair = i % half, head = i / half % heads, token = i / (half * heads);
    const std::int64_t first = head * 2 * half + pair, second = first + half, position = positions[token];
    const W a = wide(x.at(token, first)), b = wide(x.at(token, second));
    const W c = cos.at(position, pair), s = sign * sin.at(position, pair);
    store(y.at(token, first), a * c - b * s);
    store(y.at(token, second), b * c + a * s);
  }
};

/// h = up * silu(gate)
template <class T>
struct SwigluWork {
  using W = typename Wide<T>::type;
  ElementRows<T> h;
  ElementRows<const T> gate, up;
  std::int64_t rows, width;
  SWITCHYARD_ELEMENT std::int64_t count() const { return rows * width; }
  SWITCHYARD_ELEMENT void operator()(std::int64_t i) const {
    const std::int64_t row = i / width, column = i % width;
    const W g = wide(gate.at(row, column));
    store(h.at(row, column), wide(up.at(row, column)) * g / (W(1) + std::exp(-g)));
  }
};

/// The gradients of SwiGLU; outputs may be inputs.
template <class T>
struct SwigluGradientWork {
  using W = typename Wide<T>::type;
  ElementRows<T> dgate, dup;
  ElementRows<const T> dh, gate, up;
  std::int64_t rows, width;
  SWITCHYARD_ELEMENT std::int64_t count() const { return rows * width; }
  SWITCHYARD_ELEMENT void operator()(std::int64_t i) const {
    const std::int64_t row = i / width, column = i % width;
    const W g = wide(gate.at(row, column)), d = wide(dh.at(row, column)), u = wide(up.at(row, column));
    const W s = W(1) / (W(1) + std::exp(-g));
    store(dgate.at(row, column), d * u * (s * (W(1) + g * (W(1) - s))));
    store(dup.at(row, column), d * (g * s));
  }
};

/// Logits become the gradient of the loss: kernels/cross_entropy.hpp. sums: of exponentials. first: the vocabulary's
/// column where this part begins.
template <class T>
struct CrossEntropyWork {
  using W = typename Wide<T>::type;
  ElementRows<T> logits;
  const W *top, *sums, *weights;
  const std::int64_t* labels;
  std::int64_t rows, width, first;
  SWITCHYARD_ELEMENT std::int64_t count() const { return rows * width; }
  SWITCHYARD_ELEMENT void operator()(std::int64_t i) const {
    const std::int64_t row = i / width, column = i % width, label = labels[row];
    const W weight = label < 0 ? W(0) : weights[row];
    if (weight == W(0)) return store(logits.at(row, column), W(0));
    const W share = std::exp(wide(logits.at(row, column)) - top[row]) / sums[row];
    store(logits.at(row, column), weight * (share - (label - first == column ? W(1) : W(0))));
  }
};

}  // namespace switchyard::kernels
