// Attention within documents. T tokens, N heads, K key/value heads, D head dim; TT places for the attention pairs of
// tokens of a document.
#pragma once

#include "ir/operator.hpp"

namespace switchyard::ir {

/// Whether a device's kernels of flash attention, which store no scores, compute in this dtype with heads of this size.
bool fits_flash_attention(DType compute, i64 head_dim);
/// Whether it has a call of its own for a long document, with heads of this size, where the device has such kernels.
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

/// Attention that stores its scores: o = d v, d = drop(w), w = softmax(q k^T / sqrt(D)); the scores of each document
/// form a square. q, o (T, N*D) k, v (T, K*D) w (N, TT), and with dropout kept (N, TT) u8, d (N, TT)
/// Source: arXiv 1706.03762; the stored tensors are those of arXiv 2205.05198.
class UnfusedAttention final : public Operator {
 public:
  UnfusedAttention(i64 head_dim, i64 kv_heads, double dropout, int site)
      : Operator("unfused_attention"), head_dim_(head_dim), kv_heads_(kv_heads), dropout_(dropout), site_(site) {}
  i64 head_dim() const { return head_dim_; }
  double dropout() const { return dropout_; }
  int site() const { return site_; }
  std::vector<Type> shape(std::span<const Type> in) const override;
  layout::Role reads_as() const override { return layout::Role::attention; }
  LayoutRule layout(const LayoutQuery& query) const override;
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy,
                                  std::vector<int>& existing) const override;
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;
  i64 workspace(std::span<const Type> in, std::span<const Type> out, const CallSize& size) const override;
  bool is_remade(size_t output) const override { return output > 0; }
  bool is_random() const override { return dropout_ > 0; }

 private:
  i64 head_dim_, kv_heads_;
  double dropout_;
  int site_;
};

/// inputs do, q, k, v, w (, kept, d); outputs dq, dk, dv
class UnfusedAttentionDx final : public Operator {
 public:
  UnfusedAttentionDx(i64 head_dim, i64 kv_heads, double dropout)
      : Operator("unfused_attention_dx"), head_dim_(head_dim), kv_heads_(kv_heads), dropout_(dropout) {}
  i64 head_dim() const { return head_dim_; }
  double dropout() const { return dropout_; }
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[1], in[2], in[3]}; }
  layout::Role reads_as() const override { return layout::Role::attention; }
  LayoutRule layout(const LayoutQuery& query) const override;
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;
  i64 workspace(std::span<const Type> in, std::span<const Type> out, const CallSize& size) const override;

 private:
  i64 head_dim_, kv_heads_;
  double dropout_;
};

}  // namespace switchyard::ir
