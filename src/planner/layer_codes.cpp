#include "planner/layer_codes.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "base/errors.hpp"
#include "compiler/compile.hpp"
#include "ir/autodiff.hpp"
#include "models/build.hpp"
#include "planner/coding.hpp"

namespace switchyard::planner {
namespace {

constexpr i64 kLeastSize = 16;

ir::Graph training_graph(config::ModelConfig model, i64 layers, Precision precision) {
  model.layers = layers;
  ir::Graph graph = models::build(model, precision, models::Output::loss);
  ir::differentiate(graph);
  return graph;
}

}  // namespace

double least_seconds_of_byte(const cluster::LinkClass& link) {
  double share = link.curve.points.empty() ? 1 : 0;
  for (const cluster::EfficiencyCurve::Point& point : link.curve.points) share = std::max(share, point.share);
  return 1 / (share * link.bandwidth.count);
}

StageKind kind_of(int stage, int stages) {
  if (stages == 1) return StageKind::whole;
  return stage == 0 ? StageKind::first : stage + 1 == stages ? StageKind::last : StageKind::middle;
}

std::span<const StageKind> kinds_of(int stages) {
  static constexpr std::array kAlone{StageKind::middle, StageKind::whole};
  static constexpr std::array kSeveral{StageKind::first, StageKind::middle, StageKind::last};
  return stages == 1 ? std::span<const StageKind>(kAlone) : kSeveral;
}

// Sizes: 16, 24, 32, 48, ... rounded up to the multiple.
TimeTable::TimeTable(std::function<Spent(i64 T)> measure, i64 multiple)
    : measure_(std::move(measure)), points_(std::make_unique<Points>()) {
  for (int index = 0; index < kSizes; ++index) {
    const i64 size = (index % 2 == 0 ? kLeastSize : kLeastSize + kLeastSize / 2) << (index / 2);
    points_->size[static_cast<size_t>(index)] = (size + multiple - 1) / multiple * multiple;
  }
}

const Spent& TimeTable::point(int index) const {
  const auto at = static_cast<size_t>(index);
  if (!points_->known[at].load(std::memory_order_acquire)) {
    const std::lock_guard lock(points_->measuring);
    if (!points_->known[at].load(std::memory_order_relaxed)) {
      points_->spent[at] = measure_(size(index));
      points_->known[at].store(true, std::memory_order_release);
    }
  }
  return points_->spent[at];
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
  return {.compute = std::lerp(below.compute, above.compute, way),
          .communication = std::lerp(below.communication, above.communication, way),
          .per_pair = std::lerp(below.per_pair, above.per_pair, way),
          .per_key = above.per_key,
          .values = above.values,
          .gradients = above.gradients};
}

// Between two sizes the time is a + b T, and a / T + b is least at one of its ends.
Spent TimeTable::least(i64 capacity, bool falling) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Spent least{.compute = kInfinity, .per_pair = kInfinity};
  const auto consider = [&](const Spent& at, i64 T) {
    least.compute = std::min(least.compute, (at.compute + at.communication) / static_cast<double>(T));
    least.per_pair = std::min(least.per_pair, at.per_pair);
    least.per_key = at.per_key;
    least.values = at.values;
    least.gradients = at.gradients;
  };
  int above = 0;
  while (above < kSizes && size(above) < capacity) ++above;
  for (int index = falling ? std::max(0, above - 2) : 0; index < above; ++index) consider(point(index), size(index));
  consider(at(capacity), capacity);
  return least;
}

LayerCodes::LayerCodes(const config::ModelConfig& model, Precision precision, const cluster::Hardware& hardware,
                       const compiler::CodeOptions& how, const config::Compression& allowed)
    : model_(model),
      precision_(precision),
      hardware_(hardware),
      placement_(hardware.placement()),
      how_(how),
      compression_(worthwhile(allowed, precision, hardware)),
      one_layer_(training_graph(model, 1, precision)),
      three_layers_(training_graph(model, 3, precision)),
      four_layers_(joins() ? training_graph(model, 4, precision) : one_layer_) {
  if (!how_.exchanges) how_.exchanges = std::make_shared<compiler::KnownExchanges>();
}

const LayerCodes::Code& LayerCodes::of(StageKind kind, const StageMesh& mesh, config::Recompute recompute,
                                       bool split) const {
  Slot* slot = nullptr;
  {
    const std::lock_guard lock(mutex_);
    slot = &slots_[{mesh_key(mesh), kind, recompute, split}];
  }
  std::call_once(slot->made, [&] { compile(slot->code, kind, mesh, recompute, split); });
  return slot->code;
}

