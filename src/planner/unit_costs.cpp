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
#include "compiler/memory.hpp"
#include "ir/autodiff.hpp"
#include "ir/operators/head.hpp"
#include "models/build.hpp"
#include "planner/coding.hpp"
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
             rises(hardware.device.memory_curve) && rises(hardware.intra_host.curve) &&
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
  std::optional<Spent>& known = points_[static_cast<size_t>(index)];
  if (!known) known = measure_(size(index));
  return *known;
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
          std::lerp(below.per_pair, above.per_pair, way), above.per_key, above.exchanges};
}

// Between two sizes the time is a + b T, and a / T + b is least at one of its ends.
Spent TimeTable::least(i64 capacity, bool falling) const {
  Spent least{std::numeric_limits<double>::infinity(), 0, std::numeric_limits<double>::infinity(), 0, 0};
  const auto consider = [&](const Spent& at, i64 T) {
    least.compute = std::min(least.compute, (at.compute + at.communication) / static_cast<double>(T));
    least.per_pair = std::min(least.per_pair, at.per_pair);
    least.per_key = at.per_key;
    least.exchanges = at.exchanges;
  };
  int above = 0;
  while (above < kSizes && size(above) < capacity) ++above;
  for (int index = falling ? std::max(0, above - 2) : 0; index < above; ++index) consider(point(index), size(index));
  consider(at(capacity), capacity);
  return least;
}

UnitCosts::UnitCosts(const config::ModelConfig& model, Precision precision, const cluster::Hardware& hardware,
                     const compiler::CodeOptions& how, const config::Compression& allowed)
    : model_(model),
      precision_(precision),
      hardware_(hardware),
      placement_(hardware.placement()),
      how_(how),
      compression_(worthwhile(allowed, precision, hardware)),
      shares_rise_(all_shares_rise(hardware)),
      one_layer_(training_graph(model, 1, precision)),
      three_layers_(training_graph(model, 3, precision)) {
  if (!how_.exchanges) how_.exchanges = std::make_shared<compiler::KnownExchanges>();
}

i64 UnitCosts::table_bytes(i64 longest) const {
  return 2 * compiler::rotary_tables(one_layer_, longest).bytes(precision_.state);
}

i64 UnitCosts::table_bytes_of_a_token() const {
  const compiler::RotaryTables none = compiler::rotary_tables(one_layer_, 0);
  return none.by_document ? 2 * compiler::RotaryTables{1, none.head_dim}.bytes(precision_.state) : 0;
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
  of[static_cast<size_t>(StageKind::middle)] += layers - 1;
}

Parts parts_of(StageKind kind, int layers) {
  Parts parts;
  parts.add(kind, layers);
  return parts;
}

const UnitCosts::Code& UnitCosts::code(StageKind kind, const StageMesh& mesh, config::Recompute recompute,
                                       bool split) const {
  std::unique_ptr<Code>& known = codes_[key(kind, mesh, recompute, split ? 1 : 0, 0)];
  if (known) return *known;
  known = std::make_unique<Code>();
  config::Strategy strategy;
  strategy.name = "a layer";
  strategy.recompute = recompute;
  if (split) strategy.schedule = config::ScheduleKind::zero_bubble;
  const auto [first, end] = kind == StageKind::middle ? std::pair(2, 3)
                            : kind == StageKind::last ? std::pair(3, 5)
                                                      : std::pair(0, 2);
  const i64 ranks = mesh.positions();
  std::vector<int> all(static_cast<size_t>(hardware_.ranks() / ranks * ranks));
  std::iota(all.begin(), all.end(), 0);
  const std::vector<std::vector<int>> hosts = compiler::host_patterns(all, ranks, placement_);
  known->stage = kind == StageKind::whole
                     ? compiler::compile_stage(one_layer_, strategy, mesh, 0, 3, hosts, how_)
                     : compiler::compile_stage(three_layers_, strategy, mesh, first, end, hosts, how_);
  const ir::StageCode& stage = known->stage;
  known->cost = compiler::cost_of(stage);
  const auto table = [&](const ir::Segment& segment) {
    Spent keys;
    i64 bytes_of_key = 0;
    for (const ir::Instr& instr : segment.code) {
      const ir::KeyBytes bytes = ir::key_bytes(stage, instr, 0);
      bytes_of_key += bytes.all();
      keys.exchanges += (bytes.values > 0) + (bytes.gradients > 0);
    }
    keys.per_key = seconds_of_key(bytes_of_key);
    known->key_bytes += bytes_of_key;
    // Most tables are never looked at.
    return TimeTable(
        [this, &stage, &segment, timers = std::vector<simulator::SegmentTimer>(), keys,
         rings = has_ring(mesh)](i64 T) mutable {
          if (timers.empty()) timers = this->timers(stage, segment);
          Spent spent = slowest(timers, T, rings);
          return spent += keys;
        },
        ranks);
  };
  known->forward = table(stage.forward);
  known->backward = table(stage.backward);
  known->weight = table(stage.weight);
  return *known;
}

