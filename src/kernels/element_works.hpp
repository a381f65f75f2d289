// What fused kernels do, as functions for GPUs and, so that they can be tested anywhere, for the host. A work has
// rows() and columns(). Of element works, run<N>(row, column) does N elements of a row from a column on; it is called
// for all of them, in any order, with N = kPack where packs() allows it, else 1. Of row works, part<N> gives what N
// elements add to the row's sum, and finish(row, sum) is called once for each row. Internal to kernels; no libtorch, no
// CUDA headers.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

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

/// N elements side by side, which a GPU reads or writes at once.
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T at[N];
};

/// Rows of a matrix, `stride` elements apart.
template <class T>
struct ElementRows {
  T* data;
  std::int64_t stride;
  SWITCHYARD_ELEMENT T& at(std::int64_t row, std::int64_t column) const { return data[row * stride + column]; }
  template <int N>
  SWITCHYARD_ELEMENT Pack<std::remove_const_t<T>, N> load(std::int64_t row, std::int64_t column) const {
    return reinterpret_cast<const Pack<std::remove_const_t<T>, N>&>(at(row, column));
  }
  template <int N>
  SWITCHYARD_ELEMENT void put(std::int64_t row, std::int64_t column, const Pack<T, N>& elements) const {
    reinterpret_cast<Pack<T, N>&>(at(row, column)) = elements;
  }
  /// Whether packs of 16 bytes begin at multiples of 16 bytes.
  bool aligned() const {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride * static_cast<std::int64_t>(sizeof(T)) % 16 == 0;
  }
};

/// Elements of a pack of 16 bytes.
template <class T>
inline constexpr int kPackOf = 16 / static_cast<int>(sizeof(T));

/// Rotates pairs of all heads of tokens: kernels/rope.hpp. A column is a pair. sign: -1 rotates back.
template <class T>
struct RopeWork {
  using W = typename Wide<T>::type;
  static constexpr int kPack = kPackOf<T>;
  ElementRows<T> y;
  ElementRows<const T> x;
  ElementRows<const W> cos, sin;
  const std::int64_t* positions;
  std::int64_t tokens, heads, half;
  W sign;
  SWITCHYARD_ELEMENT std::int64_t rows() const { return tokens; }
  SWITCHYARD_ELEMENT std::int64_t columns() const { return heads * half; }
  bool packs() const { return half % kPack == 0 && y.aligned() && x.aligned() && cos.aligned() && sin.aligned(); }
  template <int N>
  SWITCHYARD_ELEMENT void run(std::int64_t token, std::int64_t column) const {
    const auto head = static_cast<std::uint32_t>(column) / static_cast<std::uint32_t>(half);
    const std::int64_t first = column + head * half, second = first + half, pair = column - head * half,
                       position = positions[token];
    const auto a = x.template load<N>(token, first), b = x.template load<N>(token, second);
    const auto c = cos.template load<N>(position, pair), s = sin.template load<N>(position, pair);
    Pack<T, N> left, right;
    for (int k = 0; k < N; ++k) {
      const W sine = sign * s.at[k];
      store(left.at[k], wide(a.at[k]) * c.at[k] - wide(b.at[k]) * sine);
      store(right.at[k], wide(b.at[k]) * c.at[k] + wide(a.at[k]) * sine);
    }
    y.put(token, first, left);
    y.put(token, second, right);
  }
};

/// h = up * silu(gate)
template <class T>
struct SwigluWork {
  using W = typename Wide<T>::type;
  static constexpr int kPack = kPackOf<T>;
  ElementRows<T> h;
  ElementRows<const T> gate, up;
  std::int64_t count, width;
  SWITCHYARD_ELEMENT std::int64_t rows() const { return count; }
  SWITCHYARD_ELEMENT std::int64_t columns() const { return width; }
  bool packs() const { return width % kPack == 0 && h.aligned() && gate.aligned() && up.aligned(); }
  template <int N>
  SWITCHYARD_ELEMENT void run(std::int64_t row, std::int64_t column) const {
    const auto gates = gate.template load<N>(row, column), ups = up.template load<N>(row, column);
    Pack<T, N> made;
    for (int k = 0; k < N; ++k) {
      const W g = wide(gates.at[k]);
      store(made.at[k], wide(ups.at[k]) * g / (W(1) + std::exp(-g)));
    }
    h.put(row, column, made);
  }
};

