#include "simulator/task_work.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "base/errors.hpp"
#include "compiler/holdings.hpp"
#include "compiler/wire.hpp"
#include "cost/compute_cost.hpp"
#include "simulator/coding_time.hpp"

namespace switchyard::simulator {
namespace {

using ir::Task;
using ir::TaskKind;

constexpr int kPortsOfDevice = 4;  // at most: inside and between hosts, in and out

std::vector<Claim> devices_of(const Task& t) {
  std::vector<Claim> claims;
  for (const int rank : t.ranks) claims.push_back({rank, 1});
  return claims;
}

Claim& claim_on(std::vector<Claim>& claims, int resource) {
  const auto known = std::ranges::find(claims, resource, &Claim::resource);
  return known != claims.end() ? *known : claims.emplace_back(Claim{resource, 0});
}

// Claims start with those of devices.
void set_devices(std::vector<Claim>& claims, const std::vector<double>& shares) {
  for (size_t i = 0; i < shares.size(); ++i) claims[i].share = shares[i];
}

}  // namespace

const SegmentTimer& KnownSegments::timer(const Key& key, const std::function<SegmentTimer()>& make) {
  return known(timers_, key, make);
}

const TimedSegment& KnownSegments::times(const Key& key, i64 tokens, const std::function<TimedSegment()>& make) {
  return known(times_, {key, tokens}, make);
}

// If two threads make the same value, the first one stays.
template <class Index, class Value>
const Value& KnownSegments::known(std::map<Index, Value>& all, const Index& key, const std::function<Value()>& make) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = all.find(key); at != all.end()) return at->second;
  }
  Value made = make();
  const std::lock_guard lock(mutex_);
  return all.try_emplace(key, std::move(made)).first->second;
}

TaskWork::TaskWork(const batch::StepPlan& plan, const compiler::Plans& plans, const cluster::Hardware& hardware,
                   KnownSegments& known, const MeasuredStep* measured)
    : plan_(plan), plans_(plans), hardware_(hardware), measured_(measured), known_(known) {
  check(hardware.ranks() == plans.cluster().ranks(), "hardware of {} ranks for a program of {}", hardware.ranks(),
        plans.cluster().ranks());
}

// Ranks, ports by link and direction, hosts.
std::vector<int> TaskWork::kinds_of_resources() const {
  const int ranks = hardware_.ranks();
  std::vector<int> kinds(static_cast<size_t>(number_of_host(hardware_.hosts)), 0);
  for (int port = ranks; port < number_of_host(0); ++port)
    kinds[static_cast<size_t>(port)] = 1 + (port - ranks) % kPortsOfDevice;
  std::fill(kinds.begin() + number_of_host(0), kinds.end(), 1 + kPortsOfDevice);
  return kinds;
}

std::vector<Claim> TaskWork::claims_of(const Task& t, const Work& needed) const {
  std::vector<Claim> claims = devices_of(t);
  if (!needed.use) return claims;
  set_devices(claims, needed.use->devices);
  for (const cost::Exchange::PortShare& busy : needed.use->ports)
    claims.push_back({number_of(t, *needed.use, busy.port), busy.share});
  return claims;
}

// The port that lies to the task's ranks as this one does to those that the use was made for.
int TaskWork::number_of(const Task& t, const Use& use, cost::Port port) const {
  port.host += plans_.cluster().host[static_cast<size_t>(t.ranks[0])] - use.first_host;
  return number_of(port);
}

// Ports are numbered after the ranks.
int TaskWork::number_of(const cost::Port& port) const {
  const bool inter = port.link == cluster::Link::inter_host;
  return plans_.cluster().ranks() + ((port.host * hardware_.devices_per_host + port.number) * 2 + inter) * 2 + port.out;
}

// Hosts after the ports.
int TaskWork::number_of_host(int host) const { return hardware_.ranks() * (1 + kPortsOfDevice) + host; }

const batch::MicroBatch& TaskWork::micro_batch(const Task& t) const {
  return plan_.phases[static_cast<size_t>(t.phase)]
      .replica[static_cast<size_t>(t.replica())][static_cast<size_t>(t.micro_batch())];
}

const compiler::CompiledStrategy& TaskWork::strategy_of(const Task& t) const {
  return plans_.strategies()[static_cast<size_t>(plan_.phases[static_cast<size_t>(t.phase)].strategy)];
}

