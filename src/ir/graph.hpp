// The graph of a model: values, parameters and calls of operators, for the tokens of one replica (no batch dimension).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/pass.hpp"
#include "layout/axes.hpp"

namespace switchyard::ir {

class Operator;

/// Size of a dim that is the micro-batch's token count T.
inline constexpr i64 kTokens = -1;
/// Size of a dim with one element for each pair of tokens of the same document, documents in order: the sum of their
/// squared lengths.
inline constexpr i64 kSquaredLengths = -2;
/// Sizes of these dims for a micro-batch.
struct Extent {
  i64 tokens = 0, squared_lengths = 0;
};

/// dtype and shape; a size may be kTokens or kSquaredLengths. Alignments restrict where a dim may be cut (heads,
/// vocabulary rows).
struct Type {
  DType dtype = DType::f32;
  layout::Shape shape;
  bool operator==(const Type&) const = default;
};
Type tokens_by(DType dtype, i64 features, std::vector<i64> alignments);
i64 elements(const Type& type, const Extent& extent);
bool has_dim(const Type& type, i64 size);

/// Inputs of a micro-batch, each of shape (T): ids, positions and labels in i64, weights of the labels in the state
/// dtype.
enum class Feed { none, ids, positions, labels, weights };

/// How initial weights are drawn: normal with `std`, or constant (`std` 0).
struct Init {
  double std = 0, constant = 0;
};

/// Place of a parameter in a Hugging Face file: rows [first, first + size(0)) of tensor `name`, transposed if the file
/// stores [in, out] (Conv1D).
struct FileTensor {
  std::string name;
  bool transposed = false;
  i64 first = 0;
};

/// A weight. `unit`: the group of parameters that it is moved with (0 embedding, 1.. layers, last: final norm and
/// head). Params of one `group` are adjacent in memory. roles: what its dims count, from which their cuts follow; none
/// given: nothing that is cut.
struct Param {
  std::string name{};  // Hugging Face's name, or one that follows it
  layout::Shape shape{};
  int unit = 0;
  std::string group{};
  std::vector<layout::DimRole> roles{};
  Init init{};
  FileTensor file{};
};

enum class ValueKind { activation, param, gradient /* accumulator of a parameter */, feed };

/// role: of an activation whose layout follows from it; none: operators decide.
struct Value {
  std::string name{};
  Type type{};
  ValueKind kind = ValueKind::activation;
  int param = -1;
  Feed feed = Feed::none;
  layout::Role role = layout::Role::none;
};

struct Call {
  std::shared_ptr<const Operator> op;
  std::vector<int> in, out;  // value numbers; `out` includes gradient accumulators
  int unit = 0;
  Pass pass = Pass::F;
};

class Graph {
 public:
  explicit Graph(Precision precision) : precision_(precision) {}

  Precision precision() const { return precision_; }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<Param>& params() const { return params_; }
  const std::vector<Call>& calls() const { return calls_; }
  int units() const;

  int add_param(Param param);  // returns the number of its value
  int param_value(int param) const { return param_values_[static_cast<size_t>(param)]; }
  int gradient_value(int param);  // the accumulator (state dtype), created at first use
  int feed(Feed feed);            // created at first use
  /// Appends a call in the current unit and pass; output types come from the operator. Returns output values.
  std::vector<int> call(std::shared_ptr<const Operator> op, std::vector<int> in, const std::string& name);
  /// The same, with the given gradient accumulators appended to the operator's own outputs.
  std::vector<int> call_into(std::shared_ptr<const Operator> op, std::vector<int> in, std::vector<int> accumulators,
                             const std::string& name);
  void set_role(int value, layout::Role role) { values_[static_cast<size_t>(value)].role = role; }
  void set_unit(int unit) { unit_ = unit; }
  void set_pass(Pass pass) { pass_ = pass; }
  /// Whether any call depends on the seed and the step.
  bool is_random() const;
  const Value& value(int v) const { return values_[static_cast<size_t>(v)]; }
  const Param& param(int p) const { return params_[static_cast<size_t>(p)]; }

 private:
  int add_value(Value value);

  Precision precision_;
  std::vector<Value> values_;
  std::vector<Param> params_;
  std::vector<int> param_values_, gradient_values_;
  std::vector<int> feed_values_ = std::vector<int>(5, -1);
  std::vector<Call> calls_;
  int unit_ = 0;
  Pass pass_ = Pass::F;
};

std::string to_string(const Graph& graph);

}  // namespace switchyard::ir
