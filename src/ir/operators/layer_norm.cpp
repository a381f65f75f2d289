#include "ir/operators/layer_norm.hpp"

#include "base/errors.hpp"
#include "ir/operators/norm_rules.hpp"

namespace switchyard::ir {

std::vector<Type> LayerNorm::shape(std::span<const Type> in) const {
  check(in[1].shape.size[0] == in[0].shape.size[1], "layer_norm: weight {} against {} features", in[1].shape.size[0],
        in[0].shape.size[1]);
  const Type column = tokens_by(state_of(in[0].dtype), 1, {});
  return {in[0], column, column};
}

// The same as for RmsNorm, with the centred input and the mean.
i64 LayerNorm::temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const {
  return 3 * wide_bytes(in[0], tokens) + 2 * wide_bytes(out[1], tokens) + weight_or_constant(in[1]);
}

std::vector<int> LayerNorm::input_gradient(Graph& graph, const Call& call, const std::vector<int>& dy,
                                           std::vector<int>& existing) const {
  const int residual = take_existing(existing);
  std::vector<int> in = {dy[0], call.in[0], call.in[1], call.out[1], call.out[2]};
  if (residual >= 0) in.push_back(residual);
  const Value& x = graph.value(call.in[0]);
  return {graph.call(std::make_shared<LayerNormDx>(residual >= 0, x.type.shape.size[1]), in, "d " + x.name)[0], -1, -1};
}

void LayerNorm::weight_gradient(Graph& graph, const Call& call, const std::vector<int>& dy) const {
  const int w = graph.gradient_value(graph.value(call.in[1]).param),
            b = graph.gradient_value(graph.value(call.in[2]).param);
  graph.call_into(std::make_shared<LayerNormDw>(), {dy[0], call.in[0], call.out[1], call.out[2]}, {w, b}, "dw");
}

std::string LayerNorm::labels(const LayoutQuery& query) const {
  return over_features("T h!, h!, h! -> T h, T one, T one", query, 0);
}

// The mean, and then the variance around it.
std::optional<StatisticSums> LayerNorm::statistic_sums(bool) const {
  return StatisticSums{.cut = 0, .dim = 1, .statistics = 4, .per_token = {1, 1}};
}

std::string LayerNormDx::labels(const LayoutQuery& query) const {
  return over_features(
      residual_ ? "T h!, @T h!, h!, T one, T one, T h! -> T h" : "T h!, @T h!, h!, T one, T one -> T h", query, 1);
}

// The means of dy w xhat and of dy w.
std::optional<StatisticSums> LayerNormDx::statistic_sums(bool) const {
  return StatisticSums{.cut = 1, .dim = 1, .statistics = 3, .per_token = {2}};
}

i64 LayerNormDx::workspace(std::span<const Type> in, std::span<const Type> out, const CallSize& size) const {
  return bytes_of_sums(in, features_, size.tokens, 2) + Operator::workspace(in, out, size);
}

// The same as for RmsNormDx, with two means of each row.
i64 LayerNormDx::temporaries(std::span<const Type> in, std::span<const Type>, i64 tokens) const {
  return 5 * wide_bytes(in[1], tokens) + 2 * wide_bytes(in[3], tokens);
}

// Gradient, normalized input, their product, and its sum.
i64 LayerNormDw::temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const {
  return 3 * wide_bytes(in[1], tokens) + wide_bytes(out[0], tokens);
}

std::string LayerNormDw::labels(const LayoutQuery& query) const {
  return over_features("T h!, @T h!, T one, T one -> h, h", query, 1);
}

}  // namespace switchyard::ir