const ir::StageCode& TaskWork::stage_of(const Task& t) const {
  return strategy_of(t).groups[static_cast<size_t>(t.group())].stages[static_cast<size_t>(t.stage())];
}

// Devices of ranks, counted from the first one's host: equal placements take equally long.
std::vector<int> TaskWork::places_of(const std::vector<int>& ranks) const {
  const std::vector<int>& host = plans_.cluster().host;
  const int devices = hardware_.devices_per_host, first = host[static_cast<size_t>(ranks[0])];
  std::vector<int> places;
  for (const int rank : ranks) places.push_back((host[static_cast<size_t>(rank)] - first) * devices + rank % devices);
  return places;
}

const ReplicaSegment& TaskWork::segment(const Task& t) {
  if (measured_) {
    auto& [timed, segment] = measured_segments_.emplace_back(as_measured(t, times_of(t)), ReplicaSegment{});
    return segment = placed(t, timed);
  }
  const auto [it, fresh] = segments_.try_emplace(segment_key(t));
  if (fresh) it->second = placed(t, times_of(t));
  return it->second;
}

// The ranks of a run in groups that compute the same for a piece: of the same tokens, with shards of equal sizes.
std::vector<std::vector<int>> TaskWork::equal_ranks(const Task& t, const Piece& piece) const {
  const ir::StageCode& stage = stage_of(t);
  const auto instructions =
      std::span(stage.segment(t.pass()).code)
          .subspan(static_cast<size_t>(piece.first), static_cast<size_t>(piece.end - piece.first));
  const auto same = [&](int p, int q) {
    return std::ranges::all_of(instructions, [&](const ir::Instr& instr) { return same_sizes(stage, instr, p, q); });
  };
  std::vector<std::vector<int>> groups;
  const auto add = [&](const std::vector<int>& ranks) {  // by position
    const size_t begin = groups.size();
    std::vector<int> first;  // position of each group from there on
    for (int p = 0; p < static_cast<int>(ranks.size()); ++p) {
      const auto found = std::ranges::find_if(first, [&](int q) { return same(p, q); });
      const auto group = begin + static_cast<size_t>(found - first.begin());
      if (found == first.end()) {
        first.push_back(p);
        groups.emplace_back();
      }
      groups[group].push_back(ranks[static_cast<size_t>(p)]);
    }
  };
  if (micro_batch(t).T.size() == 1)
    add(t.ranks);
  else
    for (const std::vector<int>& ranks : ring_keys_.at(ring_of(t)).keys.ranks) add(ranks);
  return groups;
}

// Ranks wait for one another between its pieces, so each takes what the slowest of them computed.
TimedSegment TaskWork::as_measured(const Task& t, TimedSegment timed) const {
  for (Piece& piece : timed.times.pieces) {
    if (piece.what != Activity::compute) continue;
    piece.fixed = piece.share * measured_->slowest(t, equal_ranks(t, piece), piece.first, piece.end);
    piece.per_pair = piece.per_square = 0;
  }
  return timed;
}

double TaskWork::computed(const Task& t, double predicted) const {
  return measured_ ? measured_->slowest(t) : predicted;
}

TaskWork::SegmentKey TaskWork::segment_key(const Task& t) const {
  const std::vector<i64>& T = micro_batch(t).T;
  return {t.phase, t.replica(), t.stage(), t.pass(), t.piece(), T.size() == 1 ? T[0] : -1 - t.micro_batch()};
}

const std::vector<batch::Piece>& TaskWork::shard(const Task& t) {
  const batch::MicroBatch& mb = micro_batch(t);
  return mb.shard[mb.T.size() == 1 ? 0 : static_cast<size_t>(on_ring(t).slowest)];
}

ReplicaSegment TaskWork::placed(const Task& t, const TimedSegment& timed) const {
  ReplicaSegment segment{.times = &timed.times, .computing = devices_of(t), .exchanging = {}};
  for (const Use& use : timed.uses)
    for (const cost::Exchange::PortShare& busy : use.ports) claim_on(segment.computing, number_of(t, use, busy.port));
  std::vector<Claim> resting = segment.computing;
  // Devices that slow each other down share their host: all at once they have what is left of alone_speedup.
  if (hardware_.device.alone_speedup != 1)
    for (const int rank : t.ranks) {
      const int host = number_of_host(plans_.cluster().host[static_cast<size_t>(rank)]);
      claim_on(segment.computing, host).share += hardware_.device.alone_speedup / hardware_.devices_per_host;
      claim_on(resting, host);
    }
  for (const Use& use : timed.uses) {
    std::vector<Claim>& claims = segment.exchanging.emplace_back(resting);
    set_devices(claims, use.devices);
    for (const cost::Exchange::PortShare& busy : use.ports)
      claim_on(claims, number_of(t, use, busy.port)).share = busy.share;
    // The most loaded device is full; in proportion to it the others, and all else.
    double most = 1;
    for (const double share : use.devices) most = std::max(most, 1 + share);
    std::vector<Claim>& both = segment.both.emplace_back(segment.computing);
    for (size_t i = 0; i < both.size(); ++i) both[i].share = (both[i].share + claims[i].share) / most;
    segment.slowdown.push_back(most);
  }
  return segment;
}

