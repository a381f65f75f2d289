#include "planner/unit_costs.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>

#include "base/errors.hpp"
#include "compiler/compile.hpp"
#include "ir/autodiff.hpp"
#include "ir/ops/ops.hpp"
#include "models/build.hpp"
#include "planner/segment_memory.hpp"
#include "simulator/segment_times.hpp"

namespace switchyard::planner {
namespace {

constexpr i64 kLeastSize = 16;

ir::Graph training_graph(config::ModelConfig model, i64 layers, Precision precision) {
  model.layers = layers;
  ir::Graph graph = models::build(model, precision, models::Output::loss);
  ir::differentiate(graph);
  return graph;
}

Spent sum(const Spent& base, const Spent& layer, int layers) {
  const double n = layers - 1;
  return {base.compute + n * layer.compute, base.communication + n * layer.communication, base.per_pair + n * layer.per_pair};
}

i64 local_elements(const ir::Graph& graph, const ir::StageCode& stage, const ir::ParamUse& use) {
  i64 elements = 1;
  const layout::Shape& shape = graph.param(use.param).shape;
  for (int dim = 0; dim < shape.dims(); ++dim) {
    i64 size = shape.size[static_cast<size_t>(dim)], ways = 1;
    for (const int axis : use.used.split[static_cast<size_t>(dim)]) ways *= stage.lane.axes[static_cast<size_t>(axis)].size;
    elements *= (size + ways - 1) / ways;
  }
  return elements;
}

// Where shares rise with sizes, a call's time grows more slowly than its size.
bool rises(const cluster::EfficiencyCurve& curve) {
  return std::ranges::is_sorted(curve.points, {}, [](const auto& point) { return point.share; });
}
bool shares_rise(const cluster::Hardware& hardware) {
  bool all = rises(hardware.device.width_curve) && rises(hardware.device.memory_curve) && rises(hardware.intra_host.curve) &&
             (!hardware.inter_host || rises(hardware.inter_host->curve));
  for (const auto& [type, rates] : hardware.device.rates) all = all && rises(rates.matmul_curve);
  return all;
}

}  // namespace

StageKind kind_of(int stage, int stages) {
  if (stages == 1) return StageKind::whole;
  return stage == 0 ? StageKind::first : stage + 1 == stages ? StageKind::last : StageKind::middle;
}

// 16, 24, 32, 48, ... rounded up to the multiple.
i64 TimeTable::size(int index) const {
  const i64 size = (index % 2 == 0 ? kLeastSize : kLeastSize + kLeastSize / 2) << (index / 2);
  return (size + multiple_ - 1) / multiple_ * multiple_;
}

const Spent& TimeTable::point(int index) const {
  const auto [it, fresh] = points_.try_emplace(index);
  if (fresh) it->second = measure_(size(index));
  return it->second;
}

Spent TimeTable::at(i64 T) const {
  const int octaves = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(T / kLeastSize)));
  int right = std::max(0, 2 * octaves - 3);
  while (right > 0 && size(right - 1) >= T) --right;
  while (right < kSizes && size(right) < T) ++right;
  check(right < kSizes, "a micro-batch of {} tokens", T);
  const Spent& above = point(right);
  if (right == 0 || size(right) == T) return above;
  const Spent& below = point(right - 1);
  const double way = static_cast<double>(T - size(right - 1)) / static_cast<double>(size(right) - size(right - 1));
  return {std::lerp(below.compute, above.compute, way), std::lerp(below.communication, above.communication, way),
          std::lerp(below.per_pair, above.per_pair, way)};
}

// Between two sizes the time is a + b T, and a / T + b is least at one of its ends.
Spent TimeTable::least(i64 capacity, bool falling) const {
  Spent least{std::numeric_limits<double>::infinity(), 0, std::numeric_limits<double>::infinity()};
  const auto consider = [&](const Spent& at, i64 T) {
    least.compute = std::min(least.compute, (at.compute + at.communication) / static_cast<double>(T));
    least.per_pair = std::min(least.per_pair, at.per_pair);
  };
  int above = 0;
  while (above < kSizes && size(above) < capacity) ++above;
  for (int index = falling ? std::max(0, above - 2) : 0; index < above; ++index) consider(point(index), size(index));
  consider(at(capacity), capacity);
  return least;
}

UnitCosts::UnitCosts(const config::ModelConfig& model, Precision precision, const cluster::Hardware& hardware)
    : model_(model),
      precision_(precision),
      hardware_(hardware),
      placement_(hardware.placement()),
      shares_rise_(shares_rise(hardware)),
      one_layer_(training_graph(model, 1, precision)),
      three_layers_(training_graph(model, 3, precision)) {}

