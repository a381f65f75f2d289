#include "kernels/linear.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>

#include <vector>

#include "kernels/tensors.hpp"
#include "kernels/vectorized.hpp"

namespace switchyard::kernels {
namespace {

constexpr i64 kRowsPerPartial = 256;  // fixed, so that sums don't depend on the number of threads

template <class T>
SWITCHYARD_LOOPS void add_rows(T* sum, Rows<const T> x, i64 begin, i64 end) {
  const i64 width = x.width;
  for (i64 t = begin; t < end; ++t) {
    const T* row = x[t];
#pragma GCC ivdep
    for (i64 j = 0; j < width; ++j) sum[j] += row[j];
  }
}

template <class T>
void sum_of_rows(T* sum, Rows<const T> x) {
  const i64 parts = (x.rows + kRowsPerPartial - 1) / kRowsPerPartial;
  std::vector<T> partial(static_cast<std::size_t>(parts * x.width));
  at::parallel_for(0, parts, 1, [&](i64 begin, i64 end) {
    for (i64 p = begin; p < end; ++p) {
      add_rows<T>(partial.data() + p * x.width, x, p * kRowsPerPartial, std::min(x.rows, (p + 1) * kRowsPerPartial));
    }
  });
  add_rows<T>(sum, {partial.data(), x.width, parts, x.width}, 0, parts);
}

// On processors with AMX, oneDNN's products in bf16 also read what lies between the rows of the first factor, unless 32
// divides their width, and multiply it by zero: NaN or infinity there would come into the product (oneDNN 3.12). `copy`
// is then where the rows lie side by side.
at::Tensor first_factor(const at::Tensor& x, std::vector<c10::BFloat16>& copy) {
  constexpr i64 kTile = 32;
  const bool gaps = x.stride(0) > x.size(1) && x.size(1) % kTile != 0;
  if (!gaps || !x.is_cpu() || x.scalar_type() != at::kBFloat16) return x;
  copy.resize(static_cast<std::size_t>(x.numel()));
  at::Tensor dense = at::from_blob(copy.data(), x.sizes(), x.options());
  return dense.copy_(x);
}

}  // namespace

void linear(at::Tensor& y, const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  require(is_rows(y) && is_rows(x) && is_rows(w) && x.size(1) == w.size(1) && y.size(0) == x.size(0) &&
              y.size(1) == w.size(0) && (!bias.defined() || bias.numel() == y.size(1)),
          "linear", {&y, &x, &w, &bias});
  if (y.numel() == 0) return;
  std::vector<c10::BFloat16> copy;
  const at::Tensor rows = first_factor(x, copy);
  if (bias.defined()) {
    at::addmm_out(y, bias, rows, w.t());
  } else {
    at::mm_out(y, rows, w.t());
  }
}

void linear_dx(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& w, bool accumulate) {
  require(is_rows(dx) && is_rows(dy) && is_rows(w) && dy.size(1) == w.size(0) && dx.size(0) == dy.size(0) &&
              dx.size(1) == w.size(1),
          "linear_dx", {&dx, &dy, &w});
  if (dx.numel() == 0) return;
  std::vector<c10::BFloat16> copy;
  const at::Tensor rows = first_factor(dy, copy);
  if (accumulate) {
    dx.addmm_(rows, w);
  } else {
    at::mm_out(dx, rows, w);
  }
}

void linear_dw(at::Tensor& dw, const at::Tensor& dy, const at::Tensor& x) {
  require(is_rows(dw) && is_rows(dy) && is_rows(x) && dy.size(0) == x.size(0) && dw.size(0) == dy.size(1) &&
              dw.size(1) == x.size(1),
          "linear_dw", {&dw, &dy, &x});
  if (dw.numel() == 0 || dy.size(0) == 0) return;
  if (dw.scalar_type() == dy.scalar_type()) {
    dw.addmm_(dy.t(), x);
  } else if (dy.is_cpu()) {
    dw.addmm_(dy.t().to(dw.scalar_type()), x.to(dw.scalar_type()));
  } else {
    at::addmm_out(dw, dw, dy.t(), x, dw.scalar_type());  // tensor cores, accumulated and added in fp32
  }
}

void bias_dw(at::Tensor& db, const at::Tensor& dy) {
  require(is_rows(dy) && db.dim() == 1 && db.size(0) == dy.size(1), "bias_dw", {&db, &dy});
  if (dy.numel() == 0) return;
  if (!loops_apply({&db, &dy})) {
    db.add_(dy.sum(0, false, db.scalar_type()));
    return;
  }
  with_real(db, [&]<class T>() { sum_of_rows<T>(db.mutable_data_ptr<T>(), const_rows_of<T>(dy)); });
}

}  // namespace switchyard::kernels