const TimedSegment& TaskWork::times_of(const Task& t) {
  if (micro_batch(t).T.size() > 1) return on_ring(t).timed;
  const KnownSegments::Key key{
      .stage = &stage_of(t), .pass = t.pass(), .piece = t.piece(), .places = places_of(t.ranks)};
  const i64 tokens = micro_batch(t).T[0];
  return known_.times(key, tokens, [&] {
    const SegmentTimer& timer = known_.timer(key, [&] { return timer_of(t, t.ranks); });
    TimedSegment timed{timer.at(tokens), {}};
    for (const cost::Exchange& exchange : timed.times.exchanges) timed.uses.push_back(use_of(exchange, timer.ranks()));
    return timed;
  });
}

SegmentTimer TaskWork::timer_of(const Task& t, const std::vector<int>& ranks) const {
  const ir::StageCode& stage = stage_of(t);
  return SegmentTimer(stage, stage.segment(t.pass()), t.piece(), ranks, hardware_, plans_.cluster(),
                      strategy_of(t).strategy.compression);
}

TaskWork::RingKey TaskWork::ring_of(const Task& t) { return {t.phase, t.replica(), t.stage(), t.micro_batch()}; }

const TaskWork::RingSegment& TaskWork::on_ring(const Task& t) {
  const auto [it, fresh] = ring_segments_.try_emplace(segment_key(t));
  if (!fresh) return it->second;
  const batch::MicroBatch& mb = micro_batch(t);
  const auto [found, unknown] = ring_keys_.try_emplace(ring_of(t));
  TimedKeys& keys = found->second;
  if (unknown) keys.keys = compiler::ring_keys(strategy_of(t), t.replica(), t.stage(), mb, plans_.cluster());
  double longest = -1;
  for (size_t ring = 0; ring < mb.T.size(); ++ring) {
    std::optional<SegmentTimer>& timer = ring_timers_[{&stage_of(t), t.pass(), t.piece(), keys.keys.ranks[ring]}];
    if (!timer) timer.emplace(timer_of(t, keys.keys.ranks[ring]));
    TimedSegment timed{timer->at(mb.T[ring], &keys, static_cast<int>(ring)), {}};
    const double pairs = batch::attention_pairs(mb.shard[ring]);
    double seconds = 0;
    for (const Piece& piece : timed.times.pieces) seconds += piece.fixed + piece.per_pair * pairs;
    if (seconds <= longest) continue;
    longest = seconds;
    it->second = {static_cast<int>(ring), std::move(timed)};
  }
  TimedSegment& slowest = it->second.timed;
  for (const cost::Exchange& exchange : slowest.times.exchanges) slowest.uses.push_back(use_of(exchange, t.ranks));
  return it->second;
}

// The claims of tasks without messages are read until the task ends: each has its own. So has a transfer whose coding
// was measured.
const PlacedWork& TaskWork::work(const Task& t) {
  const bool coding_measured = measured_ && t.encoding.codec != codecs::Codec::none;
  if (t.messages.empty() || coding_measured) {
    const Work work = fresh_work(t);
    return others_.emplace_back(PlacedWork{work.seconds, claims_of(t, work)});
  }
  const auto [it, fresh] =
      placed_.try_emplace({t.kind(), t.encoding, t.messages.pattern().get(), t.messages.ranks().get()});
  if (fresh) {
    const Work& work = transfer_of(t);
    it->second = {work.seconds, claims_of(t, work)};
  }
  return it->second;
}

