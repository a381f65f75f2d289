#include "kernels/norm.hpp"

#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/_fused_rms_norm_backward.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <vector>

#include "kernels/element_tensors.hpp"
#include "kernels/tensors.hpp"
#include "kernels/vectorized.hpp"

namespace switchyard::kernels {
namespace {

constexpr i64 kRowsPerPartial = 128;  // fixed, so that dw doesn't depend on the number of threads

template <class T>
struct Moments {
  T mean, rstd;
};

template <class T>
SWITCHYARD_SUMS T sum_of_products(const T* a, const T* b, i64 n) {
  T sum = 0;
  for (i64 i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

template <class T>
SWITCHYARD_SUMS T sum_of_squared_distances(const T* a, T from, i64 n) {
  T sum = 0;
  for (i64 i = 0; i < n; ++i) sum += (a[i] - from) * (a[i] - from);
  return sum;
}

/// sum_i dy w xhat, xhat = (x - mean) rstd
template <class T>
SWITCHYARD_SUMS T sum_of_weighted(const T* dy, const T* w, const T* x, Moments<T> of, i64 n) {
  T sum = 0;
  for (i64 i = 0; i < n; ++i) sum += dy[i] * w[i] * (x[i] - of.mean);
  return sum * of.rstd;
}

// Outputs may be inputs (ivdep): each element depends on the same index and on finished sums.
template <class T>
SWITCHYARD_LOOPS void normalise(T* y, const T* x, const T* w, const T* b, Moments<T> of, i64 n) {
  if (b == nullptr) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) y[i] = (x[i] - of.mean) * of.rstd * w[i];
  } else {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) y[i] = (x[i] - of.mean) * of.rstd * w[i] + b[i];
  }
}

/// dx = rstd (dy w - mean_term - xhat * dot_term) (+ residual)
template <class T>
SWITCHYARD_LOOPS void normalise_dx(T* dx, const T* dy, const T* x, const T* w, const T* residual, Moments<T> of,
                                   T mean_term, T dot_term, i64 n) {
  if (residual == nullptr) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) dx[i] = of.rstd * (dy[i] * w[i] - mean_term - (x[i] - of.mean) * of.rstd * dot_term);
  } else {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) {
      dx[i] = residual[i] + of.rstd * (dy[i] * w[i] - mean_term - (x[i] - of.mean) * of.rstd * dot_term);
    }
  }
}

template <class T>
SWITCHYARD_LOOPS void add_weight_gradient(T* __restrict dw, const T* __restrict dy, const T* __restrict x,
                                          Moments<T> of, i64 n) {
  for (i64 i = 0; i < n; ++i) dw[i] += dy[i] * ((x[i] - of.mean) * of.rstd);
}

template <class T>
SWITCHYARD_LOOPS void add_to(T* __restrict sum, const T* __restrict x, i64 n) {
  for (i64 i = 0; i < n; ++i) sum[i] += x[i];
}

/// dw (and db) += sum over rows, from partial sums of a fixed number of rows.
template <class T>
void weight_gradients(T* dw, T* db, Rows<const T> dy, Rows<const T> x, const T* mean, const T* rstd, i64 group) {
  const i64 groups = x.width / group, parts = (x.rows + kRowsPerPartial - 1) / kRowsPerPartial;
  const i64 width = db == nullptr ? group : 2 * group;
  std::vector<T> partial(static_cast<std::size_t>(parts * width));
  at::parallel_for(0, parts, 1, [&](i64 begin, i64 end) {
    for (i64 t = begin * kRowsPerPartial; t < std::min(x.rows, end * kRowsPerPartial); ++t) {
      T* sum = partial.data() + t / kRowsPerPartial * width;
      for (i64 g = 0; g < groups; ++g) {
        const i64 s = t * groups + g;
        add_weight_gradient<T>(sum, dy[t] + g * group, x[t] + g * group, {mean == nullptr ? T(0) : mean[s], rstd[s]},
                               group);
        if (db != nullptr) add_to<T>(sum + group, dy[t] + g * group, group);
      }
    }
  });
  for (i64 p = 0; p < parts; ++p) {
    add_to<T>(dw, partial.data() + p * width, group);
    if (db != nullptr) add_to<T>(db, partial.data() + p * width + group, group);
  }
}

