#include "ir/operators/norm.hpp"

#include <algorithm>

#include "base/allocation.hpp"
#include "base/errors.hpp"

namespace switchyard::ir {
namespace {

Type statistics(DType state, i64 columns, std::vector<i64> alignments) {
  return tokens_by(state, columns, std::move(alignments));
}

// The input's gradient so far is added in the same pass.
int take(std::vector<int>& existing) {
  const int value = existing[0];
  existing[0] = -1;
  return value;
}

// Features may be cut where the input's are, for then ranks sum statistics; otherwise they are whole.
std::string over_features(std::string labels, const LayoutQuery& query, size_t input) {
  if (query.in[input].split[1].empty()) return labels;
  std::erase(labels, '!');
  return labels;
}

// The sums that a gradient makes, for each token so many, where a rank has some of the features only.
i64 bytes_of_sums(std::span<const Type> in, i64 features, i64 tokens, i64 per_token) {
  return in[1].shape.size[1] < features ? allocated(per_token * tokens * size_of(in[3].dtype)) : 0;
}

i64 weight_or_constant(const Type& weight) { return std::max(wide_bytes(weight, 0), kConstantBytes); }

}  // namespace

std::vector<Type> RmsNorm::shape(std::span<const Type> in) const {
  const i64 features = in[0].shape.size[1], width = in[1].shape.size[0];
  check(group_ == 0 ? width == features : width == group_ && features % group_ == 0,
        "rms_norm: weight {} against {} features", width, features);
  std::vector<i64> alignments;
  if (group_ > 0)
    for (const i64 g : in[0].shape.alignment[1]) alignments.push_back(g / group_);
  return {in[0], statistics(state_of(in[0].dtype), features / width, alignments)};
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

// The input, what it becomes, a statistic of each row, and the weight, or a constant for the statistic.
i64 RmsNorm::temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const {
  return 2 * wide_bytes(in[0], tokens) + wide_bytes(out[1], tokens) + weight_or_constant(in[1]);
}

std::vector<int> RmsNorm::input_gradient(Graph& graph, const Call& call, const std::vector<int>& dy,
                                         std::vector<int>& existing) const {
  const bool per_head = group_ > 0;
  const int residual = per_head ? -1 : take(existing);
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

// The normal input, the weighted gradient, their product, what is subtracted, the difference, and a mean of each row.
i64 RmsNormDx::temporaries(std::span<const Type> in, std::span<const Type>, i64 tokens) const {
  return 5 * wide_bytes(in[1], tokens) + wide_bytes(in[3], tokens);
}

// Gradient, input, the normal input, their product, and its sum.
i64 RmsNormDw::temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const {
  return 4 * wide_bytes(in[1], tokens) + wide_bytes(out[0], tokens);
}

std::string RmsNormDw::labels(const LayoutQuery& query) const {
  return per_head_ ? "~T n, T n, T n -> d" : over_features("T h!, @T h!, T one -> h", query, 1);
}

std::vector<Type> LayerNorm::shape(std::span<const Type> in) const {
  check(in[1].shape.size[0] == in[0].shape.size[1], "layer_norm: weight {} against {} features", in[1].shape.size[0],
        in[0].shape.size[1]);
  const Type column = statistics(state_of(in[0].dtype), 1, {});
  return {in[0], column, column};
}

// Those of RmsNorm, the centred input, and its mean.
i64 LayerNorm::temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const {
  return 3 * wide_bytes(in[0], tokens) + 2 * wide_bytes(out[1], tokens) + weight_or_constant(in[1]);
}

std::vector<int> LayerNorm::input_gradient(Graph& graph, const Call& call, const std::vector<int>& dy,
                                           std::vector<int>& existing) const {
  const int residual = take(existing);
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

// Gradient, normal input, their product, and its sum.
i64 LayerNormDw::temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const {
  return 3 * wide_bytes(in[1], tokens) + wide_bytes(out[0], tokens);
}

std::string LayerNormDw::labels(const LayoutQuery& query) const {
  return over_features("T h!, @T h!, T one, T one -> h, h", query, 1);
}

}  // namespace switchyard::ir