// Transfers of the same messages among ranks with the same placement. Those of a send are named by position, others in
// their order.
const TaskWork::Work& TaskWork::transfer_of(const Task& t) {
  const bool by_position = t.kind() == TaskKind::send && t.messages.ranks();
  std::vector<int> places = places_of(by_position ? *t.messages.ranks() : t.ranks);
  if (by_position)
    places.push_back(plans_.cluster().host[static_cast<size_t>((*t.messages.ranks())[0])] -
                     plans_.cluster().host[static_cast<size_t>(t.ranks[0])]);
  const auto [it, fresh] =
      transfers_.try_emplace({t.kind(), t.encoding, t.messages.pattern().get(), std::move(places)});
  if (fresh) it->second = fresh_work(t);
  return it->second;
}

TaskWork::Work TaskWork::fresh_work(const Task& t) const {
  switch (t.kind()) {
    case TaskKind::send:
    case TaskKind::move:
    case TaskKind::broadcast:
      return exchanged(t, false);
    case TaskKind::gather: {
      const DType type = plans_.graph().precision().compute;
      Work work = exchanged(t, false);
      work.seconds += within_ranks(t, "copy", type, 2 * size_of(type));
      return work;
    }
    case TaskKind::reduce_scatter:
    case TaskKind::reduce: {  // a rank's own partials: read, added to the sum, written
      const DType type = plans_.graph().precision().state;
      Work work = exchanged(t, true);
      work.seconds += within_ranks(t, "add", type, 3 * size_of(type));
      return work;
    }
    case TaskKind::norm:
      return {.seconds = computed(t, squared()) + agreed(t)};
    case TaskKind::update:
      return {.seconds = computed(t, updated(t))};
    case TaskKind::zero_fill:
      return {.seconds = computed(t, zeroing(t))};
    case TaskKind::allocate:
      return {.seconds = computed(t, copied(t))};
    case TaskKind::run:
      return {};
  }
  return {};
}

TaskWork::Work TaskWork::exchanged(const Task& t, bool summed) const {
  const DType type = ir::type_of(t.kind(), plans_.graph().precision());
  std::vector<cost::Message> messages;
  messages.reserve(t.messages.size());
  for (const layout::Msg& m : t.messages)
    messages.push_back({.from = m.src,
                        .to = m.dst,
                        .bytes = m.src == m.dst ? m.box.elements() * size_of(type)
                                                : compiler::wire_bytes(t, m, type, plans_.cluster()),
                        .summed = summed});
  const cost::Exchange exchange = cost::exchange_over(hardware_, plans_.cluster(), messages);
  return {exchange.time.count + coding(t), use_of(exchange, t.ranks)};
}

// A rank encodes before it sends, and decodes in the list's order.
double TaskWork::coding(const Task& t) const {
  if (t.encoding.codec == codecs::Codec::none) return 0;
  if (measured_) return measured_->slowest(t);
  const DType type = ir::type_of(t.kind(), plans_.graph().precision());
  CodingTime time(hardware_.device);
  for (const layout::Msg& m : t.messages)
    time.add(compiler::codec_of(t, m, type, plans_.cluster()), type, m.box.elements(), m.src, m.dst,
             t.encoding.feedback);
  return time.seconds();
}

Use TaskWork::use_of(const cost::Exchange& exchange, const std::vector<int>& ranks) const {
  Use use{std::vector<double>(ranks.size(), 0), exchange.ports, plans_.cluster().host[static_cast<size_t>(ranks[0])]};
  for (const cost::Exchange::DeviceShare& busy : exchange.devices) {
    const auto place = std::ranges::find(ranks, busy.rank);
    check(place != ranks.end(), "rank {} transfers in a task of others", busy.rank);
    use.devices[static_cast<size_t>(place - ranks.begin())] += busy.share * hardware_.device_share(busy.link);
  }
  return use;
}

// Memory traffic of so many bytes an element, on the rank that has most elements.
double TaskWork::memory_time(const char* name, DType type, const std::map<int, i64>& elements, i64 bytes) const {
  i64 most = 0;
  for (const auto& [rank, count] : elements) most = std::max(most, count);
  return cost::moving_time(hardware_.device, type, name, static_cast<double>(most), static_cast<double>(bytes)).count;
}

// Seconds that ranks take for messages to themselves.
double TaskWork::within_ranks(const Task& t, const char* operation, DType type, i64 bytes) const {
  std::map<int, i64> elements;
  for (const layout::Msg& m : t.messages)
    if (m.src == m.dst) elements[m.src] += m.box.elements();
  return memory_time(operation, type, elements, bytes);
}