/// The gradients of SwiGLU; outputs may be inputs.
template <class T>
struct SwigluGradientWork {
  using W = typename Wide<T>::type;
  static constexpr int kPack = kPackOf<T>;
  ElementRows<T> dgate, dup;
  ElementRows<const T> dh, gate, up;
  std::int64_t count, width;
  SWITCHYARD_ELEMENT std::int64_t rows() const { return count; }
  SWITCHYARD_ELEMENT std::int64_t columns() const { return width; }
  bool packs() const {
    return width % kPack == 0 && dgate.aligned() && dup.aligned() && dh.aligned() && gate.aligned() && up.aligned();
  }
  template <int N>
  SWITCHYARD_ELEMENT void run(std::int64_t row, std::int64_t column) const {
    const auto gates = gate.template load<N>(row, column), ups = up.template load<N>(row, column),
               slopes = dh.template load<N>(row, column);
    Pack<T, N> of_gate, of_up;
    for (int k = 0; k < N; ++k) {
      const W g = wide(gates.at[k]), d = wide(slopes.at[k]), u = wide(ups.at[k]);
      const W s = W(1) / (W(1) + std::exp(-g));
      store(of_gate.at[k], d * u * (s * (W(1) + g * (W(1) - s))));
      store(of_up.at[k], d * (g * s));
    }
    dgate.put(row, column, of_gate);
    dup.put(row, column, of_up);
  }
};

/// Sums of exponentials of logits, less their row's maximum, and what remains of the label's:
/// kernels/cross_entropy.hpp. sums: two for each row. first: the vocabulary's column where this part begins.
template <class T>
struct SumOfExponentialsWork {
  using W = typename Wide<T>::type;
  using Sum = W;
  static constexpr int kPack = kPackOf<T>;
  ElementRows<const T> logits;
  const W* top;
  const std::int64_t* labels;
  W* sums;
  std::int64_t count, width, first;
  SWITCHYARD_ELEMENT std::int64_t rows() const { return count; }
  SWITCHYARD_ELEMENT std::int64_t columns() const { return width; }
  bool packs() const { return width % kPack == 0 && logits.aligned(); }
  template <int N>
  SWITCHYARD_ELEMENT W part(std::int64_t row, std::int64_t column) const {
    const auto x = logits.template load<N>(row, column);
    W sum = 0;
    for (int k = 0; k < N; ++k) sum += std::exp(wide(x.at[k]) - top[row]);
    return sum;
  }
  SWITCHYARD_ELEMENT void finish(std::int64_t row, W sum) const {
    const std::int64_t label = labels[row], column = label - first;
    sums[row] = sum;
    sums[count + row] = label >= 0 && column >= 0 && column < width ? wide(logits.at(row, column)) - top[row] : W(0);
  }
};

/// Logits become the gradient of the loss: kernels/cross_entropy.hpp. sums: of exponentials.
template <class T>
struct CrossEntropyWork {
  using W = typename Wide<T>::type;
  static constexpr int kPack = kPackOf<T>;
  ElementRows<T> logits;
  const W *top, *sums, *weights;
  const std::int64_t* labels;
  std::int64_t count, width, first;
  SWITCHYARD_ELEMENT std::int64_t rows() const { return count; }
  SWITCHYARD_ELEMENT std::int64_t columns() const { return width; }
  bool packs() const { return width % kPack == 0 && logits.aligned(); }
  template <int N>
  SWITCHYARD_ELEMENT void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t label = labels[row];
    const W weight = label < 0 ? W(0) : weights[row], highest = top[row], sum = sums[row];
    auto x = logits.template load<N>(row, column);
    for (int k = 0; k < N; ++k) {
      const W share = weight == W(0) ? W(0) : std::exp(wide(x.at[k]) - highest) / sum;
      store(x.at[k], weight == W(0) ? W(0) : weight * (share - (label - first == column + k ? W(1) : W(0))));
    }
    logits.put(row, column, x);
  }
};

