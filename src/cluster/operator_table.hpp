// Measured times of operators, by the shapes of their operands.
#pragma once

#include <vector>

namespace switchyard::cluster {

/// Measured seconds of a call: the operator's first operand has `rows` tokens with `columns` features, and each row
/// needs `work`, in flops for products, else in bytes.
struct MeasuredCall {
  double rows = 0, columns = 0, work = 0, seconds = 0;
  bool operator==(const MeasuredCall&) const = default;
};

/// Measured attention over `columns` features in heads of `head_dim` each: seconds per row, per attention pair (a query
/// and a key that it sees), and per element of stored scores.
struct MeasuredAttention {
  double columns = 0, head_dim = 0, per_row = 0, per_pair = 0, per_square = 0;
  bool operator==(const MeasuredAttention&) const = default;
};

/// Measurements of one operator and data type. attention: for operators whose time depends on documents' lengths.
/// Either list may be empty.
struct OperatorTable {
  std::vector<MeasuredCall> calls{};
  std::vector<MeasuredAttention> attention{};

  /// Time of any call: work over rate. The rate's logarithm is interpolated among the nearest measured calls by inverse
  /// distance in the logarithms of rows, columns and work.
  /// source  D. Shepard, A two-dimensional interpolation function for irregularly-spaced data, ACM 1968
  double seconds(double rows, double columns, double work) const;
  /// Attention over `columns` features: times with the widest heads that were measured, in proportion to the columns
  /// and interpolated in the same way; and for each further or missing head what further heads took over equal
  /// columns, whatever the columns, since each has its own scores.
  MeasuredAttention attention_of(double columns, double head_dim) const;
  bool operator==(const OperatorTable&) const = default;
};

}  // namespace switchyard::cluster
