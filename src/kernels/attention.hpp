// Attention over packed documents. Queries see only the keys of their block. Query head i reads key/value head
// i / (N / K). Softmax statistics are in fp32 or wider; the full matrix of scores is never stored.
#pragma once

namespace at {
class Tensor;
}  // namespace at

#include <vector>

namespace switchyard::kernels {

/// The qn queries from row q on and the kn keys from row k on. causal (qn <= kn): the queries are those of the last qn
/// keys, and query i sees the keys 0..kn - qn + i.
struct AttentionBlock {
  int q = 0, qn = 0, k = 0, kn = 0;
  bool causal = false;
};

/// o = softmax(q k^T * scale) v per block.   q, o (T, N*D)   k, v (T, K*D)   lse (N, T) state dtype, natural logarithm
/// Each query row is in at most one block; rows in none get o = 0, lse = -inf. N, K may be 0 (T*0 tensors).
void attention(at::Tensor& o, at::Tensor& lse, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
               const std::vector<AttentionBlock>& blocks, int head_dim, double scale);
/// Further keys for queries whose o and lse are of others: both become what all of these keys give together. Rows in no
/// block, and those of blocks without keys, keep theirs. o is in the state dtype.
/// formula  s = sigmoid(lse_block - lse);  o -= s * (o - o_block);  lse = log(exp(lse) + exp(lse_block)); the tiles go
///          on with their online softmax from o and lse, which is the same
/// edges    lse = -inf (no keys before): o_block, lse_block
/// source   online softmax, arXiv 1805.02867; Ring Attention, arXiv 2310.01889
void attention_to_more_keys(at::Tensor& o, at::Tensor& lse, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::vector<AttentionBlock>& blocks, int head_dim, double scale);
/// Attention over other keys into the running result, in place.
/// o (T, N*D) and lse (N, T)   o_block, lse_block: the same of the other keys; o may be wider than o_block
/// formula  s = sigmoid(lse_block - lse);  o -= s * (o - o_block);  lse = log(exp(lse) + exp(lse_block))
/// edges    lse_block = -inf (it saw no keys) changes nothing, even where lse = -inf
void merge_attention(at::Tensor& o, at::Tensor& lse, const at::Tensor& o_block, const at::Tensor& lse_block,
                     int head_dim);
/// Gradients, overwritten (rows in no block get 0). do_ (T, N*D) and the saved o, lse.
void attention_backward(at::Tensor& dq, at::Tensor& dk, at::Tensor& dv, const at::Tensor& do_, const at::Tensor& q,
                        const at::Tensor& k, const at::Tensor& v, const at::Tensor& o, const at::Tensor& lse,
                        const std::vector<AttentionBlock>& blocks, int head_dim, double scale);
/// The same, added to dq, dk and dv, which are in the state dtype. o and lse are of all keys that the queries see,
/// wherever these are.
void add_attention_gradients(at::Tensor& dq, at::Tensor& dk, at::Tensor& dv, const at::Tensor& do_, const at::Tensor& q,
                             const at::Tensor& k, const at::Tensor& v, const at::Tensor& o, const at::Tensor& lse,
                             const std::vector<AttentionBlock>& blocks, int head_dim, double scale);

}  // namespace switchyard::kernels