/// RMSNorm of whole rows: kernels/norm.hpp.
template <class T>
struct RmsNormWork {
  using W = typename Wide<T>::type;
  using Sum = W;
  static constexpr int kPack = kPackOf<T>;
  ElementRows<T> y;
  ElementRows<const T> x, w;  // w: one row
  W* rstd;
  std::int64_t count, width;
  W eps;
  SWITCHYARD_ELEMENT std::int64_t rows() const { return count; }
  SWITCHYARD_ELEMENT std::int64_t columns() const { return width; }
  bool packs() const { return width % kPack == 0 && y.aligned() && x.aligned() && w.aligned(); }
  template <int N>
  SWITCHYARD_ELEMENT W part(std::int64_t row, std::int64_t column) const {
    const auto xs = x.template load<N>(row, column);
    W sum = 0;
    for (int k = 0; k < N; ++k) sum += wide(xs.at[k]) * wide(xs.at[k]);
    return sum;
  }
  SWITCHYARD_ELEMENT W factor(W sum) const { return W(1) / std::sqrt(sum / static_cast<W>(width) + eps); }
  SWITCHYARD_ELEMENT void finish(std::int64_t row, W sum) const { rstd[row] = factor(sum); }
  template <int N>
  SWITCHYARD_ELEMENT void apply(std::int64_t row, std::int64_t column, W sum) const {
    const auto xs = x.template load<N>(row, column), ws = w.template load<N>(0, column);
    const W r = factor(sum);
    Pack<T, N> made;
    for (int k = 0; k < N; ++k) store(made.at[k], wide(xs.at[k]) * r * wide(ws.at[k]));
    y.put(row, column, made);
  }
};

/// The gradient of RMSNorm's input, and a residual's if its data is not null; dx may be an input.
template <class T>
struct RmsNormGradientWork {
  using W = typename Wide<T>::type;
  using Sum = W;
  static constexpr int kPack = kPackOf<T>;
  ElementRows<T> dx;
  ElementRows<const T> dy, x, w, residual;  // w: one row
  const W* rstd;
  std::int64_t count, width;
  SWITCHYARD_ELEMENT std::int64_t rows() const { return count; }
  SWITCHYARD_ELEMENT std::int64_t columns() const { return width; }
  bool packs() const {
    return width % kPack == 0 && dx.aligned() && dy.aligned() && x.aligned() && w.aligned() && residual.aligned();
  }
  template <int N>
  SWITCHYARD_ELEMENT W part(std::int64_t row, std::int64_t column) const {
    const auto slopes = dy.template load<N>(row, column), xs = x.template load<N>(row, column),
               ws = w.template load<N>(0, column);
    W sum = 0;
    for (int k = 0; k < N; ++k) sum += wide(slopes.at[k]) * wide(ws.at[k]) * wide(xs.at[k]);
    return sum;
  }
  SWITCHYARD_ELEMENT void finish(std::int64_t, W) const {}
  template <int N>
  SWITCHYARD_ELEMENT void apply(std::int64_t row, std::int64_t column, W sum) const {
    const auto slopes = dy.template load<N>(row, column), xs = x.template load<N>(row, column),
               ws = w.template load<N>(0, column);
    Pack<T, N> added{}, made;
    if (residual.data != nullptr) added = residual.template load<N>(row, column);
    const W r = rstd[row], along = r * r * sum / static_cast<W>(width);
    for (int k = 0; k < N; ++k) {
      const W slope = r * (wide(slopes.at[k]) * wide(ws.at[k]) - wide(xs.at[k]) * along);
      store(made.at[k], residual.data == nullptr ? slope : slope + wide(added.at[k]));
    }
    dx.put(row, column, made);
  }
};

/// What every kRowsOfPart rows add to the gradient of RMSNorm's weight.
template <class T>
struct NormWeightWork {
  using W = typename Wide<T>::type;
  static constexpr int kPack = kPackOf<T>;
  static constexpr std::int64_t kRowsOfPart = 64;
  ElementRows<W> partial;
  ElementRows<const T> dy, x;
  const W* rstd;
  std::int64_t count, width;
  SWITCHYARD_ELEMENT static std::int64_t parts(std::int64_t rows) { return (rows + kRowsOfPart - 1) / kRowsOfPart; }
  SWITCHYARD_ELEMENT std::int64_t rows() const { return parts(count); }
  SWITCHYARD_ELEMENT std::int64_t columns() const { return width; }
  bool packs() const { return width % kPack == 0 && partial.aligned() && dy.aligned() && x.aligned(); }
  template <int N>
  SWITCHYARD_ELEMENT void run(std::int64_t part, std::int64_t column) const {
    Pack<W, N> sum{};
    const std::int64_t begin = part * kRowsOfPart, end = begin + kRowsOfPart < count ? begin + kRowsOfPart : count;
    for (std::int64_t row = begin; row < end; ++row) {
      const auto slopes = dy.template load<N>(row, column), xs = x.template load<N>(row, column);
      for (int k = 0; k < N; ++k) sum.at[k] += wide(slopes.at[k]) * wide(xs.at[k]) * rstd[row];
    }
    partial.put(part, column, sum);
  }
};