/// x (T, H) in the statistics' dtype as (T, H / G, G).
at::Tensor in_groups(const at::Tensor& x, i64 group, const at::Tensor& statistics) {
  return x.to(statistics.scalar_type()).unflatten(1, {-1, group});
}

/// Whether libtorch's fused kernels compute it: they are for devices, and for one dtype.
bool is_fused(const at::Tensor& x, const at::Tensor& w) { return !x.is_cpu() && w.scalar_type() == x.scalar_type(); }

bool statistics_fit(const at::Tensor& statistics, const at::Tensor& x, i64 group) {
  return group > 0 && x.size(1) % group == 0 && statistics.is_contiguous() &&
         statistics.numel() == x.size(0) * (x.size(1) / group);
}

bool residual_fits(const at::Tensor& residual, const at::Tensor& x) {
  return !residual.defined() || (is_rows(residual) && same_shape({&residual, &x}));
}

const at::Tensor& residual_or(const at::Tensor& residual, const at::Tensor& x) {
  return residual.defined() ? residual : x;
}

bool column_fits(const at::Tensor& statistics, const at::Tensor& x) {
  return !statistics.defined() || statistics_fit(statistics, x, x.size(1));
}

bool terms_fit(const at::Tensor& terms, const at::Tensor& x, const at::Tensor& mean) {
  return terms.is_contiguous() && terms.dim() == 2 && terms.size(0) == (mean.defined() ? 2 : 1) &&
         terms.size(1) == x.size(0);
}

/// A statistic of each row, or 0 where there is none.
template <class T>
class Column {
 public:
  explicit Column(const at::Tensor& values) : data_(values.defined() ? values.const_data_ptr<T>() : nullptr) {}
  T operator[](i64 row) const { return data_ == nullptr ? T(0) : data_[row]; }

 private:
  const T* data_;
};

/// x - mean in the statistics' dtype, where x isn't computed with loops.
at::Tensor centred(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& statistics) {
  const at::Tensor wide = x.to(statistics.scalar_type());
  return mean.defined() ? wide.sub(mean.view({-1, 1})) : wide;
}

}  // namespace

void rms_norm(at::Tensor& y, at::Tensor& rstd, const at::Tensor& x, const at::Tensor& w, double eps) {
  const i64 group = w.numel();
  require(is_rows(y) && is_rows(x) && same_shape({&y, &x}) && w.is_contiguous() && statistics_fit(rstd, x, group),
          "rms_norm", {&y, &rstd, &x, &w});
  if (x.numel() == 0) return;
  if (group == x.size(1) && has_element_kernels({&x, &y, &w}))
    return with_element(x, [&]<class T>() { run_on_gpu(rms_norm_work<T>(y, rstd, x, w, eps), x.device()); });
  if (is_fused(x, w)) {
    const auto [normal, r] = at::_fused_rms_norm(x.unflatten(1, {-1, group}), {group}, w, eps);
    rstd.copy_(r.reshape(rstd.sizes()));
    y.copy_(normal.flatten(1));
    return;
  }
  if (!loops_apply({&y, &rstd, &x, &w})) {
    const at::Tensor wide = in_groups(x, group, rstd);
    const at::Tensor r = wide.mul(wide).mean({2}).add_(eps).rsqrt_();
    rstd.copy_(r.view_as(rstd));
    y.copy_(wide.mul(r.unsqueeze(2)).mul_(w).flatten(1));
    return;
  }
  with_real(x, [&]<class T>() {
    const auto y_rows = rows_of<T>(y);
    const auto x_rows = const_rows_of<T>(x);
    const T* weight = w.const_data_ptr<T>();
    T* stat = rstd.mutable_data_ptr<T>();
    const i64 groups = x_rows.width / group;
    parallel_rows(x_rows.rows, x_rows.width, [&](i64 begin, i64 end) {
      for (i64 s = begin * groups; s < end * groups; ++s) {
        const i64 t = s / groups, offset = s % groups * group;
        const T* in = x_rows[t] + offset;
        stat[s] = T(1) / std::sqrt(sum_of_products<T>(in, in, group) / static_cast<T>(group) + static_cast<T>(eps));
        normalise<T>(y_rows[t] + offset, in, weight, nullptr, {T(0), stat[s]}, group);
      }
    });
  });
}

