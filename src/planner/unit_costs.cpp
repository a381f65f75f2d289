#include "planner/unit_costs.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/errors.hpp"
#include "compiler/memory.hpp"
#include "ir/operators/head.hpp"

namespace switchyard::planner {
namespace {

i64 local_elements(const ir::Graph& graph, const ir::StageCode& stage, const ir::ParamUse& use) {
  i64 elements = 1;
  const layout::Shape& shape = graph.param(use.param).shape;
  for (int dim = 0; dim < shape.dims(); ++dim) {
    i64 size = shape.size[static_cast<size_t>(dim)], count = 1;
    for (const int axis : use.used.split[static_cast<size_t>(dim)])
      count *= stage.replica.axes[static_cast<size_t>(axis)].size;
    elements *= (size + count - 1) / count;
  }
  return elements;
}

// Where shares rise with sizes, a call's time grows more slowly than its size. Nobody knows how measured ones do.
bool rises(const cluster::EfficiencyCurve& curve) {
  return std::ranges::is_sorted(curve.points, {}, [](const auto& point) { return point.share; });
}
bool all_shares_rise(const cluster::Hardware& hardware) {
  bool all = hardware.device.operators.empty() && rises(hardware.device.width_curve) &&
             rises(hardware.device.memory_curve) && rises(hardware.device.lockstep_curve) &&
             rises(hardware.intra_host.curve) && (!hardware.inter_host || rises(hardware.inter_host->curve));
  for (const auto& [type, rates] : hardware.device.rates) all = all && rises(rates.matmul_curve);
  return all;
}

}  // namespace

UnitCosts::UnitCosts(std::shared_ptr<const LayerCodes> codes)
    : codes_(std::move(codes)), shares_rise_(all_shares_rise(codes_->hardware())) {}

const UnitCosts::Code& UnitCosts::code(StageKind kind, const StageMesh& mesh, config::Recompute recompute,
                                       bool split) const {
  const Code*& known = known_[key(kind, mesh, recompute, split ? 1 : 0, 0)];
  if (!known) known = &codes_->of(kind, mesh, recompute, split);
  return *known;
}

i64 UnitCosts::table_bytes(i64 longest) const {
  return 2 * compiler::rotary_tables(codes_->one_layer(), longest).bytes(precision().state);
}

i64 UnitCosts::table_bytes_of_a_token() const {
  const compiler::RotaryTables none = compiler::rotary_tables(codes_->one_layer(), 0);
  return none.by_document ? 2 * compiler::RotaryTables{1, none.head_dim}.bytes(precision().state) : 0;
}

Kept deepened(Kept one, const Kept& middle, int layers) {
  one.stash += (layers - 1) * middle.stash;
  one.later += (layers - 1) * middle.later;
  one.forward_peak += (layers - 1) * middle.stash;
  one.backward_peak += (layers - 1) * middle.most();
  return one;
}

void Parts::add(StageKind kind, int layers) {
  ++of[static_cast<size_t>(kind)];
  further += layers - 1;
}

Parts parts_of(StageKind kind, int layers) {
  Parts parts;
  parts.add(kind, layers);
  return parts;
}

UnitCosts::Key UnitCosts::key(StageKind kind, const StageMesh& mesh, config::Recompute recompute, int pass, i64 T) {
  std::uint64_t bits = static_cast<std::uint64_t>(kind);
  bits = bits << 2 | static_cast<std::uint64_t>(recompute);
  bits = bits << 2 | static_cast<std::uint64_t>(pass);
  return {mesh_key(mesh), bits << 40 | static_cast<std::uint64_t>(T)};
}

const TimeTable& UnitCosts::times(StageKind kind, const StageMesh& mesh, config::Recompute recompute, Pass pass) const {
  // What is recomputed changes the backward pass only.
  const Code& code = this->code(kind, mesh, pass == Pass::F ? config::Recompute::gathers : recompute,
                                pass == Pass::B || pass == Pass::W);
  return code.alone.of(pass);
}

const TimeTable& UnitCosts::times_further(const StageMesh& mesh, config::Recompute recompute, Pass pass) const {
  if (!codes_->joins()) return times(StageKind::middle, mesh, recompute, pass);
  return code(StageKind::middle, mesh, pass == Pass::F ? config::Recompute::gathers : recompute,
              pass == Pass::B || pass == Pass::W)
      .further.of(pass);
}

Spent UnitCosts::time(const Parts& parts, const StageMesh& mesh, config::Recompute recompute, Pass pass, i64 T) const {
  const auto of_kind = [&](StageKind kind) { return time(kind, mesh, recompute, pass, T); };
  if (!codes_->joins()) return parts.sum(of_kind);
  Parts apart = parts;
  apart.further = 0;
  Spent all = apart.sum(of_kind);
  if (parts.further > 0) all += parts.further * times_further(mesh, recompute, pass).at(T);
  return all;
}

const Spent& UnitCosts::least(StageKind kind, const StageMesh& mesh, config::Recompute recompute, i64 capacity,
                              bool split, bool through) const {
  const auto [it, fresh] = least_.try_emplace(key(kind, mesh, recompute, split ? (through ? 2 : 1) : 0, capacity));
  if (fresh) it->second = least_of(kind, mesh, recompute, capacity, split, through);
  return it->second;
}

Spent UnitCosts::least_of(StageKind kind, const StageMesh& mesh, config::Recompute recompute, i64 capacity, bool split,
                          bool through) const {
  Spent least = least_of_pass(kind, mesh, recompute, Pass::F, capacity);
  Spent gradients = least_of_pass(kind, mesh, recompute, split ? Pass::B : Pass::BW, capacity);
  if (split && !through) {
    gradients += least_of_pass(kind, mesh, recompute, Pass::W, capacity);
    if (joins(mesh, recompute)) {
      const Spent& both = least_of_pass(kind, mesh, recompute, Pass::BW, capacity);
      gradients.compute = std::min(gradients.compute, both.compute);
      gradients.per_pair = std::min(gradients.per_pair, both.per_pair);
    }
  }
  return least += gradients;
}

const Spent& UnitCosts::least_of_pass(StageKind kind, const StageMesh& mesh, config::Recompute recompute, Pass pass,
                                      i64 capacity) const {
  const i64 multiple = mesh.positions();
  capacity = (capacity + multiple - 1) / multiple * multiple;  // micro-batches are padded
  const auto [it, fresh] = least_of_pass_.try_emplace(key(kind, mesh, recompute, static_cast<int>(pass), capacity));
  // The head works in chunks of a power of two tokens. Activations that are long enough to be encoded may take longer.
  const bool falling =
      shares_rise_ && !compression().encodes_exchanges() &&
      (kind == StageKind::middle || kind == StageKind::first || ir::HeadLoss::chunk(how().on_devices) % multiple == 0);
  const TimeTable& times =
      kind == StageKind::middle ? times_further(mesh, recompute, pass) : this->times(kind, mesh, recompute, pass);
  if (fresh) it->second = times.least(capacity, falling);
  return it->second;
}

const Kept& UnitCosts::kept_of(StageKind kind, const StageMesh& mesh, config::Recompute recompute, bool split,
                               const ir::CallSize& size) const {
  const auto [it, fresh] =
      kept_[{size.longest, size.seen_keys}].try_emplace(key(kind, mesh, recompute, split ? 1 : 0, size.tokens));
  if (fresh) it->second = code(kind, mesh, recompute, split).memory->activations(size);
  return it->second;
}

Kept UnitCosts::kept(StageKind kind, int layers, const StageMesh& mesh, config::Recompute recompute, bool split,
                     ir::CallSize size) const {
  const i64 multiple = mesh.positions();
  size.tokens = (size.tokens + multiple - 1) / multiple * multiple;
  const Kept& one = kept_of(kind, mesh, recompute, split, size);
  return layers == 1 ? one : deepened(one, kept_of(StageKind::middle, mesh, recompute, split, size), layers);
}

bool UnitCosts::joins(const StageMesh& mesh, config::Recompute recompute) const {
  return code(StageKind::middle, mesh, recompute, true).stage.joins_gradients();
}

const compiler::StageCost& UnitCosts::stage_cost(StageKind kind, const StageMesh& mesh,
                                                 config::Recompute recompute) const {
  return code(kind, mesh, recompute, true).cost;
}

const compiler::StageCost& UnitCosts::plain_cost(StageKind kind, const StageMesh& mesh) const {
  return code(kind, mesh, config::Recompute::gathers, false).cost;
}

const ir::KeyBytes& UnitCosts::keys(StageKind kind, const StageMesh& mesh) const {
  return code(kind, mesh, config::Recompute::gathers, false).keys;
}

i64 UnitCosts::parameters(StageKind kind, const StageMesh& mesh) const {
  const Units each = units(mesh);
  const bool first = kind == StageKind::first || kind == StageKind::whole,
             last = kind == StageKind::last || kind == StageKind::whole;
  return each.layer + (first ? each.embedding : 0) + (last ? each.head : 0);
}

UnitCosts::Units UnitCosts::units(const StageMesh& mesh) const {
  const auto [it, fresh] = units_.try_emplace(mesh);
  if (!fresh) return it->second;
  Units& units = it->second;
  const ir::Graph& graph = codes_->one_layer();
  const ir::StageCode& whole = code(StageKind::whole, mesh, config::Recompute::gathers, false).stage;
  for (const ir::ParamUse& use : whole.params) {
    const int unit = graph.param(use.param).unit;
    (unit == 0 ? units.embedding : unit == 1 ? units.layer : units.head) += local_elements(graph, whole, use);
  }
  return units;
}

}  // namespace switchyard::planner
