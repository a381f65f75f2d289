// Queries of operators' layout rules, as the compiler makes them.
#pragma once

#include <string>
#include <vector>

#include "../message_of.hpp"
#include "base/errors.hpp"
#include "ir/operator.hpp"

namespace switchyard::ir {

/// Axes that cut each dim, then the axes over which the value is partial.
inline layout::Layout cut(std::vector<std::vector<int>> split, std::vector<int> partial = {}) {
  return {std::move(split), std::move(partial)};
}

class Question {
 public:
  /// Axes of the replica's mesh, by size; ranks 0, 1, ...
  explicit Question(const std::vector<int>& sizes) {
    int ranks = 1;
    for (size_t a = 0; a < sizes.size(); ++a) {
      mesh_.axes.push_back({"tp/" + std::to_string(a), sizes[a]});
      ranks *= sizes[a];
    }
    for (int rank = 0; rank < ranks; ++rank) mesh_.ranks.push_back(rank);
  }
  Question& activation(layout::Layout layout) { return add(std::move(layout), false, false); }
  Question& weight(layout::Layout layout) { return add(std::move(layout), true, false); }
  Question& feed() { return add(layout::replicated(1), false, true); }
  Question& output() { return output(layout::Layout{}); }
  /// An accumulator, whose layout the strategy fixes.
  Question& output(layout::Layout fixed) {
    query_.out_fixed.push_back(std::move(fixed));
    return *this;
  }
  LayoutRule ask(const Operator& op) {
    query_.mesh = &mesh_;
    return op.layout(query_);
  }
  LayoutRule ask(const std::string& labels) {
    query_.mesh = &mesh_;
    return rule_from_labels(labels, query_);
  }

 private:
  Question& add(layout::Layout layout, bool fixed, bool feed) {
    query_.in.push_back(std::move(layout));
    query_.in_fixed.push_back(fixed);
    query_.in_feed.push_back(feed);
    query_.in_types.push_back(nullptr);
    return *this;
  }
  layout::Mesh mesh_;
  LayoutQuery query_;
};

/// A matrix [rows, columns] in bf16, without alignments.
inline Type matrix(i64 rows, i64 columns) { return {DType::bf16, {{rows, columns}, {{}, {}}}}; }
inline Type vector(i64 size) { return {DType::bf16, {{size}, {{}}}}; }
inline Type per_token(DType dtype) { return {dtype, {{kTokens}, {{}}}}; }

}  // namespace switchyard::ir