double UnitCosts::seconds_of_key(i64 bytes) const {
  const cluster::LinkClass& link = hardware_.intra_host;
  return static_cast<double>(bytes) * link.shared_by / link.bandwidth.count;
}

// The ranks are cut into blocks of as many as the stage has. Each block that lies on hosts in another way than those
// before it gets a timer; where blocks fill hosts and their ports, all lie alike.
std::vector<simulator::SegmentTimer> UnitCosts::timers(const ir::StageCode& stage, const ir::Segment& segment) const {
  const int wide = stage.replica.size(), devices = hardware_.devices_per_host;
  const bool alike = devices % wide == 0 && (wide == 1 || wide % hardware_.intra_host.shared_by == 0);
  std::vector<simulator::SegmentTimer> timers;
  std::set<int> seen;
  for (int first = 0; first + wide <= hardware_.ranks() && !(alike && first > 0) && seen.insert(first % devices).second;
       first += wide) {
    std::vector<int> ranks(static_cast<size_t>(wide));
    std::iota(ranks.begin(), ranks.end(), first);
    timers.emplace_back(stage, segment, ir::kWhole, ranks, hardware_, placement_,
                        simulator::SegmentEncoding{.activations = compression_.rule(compression_.activations)});
  }
  return timers;
}

Spent UnitCosts::slowest(const std::vector<simulator::SegmentTimer>& timers, i64 T, bool rings) const {
  Spent slowest;
  for (const simulator::SegmentTimer& timer : timers) {
    Spent spent;
    const batch::KeyExchange empty{.seen = {}, .rounds = {{}}, .returns = {{}, {}}};
    simulator::TimedKeys meeting{.keys = {{timer.ranks()}, {timer.ranks().size(), empty}}};
    const simulator::SegmentTimes times = timer.at(T, rings ? &meeting : nullptr);
    simulator::Queues queues;
    std::vector<simulator::Part> parts;
    for (const simulator::Piece& piece : times.pieces) {
      queues.add(piece, piece.fixed, parts);
      spent.per_pair +=
          piece.per_pair + 2 * piece.per_square;  // a square of n tokens has n (n + 1) / 2 attention pairs
      if (piece.what == simulator::Activity::compute) spent.compute += piece.fixed;
    }
    queues.finish(parts);
    // Computing goes on beside hidden communication, which takes a part of the device: what is left is reported as
    // communication.
    for (const simulator::Part& part : parts) {
      if (part.exchange < 0) continue;
      const cost::Exchange& exchange = times.exchanges[static_cast<size_t>(part.exchange)];
      spent.communication += part.computes ? part.seconds * exchange.most_of_a_device(hardware_) : part.seconds;
    }
    if (spent.total(0) > slowest.total(0)) slowest = spent;
  }
  return slowest;
}

