// Layer normalization over features. T tokens, H hidden. Where ranks have parts of the features, see norm_rules.hpp.
#pragma once

#include "ir/operator.hpp"

namespace switchyard::ir {

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
