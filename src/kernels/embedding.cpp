#include "kernels/embedding.hpp"

#include <cstring>

#include "kernels/tensors.hpp"
#include "kernels/vectorized.hpp"

namespace switchyard::kernels {
namespace {

// Columns of one thread: it adds all tokens to them in order, so that no two threads write to the same element.
constexpr i64 kColumns = 64;

template <class T>
SWITCHYARD_LOOPS void add_embedding_columns(Rows<T> table, Rows<const T> dy, const i64* ids, i64 first, i64 begin,
                                            i64 end) {
  for (i64 t = 0; t < dy.rows; ++t) {
    const i64 row = ids[t] - first;
    if (row < 0 || row >= table.rows) continue;
    T* to = table[row];
    const T* from = dy[t];
#pragma GCC ivdep
    for (i64 j = begin; j < end; ++j) to[j] += from[j];
  }
}

}  // namespace

void embedding(at::Tensor& y, const at::Tensor& ids, const at::Tensor& table, long first) {
  require(is_rows(y) && is_rows(table) && ids.dim() == 1 && y.size(0) == ids.size(0) && y.size(1) == table.size(1) &&
              ids.scalar_type() == at::kLong && y.scalar_type() == table.scalar_type(),
          "embedding", {&y, &ids, &table});
  if (y.numel() == 0) return;
  const i64 rows = table.size(0);
  if (rows == 0) {
    y.zero_();
    return;
  }
  if (!loops_apply({&y, &table})) {
    const at::Tensor row = ids.sub(first);
    y.copy_(table.index_select(0, row.clamp(0, rows - 1)));
    y.masked_fill_(row.lt(0).logical_or(row.ge(rows)).unsqueeze(1), 0);
    return;
  }
  const at::Tensor ids_dense = ids.contiguous();
  const i64* id = ids_dense.const_data_ptr<i64>();
  with_real(y, [&]<class T>() {
    const auto y_rows = rows_of<T>(y);
    const auto table_rows = const_rows_of<T>(table);
    const auto bytes = static_cast<std::size_t>(y_rows.width) * sizeof(T);
    parallel_rows(y_rows.rows, y_rows.width, [&](i64 begin, i64 end) {
      for (i64 t = begin; t < end; ++t) {
        const i64 row = id[t] - first;
        if (row < 0 || row >= rows) {
          std::memset(y_rows[t], 0, bytes);
        } else {
          std::memcpy(y_rows[t], table_rows[row], bytes);
        }
      }
    });
  });
}

void embedding_dw(at::Tensor& dtable, const at::Tensor& dy, const at::Tensor& ids, long first) {
  require(is_rows(dy) && is_rows(dtable) && ids.dim() == 1 && dy.size(0) == ids.size(0) &&
              dy.size(1) == dtable.size(1) && ids.scalar_type() == at::kLong,
          "embedding_dw", {&dtable, &dy, &ids});
  if (dtable.numel() == 0 || dy.numel() == 0) return;
  if (!loops_apply({&dtable, &dy})) {
    const i64 rows = dtable.size(0);
    const at::Tensor row = ids.sub(first), outside = row.lt(0).logical_or(row.ge(rows)).unsqueeze(1);
    // Added where it belongs: libtorch's embedding_dense_backward gives a table of its own.
    dtable.index_add_(0, row.clamp(0, rows - 1),
                      dy.to(dtable.scalar_type(), /*non_blocking=*/false, /*copy=*/true).masked_fill_(outside, 0));
    return;
  }
  const at::Tensor ids_dense = ids.contiguous();
  const i64* id = ids_dense.const_data_ptr<i64>();
  with_real(dtable, [&]<class T>() {
    const auto table_rows = rows_of<T>(dtable);
    const auto dy_rows = const_rows_of<T>(dy);
    at::parallel_for(0, (dy_rows.width + kColumns - 1) / kColumns, std::max<i64>(1, 16384 / (kColumns * dy_rows.rows)),
                     [&](i64 begin, i64 end) {
                       add_embedding_columns<T>(table_rows, dy_rows, id, first, begin * kColumns,
                                                std::min(end * kColumns, dy_rows.width));
                     });
  });
}

}  // namespace switchyard::kernels
