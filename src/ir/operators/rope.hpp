// Rotary positions. T tokens, n heads, D head dim.
#pragma once

#include "ir/operator.hpp"

namespace switchyard::ir {

/// y = x rotated by the angles of its positions (inverse: rotated back). Features i and i + D / 2 form a pair. Source:
/// arXiv 2104.09864. by_document: frequencies depend on the document's length, and positions are rows of the
/// micro-batch's own tables.
/// inputs x (T, n*D), positions (T)
class Rope final : public Operator {
 public:
  Rope(i64 head_dim, bool inverse, bool by_document = false)
      : Operator("rope"), head_dim_(head_dim), inverse_(inverse), by_document_(by_document) {}
  i64 head_dim() const { return head_dim_; }
  i64 rotary_head_dim() const override { return head_dim_; }
  bool rotates_by_document() const override { return by_document_; }
  bool inverse() const { return inverse_; }
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[0]}; }
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy,
                                  std::vector<int>& existing) const override;
  bool has_element_kernel() const override { return true; }

 protected:
  std::string labels(const LayoutQuery&) const override { return "~T h, T -> T h"; }
  i64 temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const override;

 private:
  i64 head_dim_;
  bool inverse_, by_document_;
};

}  // namespace switchyard::ir
