// Attention whose weights are stored: softmax(q k^T * scale), a square of each document's tokens for each head.
// Queries' head i reads key/value head i / (N / K); a query sees itself and what is before it in its document.
#pragma once

namespace at {
class Tensor;
}  // namespace at

#include <vector>

#include "kernels/attention.hpp"

namespace switchyard::kernels {

/// w (N, TT): documents' squared lengths one after the other, TT the sum of their squared lengths, rows of queries. q
/// (T, N*D)  k (T, K*D)
void attention_weights(at::Tensor& w, const at::Tensor& q, const at::Tensor& k,
                       const std::vector<AttentionBlock>& blocks, int head_dim, double scale);
/// o = w v; rows in no block get 0.   o (T, N*D)   v (T, K*D)
void weigh_values(at::Tensor& o, const at::Tensor& w, const at::Tensor& v, const std::vector<AttentionBlock>& blocks,
                  int head_dim);

/// Dropout of the weights: what was kept (u8) and the weights after it, both (N, TT).
struct DroppedWeights {
  const at::Tensor* kept = nullptr;
  const at::Tensor* dropped = nullptr;
  double p = 0;
};
/// Gradients, overwritten (rows in no block get 0). dropped: without pointers there was no dropout.
void unfused_attention_backward(at::Tensor& dq, at::Tensor& dk, at::Tensor& dv, const at::Tensor& do_,
                                const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& w,
                                const DroppedWeights& dropped, const std::vector<AttentionBlock>& blocks, int head_dim,
                                double scale);

}  // namespace switchyard::kernels