void rms_norm_dx(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w, const at::Tensor& rstd,
                 const at::Tensor& residual) {
  const i64 group = w.numel();
  require(is_rows(dx) && is_rows(dy) && is_rows(x) && same_shape({&dx, &dy, &x}) && w.is_contiguous() &&
              statistics_fit(rstd, x, group) && residual_fits(residual, x),
          "rms_norm_dx", {&dx, &dy, &x, &w, &rstd, &residual});
  if (x.numel() == 0) return;
  if (group == x.size(1) && has_element_kernels({&x, &dx, &dy, &w, &residual_or(residual, x)}))
    return with_element(
        x, [&]<class T>() { run_on_gpu(rms_norm_gradient_work<T>(dx, dy, x, w, rstd, residual), x.device()); });
  if (is_fused(x, w) && dy.scalar_type() == x.scalar_type()) {
    const auto [out, dw] =
        at::_fused_rms_norm_backward(dy.contiguous().unflatten(1, {-1, group}), x.unflatten(1, {-1, group}), {group},
                                     rstd.view({x.size(0), -1, 1}), w, {true, false});
    dx.copy_(residual.defined() ? out.flatten(1).add(residual) : out.flatten(1));
    return;
  }
  if (!loops_apply({&dx, &dy, &x, &w, &rstd, &residual_or(residual, x)})) {
    const at::Tensor r = rstd.view({x.size(0), -1, 1}), normal = in_groups(x, group, rstd).mul(r),
                     g = in_groups(dy, group, rstd).mul(w);
    const at::Tensor out = g.sub(normal.mul(g.mul(normal).mean({2}, true))).mul_(r).flatten(1);
    dx.copy_(residual.defined() ? out.add(residual) : out);
    return;
  }
  with_real(x, [&]<class T>() {
    const auto dx_rows = rows_of<T>(dx);
    const auto dy_rows = const_rows_of<T>(dy), x_rows = const_rows_of<T>(x);
    const auto residual_rows = const_rows_of<T>(residual_or(residual, x));
    const T* weight = w.const_data_ptr<T>();
    const T* stat = rstd.const_data_ptr<T>();
    const i64 groups = x_rows.width / group;
    parallel_rows(x_rows.rows, x_rows.width, [&](i64 begin, i64 end) {
      for (i64 s = begin * groups; s < end * groups; ++s) {
        const i64 t = s / groups, offset = s % groups * group;
        const Moments<T> of{T(0), stat[s]};
        const T dot =
            sum_of_weighted<T>(dy_rows[t] + offset, weight, x_rows[t] + offset, of, group) / static_cast<T>(group);
        normalise_dx<T>(dx_rows[t] + offset, dy_rows[t] + offset, x_rows[t] + offset, weight,
                        residual.defined() ? residual_rows[t] + offset : nullptr, of, T(0), dot, group);
      }
    });
  });
}

void rms_norm_dw(at::Tensor& dw, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& rstd) {
  const i64 group = dw.numel();
  require(is_rows(dy) && is_rows(x) && same_shape({&dy, &x}) && dw.is_contiguous() && statistics_fit(rstd, x, group),
          "rms_norm_dw", {&dw, &dy, &x, &rstd});
  if (x.numel() == 0) return;
  if (group == x.size(1) && has_element_kernels({&x, &dy}))
    return with_element(x, [&]<class T>() {
      const at::Tensor partial = at::empty({NormWeightWork<T>::parts(x.size(0)), group}, rstd.options());
      run_on_gpu(norm_weight_work<T>(partial, dy, x, rstd), x.device());
      dw.add_(partial.sum(0));
    });
  if (!x.is_cpu()) {  // a product of a row and a matrix, as libtorch's fused kernel rounds the sum to the dtype of x
    const at::Tensor products = dy.to(dw.scalar_type(), /*non_blocking=*/false, /*copy=*/true).mul_(x);
    dw.addmv_(products.reshape({-1, group}).t(), rstd.reshape({-1}));
    return;
  }
  if (!loops_apply({&dw, &dy, &x, &rstd})) {
    const at::Tensor r = rstd.view({x.size(0), -1, 1});
    dw.add_(in_groups(dy, group, rstd).mul(in_groups(x, group, rstd).mul(r)).flatten(0, 1).sum(0));
    return;
  }
  with_real(x, [&]<class T>() {
    weight_gradients<T>(dw.mutable_data_ptr<T>(), nullptr, const_rows_of<T>(dy), const_rows_of<T>(x), nullptr,
                        rstd.const_data_ptr<T>(), group);
  });
}

