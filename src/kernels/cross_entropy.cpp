#include "kernels/cross_entropy.hpp"

#include <array>
#include <cmath>
#include <limits>

#include "kernels/element_tensors.hpp"
#include "kernels/tensors.hpp"
#include "kernels/vectorized.hpp"

namespace switchyard::kernels {
namespace {

constexpr i64 kRowsByOperators = 512;  // which copy logits to fp32
constexpr i64 kBlock = 512;            // columns whose exponentials stay in L1 until they are summed

template <class T>
SWITCHYARD_MAXIMA T maximum(const T* x, i64 n) {
  T top = x[0];
  for (i64 i = 1; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

template <class T>
SWITCHYARD_LOOPS void exp_minus(T* __restrict e, const T* __restrict x, T top, i64 n) {
  for (i64 i = 0; i < n; ++i) e[i] = exp_of(x[i] - top);
}

template <class T>
SWITCHYARD_LOOPS void scaled_exp(T* x, T top, T scale, i64 n) {
  for (i64 i = 0; i < n; ++i) x[i] = scale * exp_of(x[i] - top);
}

template <class T>
T sum_of_exp(const T* x, T top, i64 n) {
  std::array<T, kBlock> block;
  T sum = 0;
  for (i64 i = 0; i < n; i += kBlock) {
    const i64 width = std::min(kBlock, n - i);
    exp_minus<T>(block.data(), x + i, top, width);
    sum += sum_of<T>(block.data(), width);
  }
  return sum;
}

/// The label's column in this part, clamped to it, (T', 1); and whether the label is in this part, (T').
std::pair<at::Tensor, at::Tensor> label_columns(const at::Tensor& labels, const at::Tensor& logits, i64 first) {
  const at::Tensor column = labels.sub(first);
  const at::Tensor inside = labels.ge(0).logical_and(column.ge(0)).logical_and(column.lt(logits.size(1)));
  return {column.clamp(0, logits.size(1) - 1).unsqueeze(1), inside};
}

// The operators that a device without kernels of ours has, for some rows.
void sums_by_operators(const at::Tensor& sums, const at::Tensor& logits, const at::Tensor& top,
                       const at::Tensor& labels, i64 first) {
  const at::Tensor below = logits.to(top.scalar_type()).sub(top.unsqueeze(1));
  const auto [column, inside] = label_columns(labels, logits, first);
  sums.select(0, 0).copy_(below.exp().sum(1));
  sums.select(0, 1).copy_(below.gather(1, column).squeeze(1).masked_fill(inside.logical_not(), 0));
}

void gradient_by_operators(const at::Tensor& logits, const at::Tensor& top, const at::Tensor& sums,
                           const at::Tensor& labels, const at::Tensor& weights, i64 first) {
  const auto [column, inside] = label_columns(labels, logits, first);
  at::Tensor gradient = logits.to(top.scalar_type()).sub(top.unsqueeze(1)).exp_().div_(sums.select(0, 0).unsqueeze(1));
  gradient.scatter_add_(1, column, inside.to(gradient.scalar_type()).neg().unsqueeze(1));
  gradient.mul_(weights.unsqueeze(1)).masked_fill_(weights.eq(0).logical_or(labels.lt(0)).unsqueeze(1), 0);
  logits.copy_(gradient);
}

// rows(begin, count) for all rows, some at a time.
template <class F>
void by_rows(const at::Tensor& logits, F&& rows) {
  for (i64 begin = 0; begin < logits.size(0); begin += kRowsByOperators)
    rows(begin, std::min(kRowsByOperators, logits.size(0) - begin));
}

bool rows_fit(const at::Tensor& logits, std::initializer_list<const at::Tensor*> per_row) {
  return is_rows(logits) && std::all_of(per_row.begin(), per_row.end(), [&](const at::Tensor* x) {
           return x->dim() == 1 && x->size(0) == logits.size(0) && x->is_contiguous();
         });
}

bool sums_fit(const at::Tensor& sums, const at::Tensor& logits) {
  return sums.dim() == 2 && sums.size(0) == 2 && sums.size(1) == logits.size(0) && sums.is_contiguous();
}

}  // namespace

void xent_max(at::Tensor& top, const at::Tensor& logits) {
  require(rows_fit(logits, {&top}), "xent_max", {&top, &logits});
  if (logits.size(0) == 0) return;
  if (logits.size(1) == 0) {
    top.fill_(-std::numeric_limits<double>::infinity());
    return;
  }
  if (!loops_apply({&top, &logits})) {
    top.copy_(logits.amax({1}));
    return;
  }
  with_real(logits, [&]<class T>() {
    const auto rows = const_rows_of<T>(logits);
    T* out = top.mutable_data_ptr<T>();
    parallel_rows(rows.rows, rows.width, [&](i64 begin, i64 end) {
      for (i64 t = begin; t < end; ++t) out[t] = maximum<T>(rows[t], rows.width);
    });
  });
}

void xent_sums(at::Tensor& sums, const at::Tensor& logits, const at::Tensor& top, const at::Tensor& labels,
               long first) {
  require(rows_fit(logits, {&top, &labels}) && sums_fit(sums, logits) && labels.scalar_type() == at::kLong, "xent_sums",
          {&sums, &logits, &top, &labels});
  if (logits.numel() == 0) {
    sums.zero_();
    return;
  }
  if (has_element_kernels({&logits}))
    return with_element(logits, [&]<class T>() {
      run_on_gpu(sum_of_exponentials_work<T>(sums, logits, top, labels, first), logits.device());
    });
  if (!loops_apply({&sums, &logits, &top}))
    return by_rows(logits, [&](i64 begin, i64 count) {
      sums_by_operators(sums.narrow(1, begin, count), logits.narrow(0, begin, count), top.narrow(0, begin, count),
                        labels.narrow(0, begin, count), first);
    });
  with_real(logits, [&]<class T>() {
    const auto rows = const_rows_of<T>(logits);
    const T* tops = top.const_data_ptr<T>();
    const i64* label = labels.const_data_ptr<i64>();
    T* out = sums.mutable_data_ptr<T>();
    parallel_rows(rows.rows, rows.width, [&](i64 begin, i64 end) {
      for (i64 t = begin; t < end; ++t) {
        const i64 column = label[t] - first;
        out[t] = sum_of_exp<T>(rows[t], tops[t], rows.width);
        out[rows.rows + t] = label[t] >= 0 && column >= 0 && column < rows.width ? rows[t][column] - tops[t] : T(0);
      }
    });
  });
}

void xent_grad(at::Tensor& logits, at::Tensor& loss, const at::Tensor& top, const at::Tensor& sums,
               const at::Tensor& labels, const at::Tensor& weights, long first) {
  require(
      rows_fit(logits, {&loss, &top, &labels, &weights}) && sums_fit(sums, logits) && labels.scalar_type() == at::kLong,
      "xent_grad", {&logits, &loss, &top, &sums, &labels, &weights});
  if (logits.size(0) == 0) return;
  if (!loops_apply({&logits, &loss, &top, &sums, &weights})) {
    const at::Tensor unused = weights.eq(0).logical_or(labels.lt(0));
    loss.copy_(sums.select(0, 0).log().sub_(sums.select(0, 1)).mul_(weights).masked_fill_(unused, 0));
    if (logits.size(1) == 0) return;
    if (has_element_kernels({&logits}))
      return with_element(logits, [&]<class T>() {
        run_on_gpu(cross_entropy_work<T>(logits, top, sums, labels, weights, first), logits.device());
      });
    by_rows(logits, [&](i64 begin, i64 count) {
      gradient_by_operators(logits.narrow(0, begin, count), top.narrow(0, begin, count), sums.narrow(1, begin, count),
                            labels.narrow(0, begin, count), weights.narrow(0, begin, count), first);
    });
    return;
  }
  with_real(logits, [&]<class T>() {
    const auto rows = rows_of<T>(logits);
    const T *tops = top.const_data_ptr<T>(), *sum = sums.const_data_ptr<T>(), *weight = weights.const_data_ptr<T>();
    const i64* label = labels.const_data_ptr<i64>();
    T* out = loss.mutable_data_ptr<T>();
    parallel_rows(rows.rows, rows.width, [&](i64 begin, i64 end) {
      for (i64 t = begin; t < end; ++t) {
        T* row = rows[t];
        if (label[t] < 0 || weight[t] == 0) {
          std::fill(row, row + rows.width, T(0));
          out[t] = 0;
          continue;
        }
        const i64 column = label[t] - first;
        scaled_exp<T>(row, tops[t], weight[t] / sum[t], rows.width);
        if (column >= 0 && column < rows.width) row[column] -= weight[t];
        out[t] = weight[t] * (std::log(sum[t]) - sum[rows.rows + t]);
      }
    });
  });
}

}  // namespace switchyard::kernels
