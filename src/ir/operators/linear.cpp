#include "ir/operators/linear.hpp"

#include <algorithm>
#include <numeric>

#include "base/allocation.hpp"
#include "base/errors.hpp"

namespace switchyard::ir {
namespace {

std::vector<int> numbers(int first, int count) {
  std::vector<int> list(static_cast<size_t>(count));
  std::iota(list.begin(), list.end(), first);
  return list;
}

std::string repeat(const std::string& pattern, int count) {
  std::string text;
  for (int k = 0; k < count; ++k) {
    std::string one = pattern;
    if (const size_t at = one.find('#'); at != std::string::npos) one.replace(at, 1, std::to_string(k));
    text += (k == 0 ? "" : ", ") + one;
  }
  return text;
}

// 2 * T * I * O flops, and the operands' bytes.
Cost product_cost(std::span<const Type> in, std::span<const Type> out, std::span<const Type> weights) {
  Cost cost = memory_bound(in, out);
  cost.flops_per_token = 0;
  double rows = 0;  // rows of all weights, which form one product
  for (const Type& w : weights) {
    cost.flops_per_token += 2.0 * static_cast<double>(elements(w, {1}));
    rows += static_cast<double>(w.shape.size[0]);
  }
  cost.narrowest = std::min(rows, static_cast<double>(weights[0].shape.size[1]));
  return cost;
}

}  // namespace

std::vector<Type> Linear::shape(std::span<const Type> in) const {
  check(in.size() == static_cast<size_t>(1 + weights_ * (bias_ ? 2 : 1)), "linear: {} inputs", in.size());
  std::vector<Type> out;
  for (int k = 0; k < weights_; ++k) {
    const Type& w = in[static_cast<size_t>(1 + k)];
    check(w.shape.size[1] == in[0].shape.size[1], "linear: {} in-features against a weight of {}", in[0].shape.size[1],
          w.shape.size[1]);
    out.push_back(tokens_by(in[0].dtype, w.shape.size[0], w.shape.alignment[0]));
  }
  return out;
}

std::string Linear::labels(const LayoutQuery&) const {
  return "T i, " + repeat("o# i", weights_) + (bias_ ? ", " + repeat("o#", weights_) : "") + " -> " +
         repeat("T o#", weights_);
}

std::vector<int> Linear::input_gradient(Graph& graph, const Call& call, const std::vector<int>& dy,
                                        std::vector<int>&) const {
  std::vector<int> in = dy;
  for (int k = 0; k < weights_; ++k) in.push_back(call.in[static_cast<size_t>(1 + k)]);
  const int dx = graph.call(std::make_shared<LinearDx>(weights_), in, "d " + graph.value(call.in[0]).name)[0];
  std::vector<int> gradients(call.in.size(), -1);
  gradients[0] = dx;
  return gradients;
}

void Linear::weight_gradient(Graph& graph, const Call& call, const std::vector<int>& dy) const {
  std::vector<int> in = dy, accumulators;
  in.push_back(call.in[0]);
  for (int k = 0; k < weights_; ++k)
    accumulators.push_back(graph.gradient_value(graph.value(call.in[static_cast<size_t>(1 + k)]).param));
  graph.call_into(std::make_shared<LinearDw>(weights_), in, accumulators, "dw");
  if (!bias_) return;
  for (int k = 0; k < weights_; ++k) {
    const int bias = graph.value(call.in[static_cast<size_t>(1 + weights_ + k)]).param;
    graph.call_into(std::make_shared<BiasDw>(), {dy[static_cast<size_t>(k)]}, {graph.gradient_value(bias)}, "db");
  }
}

Cost Linear::cost(std::span<const Type> in, std::span<const Type> out) const {
  return product_cost(in, out, in.subspan(1, static_cast<size_t>(weights_)));
}

// Matrix products need no workspace.
i64 Linear::workspace(std::span<const Type>, std::span<const Type>, const CallSize&) const { return 0; }
i64 LinearDx::workspace(std::span<const Type>, std::span<const Type>, const CallSize&) const { return 0; }

i64 weight_gradient_copies(i64 features, const Type& x, DType sum, const CallSize& size) {
  if (x.dtype == sum || size.sequences > 0) return 0;
  return allocated(size.tokens * features * size_of(sum)) + copy_bytes(x, size.tokens, sum);
}

i64 LinearDw::workspace(std::span<const Type> in, std::span<const Type> out, const CallSize& size) const {
  i64 features = 0;
  for (const Type& gradient : in.first(in.size() - 1)) features += gradient.shape.size[1];
  return weight_gradient_copies(features, in.back(), out[0].dtype, size);
}

// A copy in the accumulator's dtype, and its sum.
i64 BiasDw::temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const {
  return copy_bytes(in[0], tokens, out[0].dtype) + copy_bytes(out[0], tokens, out[0].dtype);
}

std::vector<int> Linear::adjacent_outputs() const { return weights_ > 1 ? numbers(0, weights_) : std::vector<int>{}; }

std::vector<Type> LinearDx::shape(std::span<const Type> in) const {
  const Type& w = in[static_cast<size_t>(weights_)];
  return {tokens_by(in[0].dtype, w.shape.size[1], w.shape.alignment[1])};
}

std::string LinearDx::labels(const LayoutQuery&) const {
  return repeat("~T o#", weights_) + ", " + repeat("o# i", weights_) + " -> T i";
}

Cost LinearDx::cost(std::span<const Type> in, std::span<const Type> out) const {
  return product_cost(in, out, in.subspan(static_cast<size_t>(weights_)));
}

std::vector<int> LinearDx::adjacent_inputs() const { return weights_ > 1 ? numbers(0, weights_) : std::vector<int>{}; }

namespace {

// Each term has its own rule: keys and values may be cut by fewer axes than queries, so their gradients differ in the
// axes over which they are partial.
std::vector<LayoutRule> terms_of(const LayoutQuery& query, size_t terms) {
  std::vector<LayoutRule> rules;
  for (size_t k = 0; k < terms; ++k)
    rules.push_back(rule_from_labels("~T o, T i -> o i", {.mesh = query.mesh,
                                                          .in = {query.in[k], query.in[terms]},
                                                          .in_fixed = {query.in_fixed[k], query.in_fixed[terms]},
                                                          .in_feed = {query.in_feed[k], query.in_feed[terms]},
                                                          .in_types = {query.in_types[k], query.in_types[terms]},
                                                          .out_fixed = {query.out_fixed[k]}}));
  return rules;
}

bool share_input(const std::vector<LayoutRule>& rules) {
  return std::all_of(rules.begin(), rules.end(),
                     [&](const LayoutRule& rule) { return rule.needs[1] == rules[0].needs[1]; });
}

}  // namespace

// Terms that would cut the tokens differently get them whole; the in-features are cut as the first term cuts them.
LayoutRule LinearDw::layout(const LayoutQuery& query) const {
  const size_t n = static_cast<size_t>(weights_);
  LayoutQuery asked = query;
  std::vector<LayoutRule> terms = terms_of(asked, n);
  if (!share_input(terms)) {
    for (layout::Layout& in : asked.in) in.split[0].clear();
    terms = terms_of(asked, n);
  }
  if (!share_input(terms)) {
    asked.in[n] = terms[0].needs[1];
    asked.in_fixed[n] = true;
    terms = terms_of(asked, n);
  }
  check(share_input(terms), "linear_dw: its terms need the input in different layouts");
  LayoutRule rule;
  for (const LayoutRule& term : terms) {
    rule.needs.push_back(term.needs[0]);
    rule.gives.push_back(term.gives[0]);
  }
  rule.needs.push_back(terms[0].needs[1]);
  return rule;
}

Cost LinearDw::cost(std::span<const Type> in, std::span<const Type> out) const {
  Cost cost = product_cost(in, {}, out);
  for (const Type& sum : out)
    cost.bytes_accumulated += 2.0 * static_cast<double>(elements(sum, {}) * size_of(sum.dtype));
  return cost;
}

std::vector<int> LinearDw::adjacent_inputs() const { return weights_ > 1 ? numbers(0, weights_) : std::vector<int>{}; }

}  // namespace switchyard::ir
