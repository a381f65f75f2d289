// Attention within documents that stores no scores. T tokens, N heads, K key/value heads, D head dim.
#pragma once

#include "ir/operator.hpp"

namespace switchyard::ir {

/// Whether a device's kernels of flash attention, which store no scores, compute in this dtype with heads of this size.
bool fits_flash_attention(DType compute, i64 head_dim);
/// Whether devices with such kernels have a call of its own for a long document with heads of this size.
bool fits_padded_attention(i64 head_dim);
/// Rows as which a document of so many tokens, which ends with rows of padding, is a call of a device's attention for
/// documents of one length; 0: it is too short to pay for a call of its own. There are 16 lengths from one power of 2
/// to the next, because every new one costs such kernels (cuDNN's) a tenth of a second.
i64 padded_attention_rows(i64 tokens);
/// Elements of the graph's heads; 0: it has no attention that stores no scores.
i64 attention_head_dim(const Graph& graph);

/// o = softmax(q k^T / sqrt(D)) v within documents, causal; query head i reads key/value head i / (N / K).
/// q, o (T, N*D)   k, v (T, K*D)   lse (T, N) natural logarithm, state dtype
class Attention final : public Operator {
 public:
  Attention(i64 head_dim, i64 kv_heads) : Operator("attention"), head_dim_(head_dim), kv_heads_(kv_heads) {}
  i64 head_dim() const { return head_dim_; }
  i64 fused_head_dim() const override { return head_dim_; }
  std::vector<Type> shape(std::span<const Type> in) const override;
  layout::Role reads_as() const override { return layout::Role::attention; }
  LayoutRule layout(const LayoutQuery& query) const override;
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy,
                                  std::vector<int>& existing) const override;
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;
  i64 workspace(std::span<const Type> in, std::span<const Type> out, const CallSize& size) const override;
  KeyBytes key_bytes(std::span<const Type> in) const override;
  bool is_remade(size_t) const override { return true; }

 private:
  i64 head_dim_, kv_heads_;
};

/// inputs do, q, k, v, o, lse; outputs dq, dk, dv. Where queries are cut finer than keys, dk and dv are partial.
class AttentionDx final : public Operator {
 public:
  AttentionDx(i64 head_dim, i64 kv_heads) : Operator("attention_dx"), head_dim_(head_dim), kv_heads_(kv_heads) {}
  i64 head_dim() const { return head_dim_; }
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[1], in[2], in[3]}; }
  layout::Role reads_as() const override { return layout::Role::attention; }
  LayoutRule layout(const LayoutQuery& query) const override;
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;
  i64 workspace(std::span<const Type> in, std::span<const Type> out, const CallSize& size) const override;
  KeyBytes key_bytes(std::span<const Type> in) const override;

 private:
  i64 head_dim_, kv_heads_;
};

}  // namespace switchyard::ir
