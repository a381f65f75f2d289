// Products with weights. T tokens, I and O features.
#pragma once

#include "ir/operator.hpp"

namespace switchyard::ir {

/// y_k = x w_k^T (+ b_k) for the n weights of one group, as one matrix product. x (T, I) w_k (O_k, I) b_k (O_k) y_k (T,
/// O_k)
class Linear final : public Operator {
 public:
  Linear(int weights, bool bias) : Operator("linear"), weights_(weights), bias_(bias) {}
  int weights() const { return weights_; }
  bool bias() const { return bias_; }
  std::vector<Type> shape(std::span<const Type> in) const override;
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy,
                                  std::vector<int>& existing) const override;
  void weight_gradient(Graph&, const Call&, const std::vector<int>& dy) const override;
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;
  i64 workspace(std::span<const Type> in, std::span<const Type> out, const CallSize& size) const override;
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
  i64 workspace(std::span<const Type> in, std::span<const Type> out, const CallSize& size) const override;
  std::vector<int> adjacent_inputs() const override;

 protected:
  std::string labels(const LayoutQuery&) const override;

 private:
  int weights_;
};

/// Bytes of the copies of bf16 operands, in the dtype of the sum, that a weight's gradient takes on a CPU: of gradients
/// with so many features in all, which are one matrix, and of the input x.
i64 weight_gradient_copies(i64 features, const Type& x, DType sum, const CallSize& size);

/// dw_k += dy_k^T x.   inputs dy_1..n, x; accumulators dw_1..n
class LinearDw final : public Operator {
 public:
  explicit LinearDw(int weights) : Operator("linear_dw"), weights_(weights) {}
  int weights() const { return weights_; }
  std::vector<Type> shape(std::span<const Type>) const override { return {}; }
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;
  i64 workspace(std::span<const Type> in, std::span<const Type> out, const CallSize& size) const override;
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
  i64 temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const override;
};

}  // namespace switchyard::ir
