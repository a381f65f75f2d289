// Attention that stores its weights softmax(q k^T * scale), one square matrix for each document and head.
// Query head i reads key/value head i / (N / K); a query sees the tokens of its document up to itself.
#pragma once

namespace at {
class Tensor;
}  // namespace at

#include <vector>

#include "kernels/attention.hpp"

namespace switchyard::kernels {

/// w (N, TT): the documents' squares one after the other, one row per query; TT is the sum of squared lengths.
/// q (T, N*D)   k (T, K*D)
void attention_weights(at::Tensor& w, const at::Tensor& q, const at::Tensor& k,
                       const std::vector<AttentionBlock>& blocks, int head_dim, double scale);
/// o = w v; rows in no block get 0.   o (T, N*D)   v (T, K*D)
void weigh_values(at::Tensor& o, const at::Tensor& w, const at::Tensor& v, const std::vector<AttentionBlock>& blocks,
                  int head_dim);

/// Dropout of the weights: the kept elements (u8) and the weights after dropout, both (N, TT).
struct DroppedWeights {
  const at::Tensor* kept = nullptr;
  const at::Tensor* dropped = nullptr;
  double p = 0;
};
/// Gradients, overwritten (rows in no block get 0). dropped: null pointers if there was no dropout.
void unfused_attention_backward(at::Tensor& dq, at::Tensor& dk, at::Tensor& dv, const at::Tensor& do_,
                                const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& w,
                                const DroppedWeights& dropped, const std::vector<AttentionBlock>& blocks, int head_dim,
                                double scale);

}  // namespace switchyard::kernels