UnitCosts::Key UnitCosts::key(StageKind kind, const StageMesh& mesh, config::Recompute recompute, int pass, i64 T) {
  std::uint64_t bits = static_cast<std::uint64_t>(kind);
  bits = bits << 2 | static_cast<std::uint64_t>(recompute);
  bits = bits << 2 | static_cast<std::uint64_t>(pass);
  return {mesh_key(mesh), bits << 40 | static_cast<std::uint64_t>(T)};
}

const TimeTable& UnitCosts::times(StageKind kind, const StageMesh& mesh, config::Recompute recompute, Pass pass) const {
  // What is recomputed changes the backward pass only.
  const Code& code =
      this->code(kind, mesh, pass == Pass::F ? config::Recompute::none : recompute, pass == Pass::B || pass == Pass::W);
  return pass == Pass::F ? code.forward : pass == Pass::W ? code.weight : code.backward;
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
  least += least_of_pass(kind, mesh, recompute, split ? Pass::B : Pass::BW, capacity);
  if (split && !through) least += least_of_pass(kind, mesh, recompute, Pass::W, capacity);
  return least;
}

const Spent& UnitCosts::least_of_pass(StageKind kind, const StageMesh& mesh, config::Recompute recompute, Pass pass,
                                      i64 capacity) const {
  const i64 multiple = mesh.positions();
  capacity = (capacity + multiple - 1) / multiple * multiple;  // micro-batches are padded
  const auto [it, fresh] = least_of_pass_.try_emplace(key(kind, mesh, recompute, static_cast<int>(pass), capacity));
  // The head works in chunks of a power of two tokens. Activations that are long enough to be encoded may take longer.
  const bool falling = shares_rise_ && compression_.activations == codecs::Codec::none &&
                       (kind == StageKind::middle || kind == StageKind::first || ir::HeadLoss::kChunk % multiple == 0);
  if (fresh) it->second = times(kind, mesh, recompute, pass).least(capacity, falling);
  return it->second;
}

const Kept& UnitCosts::kept_of(StageKind kind, const StageMesh& mesh, config::Recompute recompute, bool split,
                               const ir::CallSize& size) const {
  const auto [it, fresh] =
      kept_[{size.longest, size.seen_keys}].try_emplace(key(kind, mesh, recompute, split ? 1 : 0, size.tokens));
  if (fresh) it->second = activations_of(code(kind, mesh, recompute, split).stage, size);
  return it->second;
}

Kept UnitCosts::kept(StageKind kind, int layers, const StageMesh& mesh, config::Recompute recompute, bool split,
                     ir::CallSize size) const {
  const i64 multiple = mesh.positions();
  size.tokens = (size.tokens + multiple - 1) / multiple * multiple;
  const Kept& one = kept_of(kind, mesh, recompute, split, size);
  return layers == 1 ? one : deepened(one, kept_of(StageKind::middle, mesh, recompute, split, size), layers);
}

const compiler::StageCost& UnitCosts::stage_cost(StageKind kind, const StageMesh& mesh,
                                                 config::Recompute recompute) const {
  return code(kind, mesh, recompute, true).cost;
}

const compiler::StageCost& UnitCosts::plain_cost(StageKind kind, const StageMesh& mesh) const {
  return code(kind, mesh, config::Recompute::none, false).cost;
}

i64 UnitCosts::key_bytes(StageKind kind, const StageMesh& mesh) const {
  return code(kind, mesh, config::Recompute::none, false).key_bytes;
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
  const ir::StageCode& whole = code(StageKind::whole, mesh, config::Recompute::none, false).stage;
  for (const ir::ParamUse& use : whole.params) {
    const int unit = one_layer_.param(use.param).unit;
    (unit == 0 ? units.embedding : unit == 1 ? units.layer : units.head) += local_elements(one_layer_, whole, use);
  }
  return units;
}

}  // namespace switchyard::planner
