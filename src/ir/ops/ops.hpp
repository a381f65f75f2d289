// The operators of the supported models. Each class is five rules in the file of its name; the doc comment gives its
// equation. T tokens, H hidden, N heads, K key/value heads, D head dim, F feed-forward, V vocabulary.
#pragma once

#include <memory>

#include "ir/operator.hpp"

namespace switchyard::ir {

/// y_k = x w_k^T (+ b_k) for n weights of one group: one product.   x (T, I)   w_k (O_k, I)   b_k (O_k)   y_k (T, O_k)
class Linear final : public Operator {
 public:
  Linear(int weights, bool bias) : Operator("linear"), weights_(weights), bias_(bias) {}
  int weights() const { return weights_; }
  bool bias() const { return bias_; }
  std::vector<Type> shape(std::span<const Type> in) const override;
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy, std::vector<int>& existing) const override;
  void weight_gradient(Graph&, const Call&, const std::vector<int>& dy) const override;
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;
  i64 workspace(std::span<const Type> in, std::span<const Type> out, i64 tokens, i64 longest) const override;
  std::vector<int> adjacent_outputs() const override;

 protected:
  std::string labels(const LayoutQuery&) const override;

 private:
  int weights_;
  bool bias_;
};

/// dx = sum_k dy_k w_k.   inputs dy_1..n, w_1..n
class LinearDx final : public Operator {
 public:
  explicit LinearDx(int weights) : Operator("linear_dx"), weights_(weights) {}
  int weights() const { return weights_; }
  std::vector<Type> shape(std::span<const Type> in) const override;
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;
  i64 workspace(std::span<const Type> in, std::span<const Type> out, i64 tokens, i64 longest) const override;
  std::vector<int> adjacent_inputs() const override;

 protected:
  std::string labels(const LayoutQuery&) const override;

 private:
  int weights_;
};

/// dw_k += dy_k^T x.   inputs dy_1..n, x; accumulators dw_1..n
class LinearDw final : public Operator {
 public:
  explicit LinearDw(int weights) : Operator("linear_dw"), weights_(weights) {}
  int weights() const { return weights_; }
  std::vector<Type> shape(std::span<const Type>) const override { return {}; }
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;
  i64 workspace(std::span<const Type> in, std::span<const Type> out, i64 tokens, i64 longest) const override;
  LayoutRule layout(const LayoutQuery& query) const override;
  std::vector<int> adjacent_inputs() const override;

 private:
  int weights_;
};

/// db += sum_T dy.
class BiasDw final : public Operator {
 public:
  BiasDw() : Operator("bias_dw") {}
  std::vector<Type> shape(std::span<const Type>) const override { return {}; }

 protected:
  std::string labels(const LayoutQuery&) const override { return "~T o -> o"; }
};

/// y = x * rstd * w, rstd = 1 / sqrt(mean(x^2) + eps), over all features, or per head of `group` features (0: all).
/// Source: arXiv 1910.07467.   x, y (T, H)   w (H or group)   rstd (T, 1 or H / group)
class RmsNorm final : public Operator {
 public:
  RmsNorm(double eps, i64 group) : Operator("rms_norm"), eps_(eps), group_(group) {}
  double eps() const { return eps_; }
  std::vector<Type> shape(std::span<const Type> in) const override;
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy, std::vector<int>& existing) const override;
  void weight_gradient(Graph&, const Call&, const std::vector<int>& dy) const override;

 protected:
  std::string labels(const LayoutQuery&) const override;

 private:
  double eps_;
  i64 group_;
};

/// inputs dy, x, w, rstd (, residual: added to dx)
class RmsNormDx final : public Operator {
 public:
  RmsNormDx(bool per_head, bool residual) : Operator("rms_norm_dx"), per_head_(per_head), residual_(residual) {}
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[1]}; }

 protected:
  std::string labels(const LayoutQuery&) const override;

 private:
  bool per_head_, residual_;
};

/// inputs dy, x, rstd; accumulator dw
class RmsNormDw final : public Operator {
 public:
  explicit RmsNormDw(bool per_head) : Operator("rms_norm_dw"), per_head_(per_head) {}
  std::vector<Type> shape(std::span<const Type>) const override { return {}; }

 protected:
  std::string labels(const LayoutQuery&) const override;

 private:
  bool per_head_;
};

/// y = (x - mean) * rstd * w + b, biased variance. Source: arXiv 1607.06450.   mean, rstd (T, 1)
class LayerNorm final : public Operator {
 public:
  explicit LayerNorm(double eps) : Operator("layer_norm"), eps_(eps) {}
  double eps() const { return eps_; }
  std::vector<Type> shape(std::span<const Type> in) const override;
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy, std::vector<int>& existing) const override;
  void weight_gradient(Graph&, const Call&, const std::vector<int>& dy) const override;

 protected:
  std::string labels(const LayoutQuery&) const override { return "T h!, h!, h! -> T h, T one, T one"; }

 private:
  double eps_;
};

