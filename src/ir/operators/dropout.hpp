// Dropout. T tokens, H features.
#pragma once

#include "ir/operator.hpp"

namespace switchyard::ir {

/// Bytes of workspace for choosing which of (rows, columns) elements are kept: numbers of 64 bits for the columns,
/// twice, and for up to 2^18 elements at a time, twice; and a constant.
i64 dropout_workspace(i64 rows, i64 columns);

/// y = x kept / (1 - p); kept: 1 with probability 1 - p, a function of (seed, step, document, position, feature, site)
/// alone. Source: JMLR 15 (2014) 1929-1958.   x, y (T, H)   kept (T, H) u8
class Dropout final : public Operator {
 public:
  Dropout(double p, int site) : Operator("dropout"), p_(p), site_(site) {}
  double p() const { return p_; }
  int site() const { return site_; }
  std::vector<Type> shape(std::span<const Type> in) const override { return {in[0], {DType::u8, in[0].shape}}; }
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy,
                                  std::vector<int>& existing) const override;
  bool is_random() const override { return true; }
  i64 workspace(std::span<const Type> in, std::span<const Type> out, const CallSize& size) const override;

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
  i64 workspace(std::span<const Type> in, std::span<const Type> out, const CallSize& size) const override;

 protected:
  std::string labels(const LayoutQuery&) const override { return "~T f, T f -> T f"; }

 private:
  double p_;
};

}  // namespace switchyard::ir