void layer_norm(at::Tensor& y, at::Tensor& mean, at::Tensor& rstd, const at::Tensor& x, const at::Tensor& w,
                const at::Tensor& b, double eps) {
  const i64 width = x.size(1);
  require(is_rows(y) && is_rows(x) && same_shape({&y, &x}) && w.is_contiguous() && b.is_contiguous() &&
              w.numel() == width && b.numel() == width && statistics_fit(mean, x, width) &&
              statistics_fit(rstd, x, width),
          "layer_norm", {&y, &mean, &rstd, &x, &w, &b});
  if (x.numel() == 0) return;
  if (!loops_apply({&y, &mean, &rstd, &x, &w, &b})) {
    const at::Tensor wide = x.to(rstd.scalar_type()), m = wide.mean({1}, true), centred = wide.sub(m);
    const at::Tensor r = centred.mul(centred).mean({1}, true).add_(eps).rsqrt_();
    mean.copy_(m.view_as(mean));
    rstd.copy_(r.view_as(rstd));
    y.copy_(centred.mul(r).mul_(w).add_(b));
    return;
  }
  with_real(x, [&]<class T>() {
    const auto y_rows = rows_of<T>(y);
    const auto x_rows = const_rows_of<T>(x);
    const T *weight = w.const_data_ptr<T>(), *bias = b.const_data_ptr<T>();
    T *means = mean.mutable_data_ptr<T>(), *rstds = rstd.mutable_data_ptr<T>();
    parallel_rows(x_rows.rows, width, [&](i64 begin, i64 end) {
      for (i64 t = begin; t < end; ++t) {
        means[t] = sum_of<T>(x_rows[t], width) / static_cast<T>(width);
        rstds[t] = T(1) / std::sqrt(sum_of_squared_distances<T>(x_rows[t], means[t], width) / static_cast<T>(width) +
                                    static_cast<T>(eps));
        normalise<T>(y_rows[t], x_rows[t], weight, bias, {means[t], rstds[t]}, width);
      }
    });
  });
}

void layer_norm_dx(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                   const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& residual) {
  const i64 width = x.size(1);
  require(is_rows(dx) && is_rows(dy) && is_rows(x) && same_shape({&dx, &dy, &x}) && w.is_contiguous() &&
              w.numel() == width && statistics_fit(mean, x, width) && statistics_fit(rstd, x, width) &&
              residual_fits(residual, x),
          "layer_norm_dx", {&dx, &dy, &x, &w, &mean, &rstd, &residual});
  if (x.numel() == 0) return;
  if (!loops_apply({&dx, &dy, &x, &w, &mean, &rstd, &residual_or(residual, x)})) {
    const at::Tensor r = rstd.view({-1, 1}), normal = x.to(rstd.scalar_type()).sub(mean.view({-1, 1})).mul_(r);
    const at::Tensor g = dy.to(rstd.scalar_type()).mul(w);
    const at::Tensor out = g.sub(g.mean({1}, true)).sub_(normal.mul(g.mul(normal).mean({1}, true))).mul_(r);
    dx.copy_(residual.defined() ? out.add(residual) : out);
    return;
  }
  with_real(x, [&]<class T>() {
    const auto dx_rows = rows_of<T>(dx);
    const auto dy_rows = const_rows_of<T>(dy), x_rows = const_rows_of<T>(x);
    const auto residual_rows = const_rows_of<T>(residual_or(residual, x));
    const T *weight = w.const_data_ptr<T>(), *means = mean.const_data_ptr<T>(), *rstds = rstd.const_data_ptr<T>();
    parallel_rows(x_rows.rows, width, [&](i64 begin, i64 end) {
      for (i64 t = begin; t < end; ++t) {
        const Moments<T> of{means[t], rstds[t]};
        const T mean_term = sum_of_products<T>(dy_rows[t], weight, width) / static_cast<T>(width);
        const T dot = sum_of_weighted<T>(dy_rows[t], weight, x_rows[t], of, width) / static_cast<T>(width);
        normalise_dx<T>(dx_rows[t], dy_rows[t], x_rows[t], weight, residual.defined() ? residual_rows[t] : nullptr, of,
                        mean_term, dot, width);
      }
    });
  });
}