// Elements of a unit that the maps give each rank.
void TaskWork::add_elements(const std::vector<layout::ShardMap>& maps, int unit, std::map<int, i64>& elements) const {
  for (const int tensor : plans_.units()[static_cast<size_t>(unit)].tensors)
    for (const layout::Shard& shard : maps[static_cast<size_t>(tensor)].shards)
      elements[shard.rank] += shard.box.elements();
}

// Gradients are read.
double TaskWork::squared() const {
  const DType type = plans_.graph().precision().state;
  std::map<int, i64> elements;
  for (size_t unit = 0; unit < plans_.units().size(); ++unit)
    add_elements(plans_.owners(), static_cast<int>(unit), elements);
  return memory_time("sum_of_squares", type, elements, size_of(type));
}

// A few numbers from all to all, by halves of the ranks: one latency of the slowest link for each halving, there and
// back.
double TaskWork::agreed(const Task& t) const {
  if (t.ranks.size() < 2) return 0;
  const cluster::Link link = plans_.cluster().hosts() > 1 ? cluster::Link::inter_host : cluster::Link::intra_host;
  int halvings = 0;
  while ((size_t{1} << halvings) < t.ranks.size()) ++halvings;
  return 2 * halvings * hardware_.link(link).latency.count;
}

// Master weights and two moments read and written, the gradient read and cleared, home's compute copy written: memory
// traffic.
double TaskWork::updated(const Task& t) const {
  const Precision precision = plans_.graph().precision();
  const i64 bytes =
      8 * size_of(precision.state) + (precision.compute == precision.state ? 0 : size_of(precision.compute));
  std::map<int, i64> elements;
  add_elements(plans_.home(), t.unit(), elements);
  return memory_time("adamw", precision.state, elements, bytes);
}

// Memory of the working parameters is filled from what their ranks hold. Units with equal moves copy equally much.
double TaskWork::copied(const Task& t) const {
  const int strategy = plan_.phases[static_cast<size_t>(t.phase)].strategy;
  const int previous = t.phase == 0 ? -1 : plan_.phases[static_cast<size_t>(t.phase - 1)].strategy;
  const auto& rounds = plans_.moves(previous, strategy).units[static_cast<size_t>(t.unit())].moves.rounds;
  if (rounds.empty()) return 0;
  const auto [it, fresh] = copied_.try_emplace({previous, strategy, rounds.front().pattern().get()});
  const DType type = plans_.graph().precision().compute;
  if (fresh)
    it->second =
        memory_time("copy", type, compiler::copied_elements(plans_, strategy, previous, t.unit()), 2 * size_of(type));
  return it->second;
}

TaskWork::Accumulators TaskWork::accumulators_of(const Task& t) const {
  if (!makes_own_gradients(t)) return {t.phase, t.replica(), t.stage()};
  return {.phase = t.phase,
          .replica = t.replica(),
          .stage = t.stage(),
          .first = stage_of(t).first_of_block(t.micro_batch()),
          .piece = t.piece(),
          .pass = t.pass()};
}

// Accumulators of a stage are filled with zeros, or, where runs make gradients of their own, those that a piece begins.
double TaskWork::zeroing(const Task& t) const {
  if (measured_ && t.kind() == TaskKind::run) return 0;  // part of what its first operators took
  const auto [it, fresh] = zeroed_.try_emplace({&stage_of(t), t.pass(), t.piece()});
  if (fresh) it->second = zeroing_of(t);
  return it->second;
}

double TaskWork::zeroing_of(const Task& t) const {
  const ir::StageCode& stage = stage_of(t);
  const ir::Segment& segment = stage.segment(t.pass());
  const ir::PieceRange range = ir::range_of(segment, t.piece());
  const auto begins = [&](int unit) {
    return std::ranges::any_of(segment.first_writes, [&](const ir::UnitEvent& write) {
      const auto instr = static_cast<size_t>(write.instr);
      return write.unit == unit && range.first <= instr && instr < range.end;
    });
  };
  const DType type = plans_.graph().precision().state;
  std::map<int, i64> elements;
  for (const ir::ParamUse& use : stage.params) {
    if (makes_own_gradients(t) && !begins(plans_.graph().param(use.param).unit)) continue;
    for (int position = 0; position < stage.replica.size(); ++position)
      elements[position] +=
          layout::shard_box(stage.replica, use.used, plans_.graph().param(use.param).shape, position).elements();
  }
  return memory_time("zero", type, elements, size_of(type));
}

}  // namespace switchyard::simulator
