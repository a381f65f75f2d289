#include "kernels/rope.hpp"

#include <atomic>
#include <cmath>
#include <numbers>

#include "base/errors.hpp"
#include "kernels/element_tensors.hpp"
#include "kernels/tensors.hpp"
#include "kernels/upload.hpp"
#include "kernels/vectorized.hpp"

namespace switchyard::kernels {
namespace {

// sign: 1 rotates forward, -1 back.
template <class T>
SWITCHYARD_LOOPS void rope_row(T* y, const T* x, const T* cos, const T* sin, T sign, i64 heads, i64 half) {
  for (i64 h = 0; h < heads; ++h) {
    const T* in = x + h * 2 * half;
    T* out = y + h * 2 * half;
#pragma GCC ivdep
    for (i64 i = 0; i < half; ++i) {
      const T a = in[i], b = in[i + half], c = cos[i], s = sign * sin[i];
      out[i] = a * c - b * s;
      out[i + half] = b * c + a * s;
    }
  }
}

void rope_by_operators(at::Tensor& y, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                       const at::Tensor& positions, int head_dim, bool inverse) {
  const i64 half = head_dim / 2;
  const at::Tensor heads = x.unflatten(1, {-1, head_dim}).to(cos.scalar_type());
  const at::Tensor c = cos.index_select(0, positions).unsqueeze(1),
                   s = sin.index_select(0, positions).unsqueeze(1).mul_(inverse ? -1 : 1);
  const at::Tensor a = heads.narrow(2, 0, half), b = heads.narrow(2, half, half);
  const at::Tensor rotated = heads.new_empty(heads.sizes());
  rotated.narrow(2, 0, half).copy_(a.mul(c).sub_(b.mul(s)));
  rotated.narrow(2, half, half).copy_(b.mul(c).add_(a.mul(s)));
  y.copy_(rotated.flatten(1));
}

}  // namespace

void rope(at::Tensor& y, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, const at::Tensor& positions,
          int head_dim, bool inverse) {
  require(is_rows(y) && is_rows(x) && same_shape({&y, &x}) && positions.dim() == 1 && positions.size(0) == x.size(0) &&
              positions.scalar_type() == at::kLong && is_rows(cos) && same_shape({&cos, &sin}) && head_dim > 0 &&
              head_dim % 2 == 0 && cos.size(1) == head_dim / 2 && x.size(1) % head_dim == 0,
          "rope", {&y, &x, &cos, &sin, &positions});
  if (y.numel() == 0) return;
  if (has_element_kernels({&y, &x}) && positions.is_contiguous()) {
    with_element(
        y, [&]<class T>() { run_on_gpu(rope_work<T>(y, x, cos, sin, positions, head_dim, inverse), y.device()); });
    return;
  }
  if (!loops_apply({&y, &x, &cos, &sin})) {
    rope_by_operators(y, x, cos, sin, positions, head_dim, inverse);
    return;
  }
  const at::Tensor dense = positions.contiguous();
  const i64* position = dense.const_data_ptr<i64>();
  std::atomic<i64> outside{-1};
  with_real(y, [&]<class T>() {
    const auto y_rows = rows_of<T>(y);
    const auto x_rows = const_rows_of<T>(x), cos_rows = const_rows_of<T>(cos), sin_rows = const_rows_of<T>(sin);
    parallel_rows(x_rows.rows, x_rows.width, [&](i64 begin, i64 end) {
      for (i64 t = begin; t < end; ++t) {
        const i64 p = position[t];
        if (p < 0 || p >= cos_rows.rows) {
          outside = t;
          continue;
        }
        rope_row<T>(y_rows[t], x_rows[t], cos_rows[p], sin_rows[p], inverse ? T(-1) : T(1), x_rows.width / head_dim,
                    head_dim / 2);
      }
    });
  });
  check(outside < 0, "rope: row {} is at position {}, the tables end before {}", outside.load(),
        outside < 0 ? 0 : position[outside], cos.size(0));
}

void rope_tables(at::Tensor& cos, at::Tensor& sin, const std::vector<RopeStretch>& stretches, double scale,
                 const at::Tensor& like) {
  i64 count = 0;
  for (const RopeStretch& stretch : stretches) count += stretch.count;
  const auto half = stretches.empty() ? 0 : static_cast<i64>(stretches.front().frequencies.size());
  const auto on_host = like.options().device(at::kCPU);
  const at::Tensor c = like.new_empty({count, half}, on_host), s = like.new_empty({count, half}, on_host);
  with_real(c, [&]<class T>() {
    T* c_data = c.mutable_data_ptr<T>();
    T* s_data = s.mutable_data_ptr<T>();
    for (const RopeStretch& stretch : stretches) {
      parallel_rows(stretch.count, half * 32, [&](i64 begin, i64 end) {
        for (i64 row = begin; row < end; ++row) {
          for (i64 i = 0; i < half; ++i) {
            const double angle =
                static_cast<double>(stretch.first + row) * stretch.frequencies[static_cast<std::size_t>(i)];
            c_data[row * half + i] = static_cast<T>(scale * std::cos(angle));
            s_data[row * half + i] = static_cast<T>(scale * std::sin(angle));
          }
        }
      });
      c_data += stretch.count * half;
      s_data += stretch.count * half;
    }
  });
  cos = upload(c, like.device());
  sin = upload(s, like.device());
}

}  // namespace switchyard::kernels
