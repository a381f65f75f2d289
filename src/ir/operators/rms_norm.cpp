#include "ir/operators/rms_norm.hpp"

#include <utility>

#include "base/errors.hpp"
#include "ir/operators/norm_rules.hpp"

namespace switchyard::ir {

std::vector<Type> RmsNorm::shape(std::span<const Type> in) const {
  const i64 features = in[0].shape.size[1], width = in[1].shape.size[0];
  check(group_ == 0 ? width == features : width == group_ && features % group_ == 0,
        "rms_norm: weight {} against {} features", width, features);
  std::vector<i64> alignments;
  if (group_ > 0)
    for (const i64 g : in[0].shape.alignment[1]) alignments.push_back(g / group_);
  return {in[0], tokens_by(state_of(in[0].dtype), features / width, std::move(alignments))};
}

// A norm per head lets heads be cut.
std::string RmsNorm::labels(const LayoutQuery& query) const {
  return group_ == 0 ? over_features("T h!, h! -> T h, T one", query, 0) : "T n, d! -> T n, T n";
}

// The mean square.
std::optional<StatisticSums> RmsNorm::statistic_sums(bool) const {
  if (group_ > 0) return std::nullopt;
  return StatisticSums{.cut = 0, .dim = 1, .statistics = 3, .per_token = {1}};
}

// The input, the result, the statistic of each row, and the weight or the constant that is added to the statistic.
i64 RmsNorm::temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const {
  return 2 * wide_bytes(in[0], tokens) + wide_bytes(out[1], tokens) + weight_or_constant(in[1]);
}

std::vector<int> RmsNorm::input_gradient(Graph& graph, const Call& call, const std::vector<int>& dy,
                                         std::vector<int>& existing) const {
  const bool per_head = group_ > 0;
  const int residual = per_head ? -1 : take_existing(existing);
  std::vector<int> in = {dy[0], call.in[0], call.in[1], call.out[1]};
  if (residual >= 0) in.push_back(residual);
  const Value& x = graph.value(call.in[0]);
  const auto dx = std::make_shared<RmsNormDx>(per_head, residual >= 0, x.type.shape.size[1]);
  return {graph.call(dx, in, "d " + x.name)[0], -1};
}

void RmsNorm::weight_gradient(Graph& graph, const Call& call, const std::vector<int>& dy) const {
  const int accumulator = graph.gradient_value(graph.value(call.in[1]).param);
  graph.call_into(std::make_shared<RmsNormDw>(group_ > 0), {dy[0], call.in[0], call.out[1]}, {accumulator}, "dw");
}

std::string RmsNormDx::labels(const LayoutQuery& query) const {
  if (per_head_) return "~T n, T n, d!, T n -> T n";
  return over_features(residual_ ? "T h!, @T h!, h!, T one, T h! -> T h" : "T h!, @T h!, h!, T one -> T h", query, 1);
}

// The mean of dy w xhat.
std::optional<StatisticSums> RmsNormDx::statistic_sums(bool) const {
  if (per_head_) return std::nullopt;
  return StatisticSums{.cut = 1, .dim = 1, .statistics = 3, .per_token = {1}};
}

i64 RmsNormDx::workspace(std::span<const Type> in, std::span<const Type> out, const CallSize& size) const {
  const i64 sums = per_head_ ? 0 : bytes_of_sums(in, features_, size.tokens, 1);
  return sums + Operator::workspace(in, out, size);
}

// The normalized input, the weighted gradient, their product, what is subtracted, the difference, and each row's mean.
i64 RmsNormDx::temporaries(std::span<const Type> in, std::span<const Type>, i64 tokens) const {
  return 5 * wide_bytes(in[1], tokens) + wide_bytes(in[3], tokens);
}

// Gradient, input, normalized input, the product of gradient and normalized input, and its sum.
i64 RmsNormDw::temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const {
  return 4 * wide_bytes(in[1], tokens) + wide_bytes(out[0], tokens);
}

std::string RmsNormDw::labels(const LayoutQuery& query) const {
  return per_head_ ? "~T n, T n, T n -> d" : over_features("T h!, @T h!, T one -> h", query, 1);
}

}  // namespace switchyard::ir
