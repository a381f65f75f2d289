// Rows of a table by index. With tensor parallelism the table is the part [first, first + rows) of the vocabulary;
// indices outside it give zero rows, so that the sum over ranks is the complete result.
#pragma once

namespace at {
class Tensor;
}  // namespace at

namespace switchyard::kernels {

/// y[t] = table[ids[t] - first], or 0.   ids (T) i64   table (V', H)   y (T, H)
void embedding(at::Tensor& y, const at::Tensor& ids, const at::Tensor& table, long first);
/// dtable[ids[t] - first] += dy[t], in order of t (bit-reproducible).   dtable (V', H) state dtype
void embedding_dw(at::Tensor& dtable, const at::Tensor& dy, const at::Tensor& ids, long first);

}  // namespace switchyard::kernels