const UnitCosts::Code& UnitCosts::code(StageKind kind, int tp, config::Recompute recompute) const {
  std::unique_ptr<Code>& known = codes_[{kind, tp, recompute}];
  if (known) return *known;
  known = std::make_unique<Code>();
  config::Strategy strategy;
  strategy.name = "a layer";
  strategy.recompute = recompute;
  const auto [first, end] = kind == StageKind::middle ? std::pair(2, 3) : kind == StageKind::last ? std::pair(3, 5) : std::pair(0, 2);
  known->stage = kind == StageKind::whole ? compiler::compile_stage(one_layer_, strategy, tp, 0, 3)
                                          : compiler::compile_stage(three_layers_, strategy, tp, first, end);
  const ir::StageCode& stage = known->stage;
  known->forward = TimeTable([this, &stage](i64 T) { return slowest(stage, true, T); }, tp);
  known->backward = TimeTable([this, &stage](i64 T) { return slowest(stage, false, T); }, tp);
  return *known;
}

// Of blocks of tp ranks, one after the other, those count that lie differently on hosts.
Spent UnitCosts::slowest(const ir::StageCode& stage, bool forward, i64 T) const {
  Spent slowest;
  const int tp = stage.lane.size(), devices = hardware_.devices_per_host;
  std::set<int> seen;
  for (int first = 0; first + tp <= hardware_.ranks() && seen.insert(first % devices).second; first += tp) {
    std::vector<int> ranks(static_cast<size_t>(tp));
    std::iota(ranks.begin(), ranks.end(), first);
    Spent spent;
    const simulator::SegmentTimes times =
        simulator::segment_times(stage, forward ? stage.forward : stage.backward, T, ranks, hardware_, placement_);
    for (const simulator::Piece& piece : times.pieces) {
      (piece.what == simulator::Activity::compute ? spent.compute : spent.communication) += piece.fixed;
      spent.per_pair += piece.per_pair + 2 * piece.per_square;  // a square of n tokens has n (n + 1) / 2 pairs
    }
    if (spent.total(0) > slowest.total(0)) slowest = spent;
  }
  return slowest;
}

Spent UnitCosts::time(StageKind kind, int layers, int tp, config::Recompute recompute, bool forward, i64 T) const {
  // What is recomputed changes the backward pass only.
  const config::Recompute what = forward ? config::Recompute::none : recompute;
  const Code &base = code(kind, tp, what), &layer = code(StageKind::middle, tp, what);
  return sum((forward ? base.forward : base.backward).at(T), layers > 1 ? (forward ? layer.forward : layer.backward).at(T) : Spent{}, layers);
}

Spent UnitCosts::least(StageKind kind, int layers, int tp, config::Recompute recompute, i64 capacity) const {
  capacity = (capacity + tp - 1) / tp * tp;  // rows are padded
  const auto of = [&](StageKind what) {
    const Code& code = this->code(what, tp, recompute);
    const auto [it, fresh] = code.least.try_emplace(capacity);
    if (fresh) {
      // The head works in chunks of a power of two tokens.
      const bool falling = shares_rise_ && (what == StageKind::middle || what == StageKind::first || ir::HeadLoss::kChunk % tp == 0);
      const Spent forward = this->code(what, tp, config::Recompute::none).forward.least(capacity, falling);
      const Spent backward = code.backward.least(capacity, falling);
      it->second = {forward.compute + backward.compute, 0, forward.per_pair + backward.per_pair};
    }
    return it->second;
  };
  return sum(of(kind), layers > 1 ? of(StageKind::middle) : Spent{}, layers);
}

const Kept& UnitCosts::kept_of(const Code& code, i64 T, i64 longest) const {
  const auto [it, fresh] = code.kept.try_emplace({T, longest});
  if (fresh) it->second = activations_of(code.stage, T, longest);
  return it->second;
}

Kept UnitCosts::kept(StageKind kind, int layers, int tp, config::Recompute recompute, i64 T, i64 longest) const {
  T = (T + tp - 1) / tp * tp;
  Kept kept = kept_of(code(kind, tp, recompute), T, longest);
  if (layers > 1) {
    const i64 others = (layers - 1) * kept_of(code(StageKind::middle, tp, recompute), T, longest).stash;
    kept.stash += others;
    kept.forward_peak += others;
    kept.backward_peak += others;
  }
  return kept;
}

i64 UnitCosts::parameters(StageKind kind, int layers, int tp) const {
  const Units each = units(tp);
  const bool first = kind == StageKind::first || kind == StageKind::whole, last = kind == StageKind::last || kind == StageKind::whole;
  return layers * each.layer + (first ? each.embedding : 0) + (last ? each.head : 0);
}

UnitCosts::Units UnitCosts::units(int tp) const {
  const auto [it, fresh] = of_tp_.try_emplace(tp);
  if (!fresh) return it->second;
  Units& units = it->second;
  const ir::StageCode& whole = code(StageKind::whole, tp, config::Recompute::none).stage;
  for (const ir::ParamUse& use : whole.params) {
    const int unit = one_layer_.param(use.param).unit;
    (unit == 0 ? units.embedding : unit == 1 ? units.layer : units.head) += local_elements(one_layer_, whole, use);
  }
  return units;
}

}  // namespace switchyard::planner
