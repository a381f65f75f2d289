// The sum of two values.
#pragma once

#include "ir/operator.hpp"

namespace switchyard::ir {

/// y = a + b.
class Add final : public Operator {
 public:
  Add() : Operator("add") {}
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[0]}; }
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy,
                                  std::vector<int>& existing) const override;

 protected:
  std::string labels(const LayoutQuery&) const override { return "@T h, T h -> T h"; }
};

}  // namespace switchyard::ir
