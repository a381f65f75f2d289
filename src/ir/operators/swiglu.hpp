// The gated activation of LLaMA's feed-forward. T tokens, F feed-forward.
#pragma once

#include "ir/operator.hpp"

namespace switchyard::ir {

/// h = silu(gate) * up.   inputs gate, up (T, F)
class Swiglu final : public Operator {
 public:
  Swiglu() : Operator("swiglu") {}
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[0]}; }
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy,
                                  std::vector<int>& existing) const override;
  bool has_element_kernel() const override { return true; }

 protected:
  std::string labels(const LayoutQuery&) const override { return "T f, T f -> T f"; }
  i64 temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const override;
};

/// inputs dh, gate, up; outputs dgate, dup
class SwigluDx final : public Operator {
 public:
  SwigluDx() : Operator("swiglu_dx") {}
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[1], in[2]}; }
  bool has_element_kernel() const override { return true; }

 protected:
  std::string labels(const LayoutQuery&) const override { return "~T f, T f, T f -> T f, T f"; }
  i64 temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const override;
};

}  // namespace switchyard::ir
