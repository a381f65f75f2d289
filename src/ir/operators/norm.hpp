// Normalization over features. T tokens, H hidden. Where ranks have parts of the features, the weights are cut alike
// and the ranks sum statistics of each token, in the state dtype.
#pragma once

#include "ir/operator.hpp"

namespace switchyard::ir {

/// y = x * rstd * w, rstd = 1 / sqrt(mean(x^2) + eps), over all features, or per head of `group` features (0: all).
/// Source: arXiv 1910.07467.   x, y (T, H)   w (H or group)   rstd (T, 1 or H / group)
class RmsNorm final : public Operator {
 public:
  RmsNorm(double eps, i64 group) : Operator("rms_norm"), eps_(eps), group_(group) {}
  double eps() const { return eps_; }
  std::vector<Type> shape(std::span<const Type> in) const override;
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy,
                                  std::vector<int>& existing) const override;
  void weight_gradient(Graph&, const Call&, const std::vector<int>& dy) const override;
  std::optional<StatisticSums> statistic_sums(bool on_device) const override;
  bool has_element_kernel() const override { return group_ == 0; }

 protected:
  std::string labels(const LayoutQuery&) const override;
  i64 temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const override;

 private:
  double eps_;
  i64 group_;
};

/// inputs dy, x, w, rstd (, residual: added to dx)   features: of x, over all ranks
class RmsNormDx final : public Operator {
 public:
  RmsNormDx(bool per_head, bool residual, i64 features)
      : Operator("rms_norm_dx"), per_head_(per_head), residual_(residual), features_(features) {}
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[1]}; }
  i64 workspace(std::span<const Type> in, std::span<const Type> out, const CallSize& size) const override;
  std::optional<StatisticSums> statistic_sums(bool on_device) const override;
  bool has_element_kernel() const override { return !per_head_; }

 protected:
  std::string labels(const LayoutQuery&) const override;
  i64 temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const override;

 private:
  bool per_head_, residual_;
  i64 features_;
};

/// inputs dy, x, rstd; accumulator dw
class RmsNormDw final : public Operator {
 public:
  explicit RmsNormDw(bool per_head) : Operator("rms_norm_dw"), per_head_(per_head) {}
  std::vector<Type> shape(std::span<const Type>) const override { return {}; }

 protected:
  std::string labels(const LayoutQuery&) const override;
  i64 temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const override;

 private:
  bool per_head_;
};

/// y = (x - mean) * rstd * w + b, biased variance. Source: arXiv 1607.06450.   mean, rstd (T, 1)
class LayerNorm final : public Operator {
 public:
  explicit LayerNorm(double eps) : Operator("layer_norm"), eps_(eps) {}
  double eps() const { return eps_; }
  std::vector<Type> shape(std::span<const Type> in) const override;
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy,
                                  std::vector<int>& existing) const override;
  void weight_gradient(Graph&, const Call&, const std::vector<int>& dy) const override;
  std::optional<StatisticSums> statistic_sums(bool on_device) const override;

 protected:
  std::string labels(const LayoutQuery&) const override;
  i64 temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const override;

 private:
  double eps_;
};

/// inputs dy, x, w, mean, rstd (, residual)   features: of x, over all ranks
class LayerNormDx final : public Operator {
 public:
  LayerNormDx(bool residual, i64 features) : Operator("layer_norm_dx"), residual_(residual), features_(features) {}
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[1]}; }
  i64 workspace(std::span<const Type> in, std::span<const Type> out, const CallSize& size) const override;
  std::optional<StatisticSums> statistic_sums(bool on_device) const override;

 protected:
  std::string labels(const LayoutQuery&) const override;
  i64 temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const override;

 private:
  bool residual_;
  i64 features_;
};

/// inputs dy, x, mean, rstd; accumulators dw, db
class LayerNormDw final : public Operator {
 public:
  LayerNormDw() : Operator("layer_norm_dw") {}
  std::vector<Type> shape(std::span<const Type>) const override { return {}; }

 protected:
  std::string labels(const LayoutQuery&) const override;
  i64 temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const override;
};

}  // namespace switchyard::ir
