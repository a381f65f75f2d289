// Rows of a table. T tokens, V vocabulary, H hidden.
#pragma once

#include "ir/operator.hpp"

namespace switchyard::ir {

/// y[t] = table[ids[t]]; a rank that holds some rows gives zeros for the others, so the result is partial.
/// inputs ids (T), table (V, H)
class Embedding final : public Operator {
 public:
  Embedding() : Operator("embedding") {}
  std::vector<Type> shape(std::span<const Type> in) const override;
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy,
                                  std::vector<int>& existing) const override;
  void weight_gradient(Graph&, const Call&, const std::vector<int>& dy) const override;
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;

 protected:
  std::string labels(const LayoutQuery&) const override { return "T, v h -> T h"; }
  i64 temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const override;
};

/// inputs dy, ids; accumulator dtable
class EmbeddingDw final : public Operator {
 public:
  EmbeddingDw() : Operator("embedding_dw") {}
  std::vector<Type> shape(std::span<const Type>) const override { return {}; }
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;

 protected:
  std::string labels(const LayoutQuery&) const override { return "~T h, T -> v h"; }
  i64 temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const override;
};

}  // namespace switchyard::ir