/// inputs dy, x, w, mean, rstd (, residual)
class LayerNormDx final : public Operator {
 public:
  explicit LayerNormDx(bool residual) : Operator("layer_norm_dx"), residual_(residual) {}
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[1]}; }

 protected:
  std::string labels(const LayoutQuery&) const override;

 private:
  bool residual_;
};

/// inputs dy, x, mean, rstd; accumulators dw, db
class LayerNormDw final : public Operator {
 public:
  LayerNormDw() : Operator("layer_norm_dw") {}
  std::vector<Type> shape(std::span<const Type>) const override { return {}; }

 protected:
  std::string labels(const LayoutQuery&) const override { return "T h!, @T h!, T one, T one -> h, h"; }
};

/// y = x turned by the angles of its positions (inverse: back). Source: arXiv 2104.09864, half-split pairs.
/// inputs x (T, n*D), positions (T)
class Rope final : public Operator {
 public:
  Rope(i64 head_dim, bool inverse) : Operator("rope"), head_dim_(head_dim), inverse_(inverse) {}
  i64 head_dim() const { return head_dim_; }
  bool inverse() const { return inverse_; }
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[0]}; }
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy, std::vector<int>& existing) const override;

 protected:
  std::string labels(const LayoutQuery&) const override { return "~T h, T -> T h"; }

 private:
  i64 head_dim_;
  bool inverse_;
};

/// o = softmax(q k^T / sqrt(D)) v within documents, causal; query head i reads key/value head i / (N / K).
/// q, o (T, N*D)   k, v (T, K*D)   lse (T, N) natural logarithm, state dtype
class Attention final : public Operator {
 public:
  Attention(i64 head_dim, i64 kv_heads) : Operator("attention"), head_dim_(head_dim), kv_heads_(kv_heads) {}
  i64 head_dim() const { return head_dim_; }
  std::vector<Type> shape(std::span<const Type> in) const override;
  LayoutRule layout(const LayoutQuery& query) const override;
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy, std::vector<int>& existing) const override;
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;
  i64 workspace(std::span<const Type> in, std::span<const Type> out, i64 tokens, i64 longest) const override;
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
  LayoutRule layout(const LayoutQuery& query) const override;
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;
  i64 workspace(std::span<const Type> in, std::span<const Type> out, i64 tokens, i64 longest) const override;

 private:
  i64 head_dim_, kv_heads_;
};

/// The same with scores that are stored: o = d v, d = drop(w), w = softmax(q k^T / sqrt(D)), each document's pairs in a square of their
/// own. Source: arXiv 1706.03762; what is kept as in arXiv 2205.05198.
/// q, o (T, N*D)   k, v (T, K*D)   w (N, TT), and with dropout kept (N, TT) u8, d (N, TT)
class UnfusedAttention final : public Operator {
 public:
  UnfusedAttention(i64 head_dim, i64 kv_heads, double dropout, int site)
      : Operator("unfused_attention"), head_dim_(head_dim), kv_heads_(kv_heads), dropout_(dropout), site_(site) {}
  i64 head_dim() const { return head_dim_; }
  double dropout() const { return dropout_; }
  int site() const { return site_; }
  std::vector<Type> shape(std::span<const Type> in) const override;
  LayoutRule layout(const LayoutQuery& query) const override;
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy, std::vector<int>& existing) const override;
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;
  i64 workspace(std::span<const Type> in, std::span<const Type> out, i64 tokens, i64 longest) const override;
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
  LayoutRule layout(const LayoutQuery& query) const override;
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;
  i64 workspace(std::span<const Type> in, std::span<const Type> out, i64 tokens, i64 longest) const override;

 private:
  i64 head_dim_, kv_heads_;
  double dropout_;
};

/// y = x kept / (1 - p); kept: 1 with probability 1 - p, a function of (seed, step, document, position, feature, site) alone.
/// Source: JMLR 15 (2014) 1929-1958.   x, y (T, H)   kept (T, H) u8
class Dropout final : public Operator {
 public:
  Dropout(double p, int site) : Operator("dropout"), p_(p), site_(site) {}
  double p() const { return p_; }
  int site() const { return site_; }
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[0], {DType::u8, in[0].shape}}; }
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy, std::vector<int>& existing) const override;
  bool is_random() const override { return true; }

 protected:
  std::string labels(const LayoutQuery&) const override { return "T f -> T f, T f"; }

 private:
  double p_;
  int site_;
};

/// inputs dy, kept
class DropoutDx final : public Operator {
 public:
  explicit DropoutDx(double p) : Operator("dropout_dx"), p_(p) {}
  double p() const { return p_; }
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[0]}; }

 protected:
  std::string labels(const LayoutQuery&) const override { return "~T f, T f -> T f"; }

 private:
  double p_;
};

