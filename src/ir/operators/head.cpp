#include "ir/operators/head.hpp"

#include <algorithm>

#include "base/allocation.hpp"
#include "base/errors.hpp"
#include "ir/operators/linear.hpp"

namespace switchyard::ir {
namespace {

Type loss_type(const Type& weights) { return weights; }

// The vocabulary as the weight has it; tokens as the input has them, except that axes of the vocabulary don't cut them;
// features whole.
std::vector<layout::Layout> head_needs(const LayoutQuery& query) {
  layout::Layout rows = query.in[1];
  rows.split[1].clear();
  std::vector<int> tokens = query.in[0].split[0];
  std::erase_if(tokens, [&](int axis) { return std::ranges::find(rows.split[0], axis) != rows.split[0].end(); });
  return {{{tokens, {}}, {}}, rows, {{tokens}, {}}, {{tokens}, {}}};
}

// Bytes that kernels/cross_entropy moves for a logit: maximum, sums and gradient each read it, and the gradient is
// written in its place.
double logit_bytes(DType type) { return 4.0 * static_cast<double>(size_of(type)); }

// Where operators of libtorch do that, logits in bf16 are converted to fp32: the sums take 6 more passes (converted,
// less the maximum, exponentials, their sum) and the gradient 12.
double converted_bytes(DType type) { return type == DType::bf16 ? 18.0 * static_cast<double>(size_of(DType::f32)) : 0; }

// The cost of so many products with the weight, and of passes over the logits when they are made.
Cost products(std::span<const Type> in, std::span<const Type> out, int count) {
  Cost cost = memory_bound(in, out);
  cost.flops_per_token = 2.0 * count * static_cast<double>(elements(in[1], {1}));
  cost.narrowest = static_cast<double>(std::min(in[1].shape.size[0], in[1].shape.size[1]));
  const auto vocabulary = static_cast<double>(in[1].shape.size[0]);
  cost.bytes_after_per_token = logit_bytes(in[1].dtype) * vocabulary;
  cost.bytes_converted_per_token = converted_bytes(in[1].dtype) * vocabulary;
  return cost;
}

i64 rows_of_chunk(const CallSize& size) { return std::min(size.tokens, HeadLoss::chunk(size.sequences > 0)); }

// The logits of a chunk.
i64 logit_room(std::span<const Type> in, const CallSize& size) {
  return allocated(rows_of_chunk(size) * in[1].shape.size[0] * size_of(in[1].dtype));
}

// A chunk has one statistic a token and two more. Operators of libtorch take a number for each token besides, and
// whether it counts; where no kernel of ours reads logits, also two wide copies of some rows, and the columns of
// labels. with_weight: the product with the weight's gradient comes then.
i64 chunk_bytes(std::span<const Type> in, const CallSize& size, bool with_weight) {
  const i64 rows = rows_of_chunk(size), statistic = rows * size_of(in[3].dtype), vocabulary = in[1].shape.size[0];
  i64 temporaries = 0;
  if (by_operators(in, size)) {
    const i64 read = size.element_kernels ? rows : std::min(rows, HeadLoss::kChunk);
    temporaries = allocated(read * size_of(in[3].dtype)) + allocated(read);
    if (!size.element_kernels)
      temporaries += 2 * allocated(read * vocabulary * size_of(in[3].dtype)) + allocated(read * size_of(DType::i64));
  }
  if (with_weight) {
    CallSize chunk = size;
    chunk.tokens = rows;
    temporaries = std::max(temporaries, weight_gradient_copies(vocabulary, in[0], in[3].dtype, chunk));
  }
  return allocated(statistic) + allocated(2 * statistic) + temporaries;
}

}  // namespace

std::vector<Type> Head::shape(std::span<const Type> in) const {
  check(in[0].shape.size[1] == in[1].shape.size[1], "head: {} features against a weight of {}", in[0].shape.size[1],
        in[1].shape.size[1]);
  return {loss_type(in[3])};
}

LayoutRule Head::layout(const LayoutQuery& query) const {
  const std::vector<layout::Layout> needs = head_needs(query);
  return {needs, {needs[3]}};
}

Cost Head::cost(std::span<const Type> in, std::span<const Type> out) const { return products(in, out, 1); }

i64 Head::workspace(std::span<const Type> in, std::span<const Type>, const CallSize& size) const {
  return logit_room(in, size) + chunk_bytes(in, size, false);
}

std::optional<StatisticSums> Head::statistic_sums(bool on_device) const { return HeadLoss().statistic_sums(on_device); }

std::vector<int> Head::input_gradient(Graph& graph, const Call& call, const std::vector<int>&,
                                      std::vector<int>&) const {
  const int accumulator = graph.gradient_value(graph.value(call.in[1]).param);
  const std::vector<int> out = graph.call_into(std::make_shared<HeadLoss>(), call.in, {accumulator}, "head loss");
  return {out[1], -1, -1, -1};
}

std::vector<Type> HeadLoss::shape(std::span<const Type> in) const { return {loss_type(in[3]), in[0]}; }

LayoutRule HeadLoss::layout(const LayoutQuery& query) const {
  const std::vector<layout::Layout> needs = head_needs(query);
  layout::Layout dx = needs[0], dw = needs[1];
  dx.partial = needs[1].split[0];
  dw.partial = needs[0].split[0];
  for (layout::Layout* sum : {&dx, &dw}) std::ranges::sort(sum->partial);
  return {needs, {needs[3], dx, dw}};
}

Cost HeadLoss::cost(std::span<const Type> in, std::span<const Type> out) const {
  Cost cost = products(in, out, 3);
  for (const Type& sum : out.subspan(std::min<size_t>(2, out.size())))
    cost.bytes_accumulated += 2.0 * static_cast<double>(elements(sum, {}) * size_of(sum.dtype));
  return cost;
}

i64 HeadLoss::workspace(std::span<const Type> in, std::span<const Type>, const CallSize& size) const {
  return logit_room(in, size) + chunk_bytes(in, size, true);
}

Halves HeadLoss::halves() const { return {std::make_shared<HeadLossDx>(), std::make_shared<LinearDw>(1)}; }

// A maximum, and then two sums.
std::optional<StatisticSums> HeadLoss::statistic_sums(bool on_device) const {
  return StatisticSums{.cut = 1, .dim = 0, .statistics = 3, .per_token = {1, 2}, .chunk = chunk(on_device)};
}

std::vector<Type> HeadLossDx::shape(std::span<const Type> in) const {
  Type gradient = in[0];
  gradient.shape.size[1] = in[1].shape.size[0];
  gradient.shape.alignment[1] = in[1].shape.alignment[0];
  return {loss_type(in[3]), in[0], gradient};
}

// Layouts are those of HeadLoss, and the gradient of the logits has the vocabulary as the weight has it.
LayoutRule HeadLossDx::layout(const LayoutQuery& query) const {
  LayoutRule rule = HeadLoss().layout(query);
  rule.gives[2] = {{rule.needs[0].split[0], rule.needs[1].split[0]}, {}};
  return rule;
}

Cost HeadLossDx::cost(std::span<const Type> in, std::span<const Type> out) const { return products(in, out, 2); }

i64 HeadLossDx::workspace(std::span<const Type> in, std::span<const Type>, const CallSize& size) const {
  return chunk_bytes(in, size, false);
}

std::optional<StatisticSums> HeadLossDx::statistic_sums(bool on_device) const {
  return HeadLoss().statistic_sums(on_device);
}

const std::string& HeadLossDx::measured_as() const {
  static const std::string kWhole = "head_loss";
  return kWhole;
}

}  // namespace switchyard::ir
