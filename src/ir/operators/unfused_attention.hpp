// Attention within documents that stores its scores. T tokens, N heads, K key/value heads, D head dim; TT places for
// the attention pairs of tokens of a document.
#pragma once

#include "ir/operator.hpp"

namespace switchyard::ir {

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
