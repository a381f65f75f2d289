// Root mean square normalization over features. T tokens, H hidden. Where ranks have parts of the features, see
// norm_rules.hpp.
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

}  // namespace switchyard::ir
