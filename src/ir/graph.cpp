#include "ir/graph.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.hpp"
#include "ir/operator.hpp"

namespace switchyard::ir {

Type tokens_by(DType dtype, i64 features, std::vector<i64> alignments) {
  return {dtype, {{kTokens, features}, {{}, std::move(alignments)}}};
}

i64 elements(const Type& type, const Extent& extent) {
  i64 n = 1;
  for (const i64 size : type.shape.size)
    n *= size == kTokens ? extent.tokens : size == kSquaredLengths ? extent.squared_lengths : size;
  return n;
}

bool has_dim(const Type& type, i64 size) { return std::ranges::count(type.shape.size, size) > 0; }

int Graph::units() const {
  int units = 0;
  for (const Param& p : params_) units = std::max(units, p.unit + 1);
  return units;
}

bool Graph::is_random() const {
  return std::ranges::any_of(calls_, [](const Call& call) { return call.op->is_random(); });
}

int Graph::add_value(Value value) {
  values_.push_back(std::move(value));
  return static_cast<int>(values_.size()) - 1;
}

int Graph::add_param(Param param) {
  const int index = static_cast<int>(params_.size());
  if (param.file.name.empty()) param.file.name = param.name;
  param.shape.alignment.resize(param.shape.size.size());
  param.roles.resize(param.shape.size.size());
  const int value = add_value(
      {.name = param.name, .type = {precision_.compute, param.shape}, .kind = ValueKind::param, .param = index});
  params_.push_back(std::move(param));
  param_values_.push_back(value);
  gradient_values_.push_back(-1);
  return value;
}

int Graph::gradient_value(int param) {
  int& value = gradient_values_[static_cast<size_t>(param)];
  if (value < 0) {
    const Param& p = params_[static_cast<size_t>(param)];
    value = add_value(
        {.name = "d " + p.name, .type = {precision_.state, p.shape}, .kind = ValueKind::gradient, .param = param});
  }
  return value;
}

int Graph::feed(Feed feed) {
  static constexpr const char* kNames[] = {"", "ids", "positions", "labels", "weights"};
  int& value = feed_values_[static_cast<size_t>(feed)];
  if (value < 0) {
    const DType dtype = feed == Feed::weights ? precision_.state : DType::i64;
    value = add_value({.name = kNames[static_cast<size_t>(feed)],
                       .type = {dtype, {{kTokens}, {{}}}},
                       .kind = ValueKind::feed,
                       .feed = feed});
  }
  return value;
}

std::vector<int> Graph::call(std::shared_ptr<const Operator> op, std::vector<int> in, const std::string& name) {
  return call_into(std::move(op), std::move(in), {}, name);
}

std::vector<int> Graph::call_into(std::shared_ptr<const Operator> op, std::vector<int> in,
                                  std::vector<int> accumulators, const std::string& name) {
  std::vector<Type> types;
  for (const int v : in) types.push_back(value(v).type);
  std::vector<int> out;
  for (const Type& type : op->shape(types)) out.push_back(add_value({.name = name, .type = type}));
  for (const int accumulator : accumulators) out.push_back(accumulator);
  calls_.push_back({.op = std::move(op), .in = std::move(in), .out = out, .unit = unit_, .pass = pass_});
  return out;
}

std::string to_string(const Graph& graph) {
  const auto operand = [&](int v) {
    const Value& value = graph.value(v);
    std::string sizes;
    for (const i64 size : value.type.shape.size)
      sizes += (sizes.empty() ? "" : ",") + (size == kTokens           ? std::string("T")
                                             : size == kSquaredLengths ? std::string("TT")
                                                                       : std::to_string(size));
    return fmt::format("%{} {}[{}]", v, value.name, sizes);
  };
  std::string text;
  for (const Call& call : graph.calls()) {
    std::string in, out;
    for (const int v : call.in) in += (in.empty() ? "" : ", ") + operand(v);
    for (const int v : call.out) out += (out.empty() ? "" : ", ") + operand(v);
    text += fmt::format("u{} {} {} = {}({})\n", call.unit, name_of(call.pass), out, call.op->name(), in);
  }
  return text;
}

}  // namespace switchyard::ir
