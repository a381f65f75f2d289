// The activation of GPT-2's feed-forward. T tokens, F feed-forward.
#pragma once

#include "ir/operator.hpp"

namespace switchyard::ir {

/// y = gelu(x), tanh form or exact.   x, y (T, F)
class Gelu final : public Operator {
 public:
  explicit Gelu(bool tanh_form) : Operator("gelu"), tanh_form_(tanh_form) {}
  bool tanh_form() const { return tanh_form_; }
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[0]}; }
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy,
                                  std::vector<int>& existing) const override;

 protected:
  std::string labels(const LayoutQuery&) const override { return "T f -> T f"; }

 private:
  bool tanh_form_;
};

/// inputs dy, x; output dx
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

}  // namespace switchyard::ir
