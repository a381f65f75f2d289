// Cross-entropy over a split vocabulary, in three local passes; between them the caller makes small all-reduces.
// logits (T', V'): this rank's columns [first, first + V') for a chunk of tokens; labels (T') i64; statistics in the
// state dtype. Tokens with a label < 0 or weight 0 contribute nothing.
#pragma once

namespace at {
class Tensor;
}  // namespace at

namespace switchyard::kernels {

/// top (T') = max over columns (-inf where V' = 0).
void xent_max(at::Tensor& top, const at::Tensor& logits);
/// sums (2, T'): row 0 = sum exp(logits - top), row 1 = logits[label] - top if the label is in this part, else 0. top
/// is the global maximum.
void xent_sums(at::Tensor& sums, const at::Tensor& logits, const at::Tensor& top, const at::Tensor& labels, long first);
/// In place: logits becomes d loss / d logits = weight * (exp(logits - top) / sums[0] - [column is the label]).
/// loss (T') = weight * (log sums[0] - sums[1]), state dtype. weights (T') state dtype
void xent_grad(at::Tensor& logits, at::Tensor& loss, const at::Tensor& top, const at::Tensor& sums,
               const at::Tensor& labels, const at::Tensor& weights, long first);

}  // namespace switchyard::kernels