/// h = silu(gate) * up.   inputs gate, up (T, F)
class Swiglu final : public Operator {
 public:
  Swiglu() : Operator("swiglu") {}
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[0]}; }
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy, std::vector<int>& existing) const override;

 protected:
  std::string labels(const LayoutQuery&) const override { return "T f, T f -> T f"; }
};

/// inputs dh, gate, up; outputs dgate, dup
class SwigluDx final : public Operator {
 public:
  SwigluDx() : Operator("swiglu_dx") {}
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[1], in[2]}; }

 protected:
  std::string labels(const LayoutQuery&) const override { return "~T f, T f, T f -> T f, T f"; }
};

/// y = gelu(x), tanh form or exact.
class Gelu final : public Operator {
 public:
  explicit Gelu(bool tanh_form) : Operator("gelu"), tanh_form_(tanh_form) {}
  bool tanh_form() const { return tanh_form_; }
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[0]}; }
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy, std::vector<int>& existing) const override;

 protected:
  std::string labels(const LayoutQuery&) const override { return "T f -> T f"; }

 private:
  bool tanh_form_;
};

/// inputs dy, x
class GeluDx final : public Operator {
 public:
  explicit GeluDx(bool tanh_form) : Operator("gelu_dx"), tanh_form_(tanh_form) {}
  bool tanh_form() const { return tanh_form_; }
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[1]}; }

 protected:
  std::string labels(const LayoutQuery&) const override { return "~T f, T f -> T f"; }

 private:
  bool tanh_form_;
};

/// y = a + b.
class Add final : public Operator {
 public:
  Add() : Operator("add") {}
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[0]}; }
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy, std::vector<int>& existing) const override;

 protected:
  std::string labels(const LayoutQuery&) const override { return "@T h, T h -> T h"; }
};

/// y[t] = table[ids[t]]; a rank with part of the rows gives zeros for the others, so the result is partial.
/// inputs ids (T), table (V, H)
class Embedding final : public Operator {
 public:
  Embedding() : Operator("embedding") {}
  std::vector<Type> shape(std::span<const Type> in) const override;
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy, std::vector<int>& existing) const override;
  void weight_gradient(Graph&, const Call&, const std::vector<int>& dy) const override;

 protected:
  std::string labels(const LayoutQuery&) const override { return "T, v h -> T h"; }
};

/// inputs dy, ids; accumulator dtable
class EmbeddingDw final : public Operator {
 public:
  EmbeddingDw() : Operator("embedding_dw") {}
  std::vector<Type> shape(std::span<const Type>) const override { return {}; }

 protected:
  std::string labels(const LayoutQuery&) const override { return "~T h, T -> v h"; }
};

/// Linear and cross-entropy over the vocabulary: loss[t] = weight[t] * -log softmax(x w^T)[label[t]]. It computes nothing
/// in the forward pass of training: HeadLoss makes loss and gradients together, from logits of a chunk of tokens at a time.
/// inputs x (T, H), w (V, H), labels, weights; output loss (T)
class Head final : public Operator {
 public:
  Head() : Operator("head") {}
  std::vector<Type> shape(std::span<const Type> in) const override;
  LayoutRule layout(const LayoutQuery& query) const override;
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy, std::vector<int>& existing) const override;
};

/// inputs x, w, labels, weights; outputs loss (T), dx (T, H), accumulator dw. Composite: it owns the small all-reduces of
/// softmax statistics over the axes that cut the vocabulary.
class HeadLoss final : public Operator {
 public:
  HeadLoss() : Operator("head_loss") {}
  /// Tokens whose logits exist at a time.
  static constexpr i64 kChunk = 512;
  std::vector<Type> shape(std::span<const Type> in) const override;
  LayoutRule layout(const LayoutQuery& query) const override;
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;
  i64 workspace(std::span<const Type> in, std::span<const Type> out, i64 tokens, i64 longest) const override;
  Halves halves() const override;
};

/// HeadLoss without the weight's gradient, for schedules that run that later: inputs as there; outputs loss (T), dx (T, H) and the
/// gradient of the logits (T, V), which stays until then. To compute the logits again instead would take a product and the passes of
/// the softmax, more than the weight's gradient itself.
class HeadLossDx final : public Operator {
 public:
  HeadLossDx() : Operator("head_loss_dx") {}
  std::vector<Type> shape(std::span<const Type> in) const override;
  LayoutRule layout(const LayoutQuery& query) const override;
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;
  i64 workspace(std::span<const Type> in, std::span<const Type> out, i64 tokens, i64 longest) const override;
  const std::string& measured_as() const override;
};

}  // namespace switchyard::ir