/// A flat tensor in rows of so many elements, the last of which may be shorter.
inline constexpr std::int64_t kFlatRow = 1 << 16;
SWITCHYARD_ELEMENT inline std::int64_t flat_rows(std::int64_t count) { return (count + kFlatRow - 1) / kFlatRow; }

/// Sums of squares in fp64, one for each row of a flat tensor.
template <class T>
struct SquaresWork {
  using Sum = double;
  static constexpr int kPack = kPackOf<T>;
  ElementRows<const T> x;  // rows of kFlatRow elements
  double* partial;
  std::int64_t count;
  SWITCHYARD_ELEMENT std::int64_t rows() const { return flat_rows(count); }
  SWITCHYARD_ELEMENT std::int64_t columns() const { return kFlatRow; }
  bool packs() const { return x.aligned(); }
  template <int N>
  SWITCHYARD_ELEMENT double part(std::int64_t row, std::int64_t column) const {
    double sum = 0;
    const std::int64_t left = count - row * kFlatRow - column;
    if (left < N) {
      for (std::int64_t k = 0; k < left; ++k) sum += square(x.at(row, column + k));
      return sum;
    }
    const auto values = x.template load<N>(row, column);
    for (int k = 0; k < N; ++k) sum += square(values.at[k]);
    return sum;
  }
  SWITCHYARD_ELEMENT void finish(std::int64_t row, double sum) const { partial[row] = sum; }
  SWITCHYARD_ELEMENT static double square(T value) { return static_cast<double>(value) * static_cast<double>(value); }
};

/// AdamW's settings as factors for one element: kernels/optimizer.hpp.
template <class T>
struct AdamWFactors {
  T decay, beta1, beta2, rest1, rest2, rate, correction2, eps, clip;
};

/// AdamW on flat tensors, and what it gives in bf16 if `copy` is not null.
template <class T>
struct AdamWWork {
  static constexpr int kPack = kPackOf<T>;
  ElementRows<T> p, m, v;  // rows of kFlatRow elements
  ElementRows<const T> grad;
  ElementRows<Bf16> copy;
  AdamWFactors<T> f;
  std::int64_t count;
  SWITCHYARD_ELEMENT std::int64_t rows() const { return flat_rows(count); }
  SWITCHYARD_ELEMENT std::int64_t columns() const { return kFlatRow; }
  bool packs() const { return p.aligned() && m.aligned() && v.aligned() && grad.aligned() && copy.aligned(); }
  template <int N>
  SWITCHYARD_ELEMENT void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t left = count - row * kFlatRow - column;
    if (left < N) {
      for (std::int64_t k = 0; k < left; ++k) update<1>(row, column + k);
    } else {
      update<N>(row, column);
    }
  }
  template <int N>
  SWITCHYARD_ELEMENT void update(std::int64_t row, std::int64_t column) const {
    auto values = p.template load<N>(row, column), first = m.template load<N>(row, column),
         second = v.template load<N>(row, column);
    const auto slopes = grad.template load<N>(row, column);
    Pack<Bf16, N> rounded;
    for (int k = 0; k < N; ++k) {
      const T g = slopes.at[k] * f.clip;
      first.at[k] = f.beta1 * first.at[k] + f.rest1 * g;
      second.at[k] = f.beta2 * second.at[k] + f.rest2 * (g * g);
      values.at[k] -= f.decay * values.at[k] + f.rate * first.at[k] / (std::sqrt(second.at[k] * f.correction2) + f.eps);
      store(rounded.at[k], static_cast<float>(values.at[k]));
    }
    p.put(row, column, values);
    m.put(row, column, first);
    v.put(row, column, second);
    if (copy.data != nullptr) copy.put(row, column, rounded);
  }
};

}  // namespace switchyard::kernels