void layer_norm_dw(at::Tensor& dw, at::Tensor& db, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                   const at::Tensor& rstd) {
  const i64 width = x.size(1);
  require(is_rows(dy) && is_rows(x) && same_shape({&dy, &x}) && dw.is_contiguous() && db.is_contiguous() &&
              dw.numel() == width && db.numel() == width && statistics_fit(mean, x, width) &&
              statistics_fit(rstd, x, width),
          "layer_norm_dw", {&dw, &db, &dy, &x, &mean, &rstd});
  if (x.numel() == 0) return;
  if (!loops_apply({&dw, &db, &dy, &x, &mean, &rstd})) {
    const at::Tensor wide = dy.to(rstd.scalar_type());
    const at::Tensor normal = x.to(rstd.scalar_type()).sub(mean.view({-1, 1})).mul_(rstd.view({-1, 1}));
    dw.add_(wide.mul(normal).sum(0));
    db.add_(wide.sum(0));
    return;
  }
  with_real(x, [&]<class T>() {
    weight_gradients<T>(dw.mutable_data_ptr<T>(), db.mutable_data_ptr<T>(), const_rows_of<T>(dy), const_rows_of<T>(x),
                        mean.const_data_ptr<T>(), rstd.const_data_ptr<T>(), width);
  });
}

void norm_mean(at::Tensor& mean, const at::Tensor& x, std::int64_t H) {
  require(is_rows(x) && column_fits(mean, x), "norm_mean", {&mean, &x});
  if (!loops_apply({&mean, &x})) {
    mean.copy_(x.to(mean.scalar_type()).sum({1}).div_(H).view_as(mean));
    return;
  }
  with_real(x, [&]<class T>() {
    const auto x_rows = const_rows_of<T>(x);
    T* out = mean.mutable_data_ptr<T>();
    parallel_rows(x_rows.rows, x_rows.width, [&](i64 begin, i64 end) {
      for (i64 t = begin; t < end; ++t) out[t] = sum_of<T>(x_rows[t], x_rows.width) / static_cast<T>(H);
    });
  });
}

void norm_variance(at::Tensor& variance, const at::Tensor& x, const at::Tensor& mean, std::int64_t H) {
  require(is_rows(x) && column_fits(variance, x) && column_fits(mean, x), "norm_variance", {&variance, &x, &mean});
  if (!loops_apply({&variance, &x})) {
    variance.copy_(centred(x, mean, variance).square().sum({1}).div_(H).view_as(variance));
    return;
  }
  with_real(x, [&]<class T>() {
    const auto x_rows = const_rows_of<T>(x);
    const Column<T> means(mean);
    T* out = variance.mutable_data_ptr<T>();
    parallel_rows(x_rows.rows, x_rows.width, [&](i64 begin, i64 end) {
      for (i64 t = begin; t < end; ++t)
        out[t] = sum_of_squared_distances<T>(x_rows[t], means[t], x_rows.width) / static_cast<T>(H);
    });
  });
}

void norm_rows(at::Tensor& y, at::Tensor& rstd, const at::Tensor& x, const at::Tensor& w, const at::Tensor& b,
               const at::Tensor& mean, double eps) {
  require(is_rows(y) && is_rows(x) && same_shape({&y, &x}) && w.is_contiguous() && w.numel() == x.size(1) &&
              (!b.defined() || (b.is_contiguous() && b.numel() == x.size(1))) && column_fits(rstd, x) &&
              column_fits(mean, x),
          "norm_rows", {&y, &rstd, &x, &w, &b, &mean});
  if (!loops_apply({&y, &rstd, &x, &w})) {
    rstd.add_(eps).rsqrt_();
    const at::Tensor out = centred(x, mean, rstd).mul(rstd.view({-1, 1})).mul_(w);
    y.copy_(b.defined() ? out.add(b) : out);
    return;
  }
  with_real(x, [&]<class T>() {
    const auto y_rows = rows_of<T>(y);
    const auto x_rows = const_rows_of<T>(x);
    const Column<T> means(mean);
    const T *weight = w.const_data_ptr<T>(), *bias = b.defined() ? b.const_data_ptr<T>() : nullptr;
    T* rstds = rstd.mutable_data_ptr<T>();
    parallel_rows(x_rows.rows, x_rows.width, [&](i64 begin, i64 end) {
      for (i64 t = begin; t < end; ++t) {
        rstds[t] = T(1) / std::sqrt(rstds[t] + static_cast<T>(eps));
        normalise<T>(y_rows[t], x_rows[t], weight, bias, {means[t], rstds[t]}, x_rows.width);
      }
    });
  });
}