void LayerCodes::compile(Code& code, StageKind kind, const StageMesh& mesh, config::Recompute recompute,
                         bool split) const {
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
  code.stage = kind == StageKind::whole
                   ? compiler::compile_stage(one_layer_, strategy, mesh, 0, 3, hosts, how_)
                   : compiler::compile_stage(three_layers_, strategy, mesh, first, end, hosts, how_);
  code.memory = std::make_unique<StageMemory>(code.stage);
  code.cost = compiler::cost_of(code.stage);
  const auto tables = [&](const ir::StageCode& of, auto make) {
    return Code::Tables{make(of.forward, Pass::F), make(of.backward, Pass::B), make(of.weight, Pass::W)};
  };
  code.alone = tables(code.stage, [&](const ir::Segment& segment, Pass) { return table(code, segment, mesh); });
  if (kind != StageKind::middle || !joins()) return;
  code.two_layers = compiler::compile_stage(four_layers_, strategy, mesh, first, end + 1, hosts, how_);
  code.further = tables(code.two_layers, [&](const ir::Segment& segment, Pass pass) {
    return further(code.two_layers, segment, code.alone.of(pass), mesh);
  });
}

// The segment's bytes of keys are added to the code's. Most tables are never looked at.
TimeTable LayerCodes::table(Code& code, const ir::Segment& segment, const StageMesh& mesh) const {
  const ir::StageCode& stage = code.stage;
  Spent keys;
  for (const ir::Instr& instr : segment.code) {
    const ir::KeyBytes bytes = ir::key_bytes(stage, instr, 0);
    if (bytes.all() == 0) continue;
    keys.values += bytes.values > 0;
    keys.gradients += bytes.gradients > 0;
    keys.per_key += static_cast<double>(bytes.all()) * least_seconds_of_byte(hardware_.intra_host);
    code.keys.values += bytes.values;
    code.keys.gradients += bytes.gradients;
    code.keys.columns = bytes.columns;
    code.keys.type = bytes.type;
    if (bytes.gradients > 0) code.keys.gradient_type = bytes.gradient_type;
  }
  return TimeTable(
      [this, &stage, &segment, timers = std::vector<simulator::SegmentTimer>(), keys,
       rings = has_ring(mesh)](i64 T) mutable {
        if (timers.empty()) timers = this->timers(stage, segment);
        Spent spent = slowest(timers, T, rings);
        return spent += keys;
      },
      mesh.positions());
}

TimeTable LayerCodes::further(const ir::StageCode& two_layers, const ir::Segment& segment, const TimeTable& alone,
                              const StageMesh& mesh) const {
  return TimeTable(
      [this, &two_layers, &segment, &alone, timers = std::vector<simulator::SegmentTimer>(),
       rings = has_ring(mesh)](i64 T) mutable {
        if (timers.empty()) timers = this->timers(two_layers, segment);
        const Spent both = slowest(timers, T, rings);
        Spent second = alone.at(T);
        second.compute = both.compute - second.compute;
        second.communication = both.communication - second.communication;
        second.per_pair = both.per_pair - second.per_pair;
        return second;
      },
      mesh.positions());
}

// The ranks are cut into blocks of as many as the stage has. Each block that lies on hosts in another way than those
// before it gets a timer; where blocks fill hosts and their ports, all lie in one way.
std::vector<simulator::SegmentTimer> LayerCodes::timers(const ir::StageCode& stage, const ir::Segment& segment) const {
  const int wide = stage.replica.size(), devices = hardware_.devices_per_host;
  const bool one_way = devices % wide == 0 && (wide == 1 || wide % hardware_.intra_host.shared_by == 0);
  std::vector<simulator::SegmentTimer> timers;
  std::set<int> seen;
  for (int first = 0;
       first + wide <= hardware_.ranks() && !(one_way && first > 0) && seen.insert(first % devices).second;
       first += wide) {
    std::vector<int> ranks(static_cast<size_t>(wide));
    std::iota(ranks.begin(), ranks.end(), first);
    timers.emplace_back(stage, segment, ir::kWhole, ranks, hardware_, placement_, compression_);
  }
  return timers;
}

Spent LayerCodes::slowest(const std::vector<simulator::SegmentTimer>& timers, i64 T, bool rings) const {
  Spent slowest;
  for (const simulator::SegmentTimer& timer : timers) {
    Spent spent;
    const batch::KeyExchange empty{.seen = {}, .rounds = {{}}, .returns = {{}, {}}};
    simulator::TimedKeys keys{.keys = {{timer.ranks()}, {timer.ranks().size(), empty}}};
    const simulator::SegmentTimes times = timer.at(T, rings ? &keys : nullptr);
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

}  // namespace switchyard::planner
