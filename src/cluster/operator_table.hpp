// What operators took where they were measured, by the shapes they worked on.
#pragma once

#include <vector>

namespace switchyard::cluster {

/// Calls like these took so long: `rows` tokens with `columns` features of the operator's first operand, and `work` for
/// each row: flops of products, else bytes.
struct MeasuredCall {
  double rows = 0, columns = 0, work = 0, seconds = 0;
  bool operator==(const MeasuredCall&) const = default;
};

/// Attention over `columns` features: seconds for a row, for a pair of a query and a key that it sees, and for a place
/// of stored scores.
struct MeasuredAttention {
  double columns = 0, per_row = 0, per_pair = 0, per_square = 0;
  bool operator==(const MeasuredAttention&) const = default;
};

/// Of one operator and data type. attention: where the time depends on the lengths of documents. Either list may be
/// empty.
struct OperatorTable {
  std::vector<MeasuredCall> calls{};
  std::vector<MeasuredAttention> attention{};

  /// Of a call between and beyond the measured ones: work over rate, the rate's logarithm interpolated among the
  /// nearest calls by inverse distance in the logarithms of rows, columns and work.
  /// source  D. Shepard, A two-dimensional interpolation function for irregularly-spaced data, ACM 1968
  double seconds(double rows, double columns, double work) const;
  /// Of attention over so many columns, in proportion to them, interpolated alike.
  MeasuredAttention attention_of(double columns) const;
  bool operator==(const OperatorTable&) const = default;
};

}  // namespace switchyard::cluster