void norm_dx_terms(at::Tensor& terms, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                   const at::Tensor& mean, const at::Tensor& rstd, std::int64_t H) {
  require(is_rows(dy) && is_rows(x) && same_shape({&dy, &x}) && w.is_contiguous() && w.numel() == x.size(1) &&
              column_fits(rstd, x) && column_fits(mean, x) && terms_fit(terms, x, mean),
          "norm_dx_terms", {&terms, &dy, &x, &w, &mean, &rstd});
  if (!loops_apply({&terms, &dy, &x, &w})) {
    const at::Tensor g = dy.to(rstd.scalar_type()).mul(w);
    terms.select(0, 0).copy_(centred(x, mean, rstd).mul(rstd.view({-1, 1})).mul_(g).sum({1}).div_(H));
    if (mean.defined()) terms.select(0, 1).copy_(g.sum({1}).div_(H));
    return;
  }
  with_real(x, [&]<class T>() {
    const auto dy_rows = const_rows_of<T>(dy), x_rows = const_rows_of<T>(x);
    const Column<T> means(mean), rstds(rstd);
    const T* weight = w.const_data_ptr<T>();
    T* out = terms.mutable_data_ptr<T>();
    const i64 rows = x_rows.rows, width = x_rows.width;
    parallel_rows(rows, width, [&](i64 begin, i64 end) {
      for (i64 t = begin; t < end; ++t) {
        const Moments<T> of{means[t], rstds[t]};
        out[t] = sum_of_weighted<T>(dy_rows[t], weight, x_rows[t], of, width) / static_cast<T>(H);
        if (mean.defined()) out[rows + t] = sum_of_products<T>(dy_rows[t], weight, width) / static_cast<T>(H);
      }
    });
  });
}

void norm_dx_rows(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                  const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& terms, const at::Tensor& residual) {
  require(is_rows(dx) && is_rows(dy) && is_rows(x) && same_shape({&dx, &dy, &x}) && w.is_contiguous() &&
              w.numel() == x.size(1) && column_fits(rstd, x) && column_fits(mean, x) && terms_fit(terms, x, mean) &&
              residual_fits(residual, x),
          "norm_dx_rows", {&dx, &dy, &x, &w, &mean, &rstd, &terms, &residual});
  if (!loops_apply({&dx, &dy, &x, &w, &terms, &residual_or(residual, x)})) {
    const at::Tensor r = rstd.view({-1, 1}), normal = centred(x, mean, rstd).mul(r);
    at::Tensor out = dy.to(rstd.scalar_type()).mul(w).sub(normal.mul(terms.select(0, 0).view({-1, 1})));
    if (mean.defined()) out = out.sub(terms.select(0, 1).view({-1, 1}));
    out = out.mul(r);
    dx.copy_(residual.defined() ? out.add(residual) : out);
    return;
  }
  with_real(x, [&]<class T>() {
    const auto dx_rows = rows_of<T>(dx);
    const auto dy_rows = const_rows_of<T>(dy), x_rows = const_rows_of<T>(x);
    const auto residual_rows = const_rows_of<T>(residual_or(residual, x));
    const Column<T> means(mean), rstds(rstd);
    const T *weight = w.const_data_ptr<T>(), *term = terms.const_data_ptr<T>();
    const i64 rows = x_rows.rows, width = x_rows.width;
    parallel_rows(rows, width, [&](i64 begin, i64 end) {
      for (i64 t = begin; t < end; ++t)
        normalise_dx<T>(dx_rows[t], dy_rows[t], x_rows[t], weight, residual.defined() ? residual_rows[t] : nullptr,
                        {means[t], rstds[t]}, mean.defined() ? term[rows + t] : T(0), term[t], width);
    });
  });
}

}  // namespace switchyard::kernels
