// Attention on CPU, in tiles of queries by keys. Internal to kernels; `attention.hpp` has the contract.
#pragma once

#include "kernels/attention.hpp"
#include "kernels/tensors.hpp"

namespace switchyard::kernels {

/// Queries, keys, values as rows of heads; `heads` and `kv_heads` are N and K.
template <class T>
struct AttentionInput {
  Rows<const T> q, k, v;
  i64 heads = 0, kv_heads = 0, head_dim = 0;
  T scale = 1;
};

/// Sets o and lse (N, T) of the rows in `blocks`; other rows keep their values. more: these keys add to those that o
/// and lse are of.
template <class T>
void attention_tiles(Rows<T> o, T* lse, const AttentionInput<T>& in, const std::vector<AttentionBlock>& blocks,
                     bool more);

/// Adds to dq, dk and dv, which the caller has filled with zeros.
template <class T>
void attention_tiles_backward(Rows<T> dq, Rows<T> dk, Rows<T> dv, Rows<const T> d_out, Rows<const T> o, const T* lse,
                              const AttentionInput<T>& in, const std::vector<AttentionBlock>& blocks);

}  // namespace switchyard::kernels
