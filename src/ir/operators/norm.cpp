#include "ir/operators/norm.hpp"

#include "base/errors.hpp"

namespace switchyard::ir {
namespace {

Type statistics(DType state, i64 columns, std::vector<i64> alignments) {
  return tokens_by(state, columns, std::move(alignments));
}

DType state_of(DType compute) { return compute == DType::f64 ? DType::f64 : DType::f32; }

// The input's gradient so far is added in the same pass.
int take(std::vector<int>& existing) {
  const int value = existing[0];
  existing[0] = -1;
  return value;
}

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

// A norm over all features averages over them, so they must be whole; a norm per head lets heads be cut.
std::string RmsNorm::labels(const LayoutQuery&) const {
  return group_ == 0 ? "T h!, h! -> T h, T one" : "T n, d! -> T n, T n";
}

std::vector<int> RmsNorm::input_gradient(Graph& graph, const Call& call, const std::vector<int>& dy,
                                         std::vector<int>& existing) const {
  const bool per_head = group_ > 0;
  const int residual = per_head ? -1 : take(existing);
  std::vector<int> in = {dy[0], call.in[0], call.in[1], call.out[1]};
  if (residual >= 0) in.push_back(residual);
  return {graph.call(std::make_shared<RmsNormDx>(per_head, residual >= 0), in, "d " + graph.value(call.in[0]).name)[0],
          -1};
}

void RmsNorm::weight_gradient(Graph& graph, const Call& call, const std::vector<int>& dy) const {
  const int accumulator = graph.gradient_value(graph.value(call.in[1]).param);
  graph.call_into(std::make_shared<RmsNormDw>(group_ > 0), {dy[0], call.in[0], call.out[1]}, {accumulator}, "dw");
}

std::string RmsNormDx::labels(const LayoutQuery&) const {
  if (per_head_) return "~T n, T n, d!, T n -> T n";
  return residual_ ? "T h!, @T h!, h!, T one, T h! -> T h" : "T h!, @T h!, h!, T one -> T h";
}

std::string RmsNormDw::labels(const LayoutQuery&) const {
  return per_head_ ? "~T n, T n, T n -> d" : "T h!, @T h!, T one -> h";
}

std::vector<Type> LayerNorm::shape(std::span<const Type> in) const {
  check(in[1].shape.size[0] == in[0].shape.size[1], "layer_norm: weight {} against {} features", in[1].shape.size[0],
        in[0].shape.size[1]);
  const Type column = statistics(state_of(in[0].dtype), 1, {});
  return {in[0], column, column};
}

std::vector<int> LayerNorm::input_gradient(Graph& graph, const Call& call, const std::vector<int>& dy,
                                           std::vector<int>& existing) const {
  const int residual = take(existing);
  std::vector<int> in = {dy[0], call.in[0], call.in[1], call.out[1], call.out[2]};
  if (residual >= 0) in.push_back(residual);
  return {graph.call(std::make_shared<LayerNormDx>(residual >= 0), in, "d " + graph.value(call.in[0]).name)[0], -1, -1};
}

void LayerNorm::weight_gradient(Graph& graph, const Call& call, const std::vector<int>& dy) const {
  const int w = graph.gradient_value(graph.value(call.in[1]).param),
            b = graph.gradient_value(graph.value(call.in[2]).param);
  graph.call_into(std::make_shared<LayerNormDw>(), {dy[0], call.in[0], call.out[1], call.out[2]}, {w, b}, "dw");
}

std::string LayerNormDx::labels(const LayoutQuery&) const {
  return residual_ ? "T h!, @T h!, h!, T one, T one, T h! -> T h" : "T h!, @T h!, h!, T one, T one -> T h";
}

}  // namespace switchyard::ir
