#include "simulator/simulate.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/errors.hpp"
#include "compiler/holdings.hpp"
#include "compiler/order.hpp"
#include "cost/compute_cost.hpp"
#include "cost/exchange.hpp"
#include "simulator/fold.hpp"
#include "simulator/segment_times.hpp"
#include "simulator/shared_resources.hpp"

namespace switchyard::simulator {
namespace {

using ir::Task;
using ir::TaskKind;

constexpr int kPortsOfDevice = 4;  // at most: inside and between hosts, in and out
constexpr int kInOrder = -2;       // why a row waits: it is the next one of a queue; otherwise for a unit

class Simulator {
 public:
  Simulator(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans, const cluster::Hardware& hardware)
      : program_(program), plan_(plan), plans_(plans), hardware_(hardware), queues_(program.rows, hardware.ranks()) {
    check(hardware.ranks() == plans.cluster().ranks(), "hardware of {} ranks for a program of {}", hardware.ranks(), plans.cluster().ranks());
    result_.rows.resize(program.rows.size());
    spans_.resize(program.rows.size());
    sums_.resize(program.rows.size());
  }

  Simulation run() {
    fold();
    prepare();
    for (int row = 0; row < rows(); ++row)
      if (fold_->stands(row) && state(row).missing == 0) ready_.push_back(row);
    begin_ready();
    for (int ended = shared_.next(); ended >= 0; ended = shared_.next()) {
      work_ended(ended);
      begin_ready();
    }
    unfold();
    for (const RowTime& row : result_.rows) result_.step_seconds = std::max(result_.step_seconds, row.end);
    add_rank_times();
    result_.kept = std::make_shared<const std::vector<std::vector<Span>>>(std::move(spans_));
    return std::move(result_);
  }

 private:
  // What ranks take while they transfer.
  struct Use {
    std::vector<double> devices{};  // of each rank
    std::vector<cost::Exchange::PortShare> ports{};
    int first_host = 0;  // of the ranks that it was made for
  };
  struct TimedSegment {
    SegmentTimes times;
    std::vector<Use> uses;  // of its exchanges
  };
  // A segment on the ranks of a lane. All claims are on the same resources.
  struct LaneSegment {
    const SegmentTimes* times = nullptr;
    std::vector<Claim> computing;
    std::vector<std::vector<Claim>> exchanging;
    std::vector<int> lists;  // of the graph
  };

  // What a class of rows takes of the classes of resources in a segment.
  struct FoldedSegment {
    std::vector<Claim> computing;
    std::vector<std::vector<Claim>> exchanging;
  };

  // What a row takes by itself; without a use all of its devices.
  struct Work {
    double seconds = 0;
    std::optional<Use> use{};
  };
  struct PlacedWork {
    double seconds = 0;
    std::vector<Claim> claims;
    int list = -1;  // of the graph
  };

  // A row on its way. missing: streams and rows that it waits for; zeroing: of accumulators that the run makes; the rest is of runs, too.
  struct RowState {
    int missing = 0;
    bool started = false, done = false, awaited = false;  // awaited: for units
    const LaneSegment* segment = nullptr;
    const FoldedSegment* folded = nullptr;
    const PlacedWork* other = nullptr;  // of rows that aren't runs
    size_t piece = 0, await = 0, release = 0;
    double pairs = 0, squares = 0, zeroing = 0;
  };

  const Task& task(int row) const { return program_.rows[static_cast<size_t>(row)]; }
  RowTime& time(int row) { return result_.rows[static_cast<size_t>(row)]; }
  RowState& state(int row) { return state_[static_cast<size_t>(row)]; }

  // Also by copies within a device, where they are part of a switch.
  static bool communicates(const Task& t) { return ir::is_transfer(t.kind) || t.kind == TaskKind::prepare; }

  int rows() const { return static_cast<int>(program_.rows.size()); }

  // Which rows are bound to take place together: one of them is looked at.
  void fold() {
    state_.resize(program_.rows.size());
    RowGraph graph(kinds_of_resources());
    std::vector<int> last_of_queue(queues_.count(), -1);
    for (int row = 0; row < rows(); ++row) {
      const Task& t = task(row);
      if (t.kind == TaskKind::run)
        add_run(row, graph);
      else
        add_other(row, graph);
      int known = -1;  // mostly all ranks of a row have the same row before it
      for (const int rank : t.ranks) {
        const int before = std::exchange(last_of_queue[queues_.of(t, rank)], row);
        if (before < 0 || before == known) continue;
        graph.wait(known = before, kInOrder);
        in_order_.emplace_back(row, before);
      }
      for (const ir::Wait& wait : t.after) graph.wait(wait.row, wait.unit);
    }
    fold_.emplace(graph);
    shared_ = SharedResources(fold_->resources());
  }

  // Ranks, ports by link and direction, hosts.
  std::vector<int> kinds_of_resources() const {
    const int ranks = hardware_.ranks();
    std::vector<int> kinds(static_cast<size_t>(number_of_host(hardware_.hosts)), 0);
    for (int port = ranks; port < number_of_host(0); ++port) kinds[static_cast<size_t>(port)] = 1 + (port - ranks) % kPortsOfDevice;
    std::fill(kinds.begin() + number_of_host(0), kinds.end(), 1 + kPortsOfDevice);
    return kinds;
  }

  static std::uint64_t bits(double number) { return std::bit_cast<std::uint64_t>(number); }

  void add_run(int row, RowGraph& graph) {
    const Task& t = task(row);
    RowState& s = state(row);
    LaneSegment& segment = segment_of(t);
    if (segment.lists.empty()) {
      segment.lists.push_back(graph.list(&segment.computing));
      for (const std::vector<Claim>& claims : segment.exchanging) segment.lists.push_back(graph.list(&claims));
    }
    s.segment = &segment;
    s.pairs = batch::causal_pairs(micro_batch(t));
    s.squares = static_cast<double>(batch::squares(micro_batch(t)));
    const bool gradients = t.pass == ir::Pass::W || t.pass == ir::Pass::BW;
    if (gradients && accumulating_.insert({t.phase, t.lane, t.stage}).second) s.zeroing = zeroed(t);
    const std::array parts{reinterpret_cast<std::uint64_t>(segment.times), bits(s.pairs), bits(s.squares), bits(s.zeroing)};
    graph.add_row(RowGraph::work_of(parts), segment.lists);
  }

  void add_other(int row, RowGraph& graph) {
    const Task& t = task(row);
    PlacedWork& work = work_of(t);
    if (work.list < 0) work.list = graph.list(&work.claims);
    state(row).other = &work;
    const std::array parts{bits(work.seconds), static_cast<std::uint64_t>(communicates(t))};
    graph.add_row(RowGraph::work_of(parts), {&work.list, 1});
  }

  // What each row waits for: its streams' rows before it, other rows, units of other rows.
  void prepare() {
    work_began_.resize(program_.rows.size());
    after_row_.resize(program_.rows.size());
    for (const auto& [row, before] : in_order_)
      if (fold_->stands(row)) follow(row, fold_->of(before));
    for (int row = 0; row < rows(); ++row) {
      if (!fold_->stands(row)) continue;
      const Task& t = task(row);
      for (const ir::Wait& wait : t.after) {
        if (t.kind == TaskKind::run && wait.unit >= 0) continue;
        const int awaited = fold_->of(wait.row);
        if (releases(wait)) {
          after_unit_[{awaited, wait.unit}].push_back(row);
          state(awaited).awaited = true;
          ++state(row).missing;
        } else {
          follow(row, awaited);
        }
      }
    }
  }

  // The rows that weren't looked at.
  void unfold() {
    for (int row = 0; row < rows(); ++row) {
      const int first = fold_->of(row);
      check(state(first).done, "row {} never ran", row);
      time(first).spans = spans_[static_cast<size_t>(first)];
      time(row) = time(first);
    }
  }

  void follow(int row, int before) {
    after_row_[static_cast<size_t>(before)].push_back(row);
    ++state(row).missing;
  }

  // Whether the row that is waited for has the unit's gradients ready before it ends.
  bool releases(const ir::Wait& wait) {
    const LaneSegment* segment = state(wait.row).segment;
    return wait.unit >= 0 && segment && std::ranges::find(segment->times->releases, wait.unit, &UnitMark::unit) != segment->times->releases.end();
  }

  // Or go on, if they stopped within.
  void begin_ready() {
    for (; !ready_.empty(); ready_.pop_front()) {
      const int row = ready_.front();
      if (!std::exchange(state(row).started, true)) time(row).begin = time(row).end = shared_.now();
      go_on(row);
    }
  }

  void go_on(int row) {
    const Task& t = task(row);
    RowState& s = state(row);
    if (t.kind == TaskKind::run) return next_piece(row);
    if (s.piece++ > 0) return finish(row);
    if (s.other->seconds <= 0) return finish(row);
    work_.assign(1, {s.other->seconds, folded(row, *s.other), communicates(t)});
    work(row);
  }

  // Runs stop within for parameters that are not there yet, and tell what gradients are complete.
  void next_piece(int row) {
    RowState& s = state(row);
    const SegmentTimes& times = *s.segment->times;
    for (;;) {
      for (; s.release < times.releases.size() && times.releases[s.release].before == s.piece; ++s.release)
        released(row, times.releases[s.release].unit);
      for (; s.await < times.awaits.size() && times.awaits[s.await].before == s.piece; ++s.await)
        for (const ir::Wait& wait : task(row).after)
          if (wait.unit == times.awaits[s.await].unit && !state(fold_->of(wait.row)).done) follow(row, fold_->of(wait.row));
      if (s.missing > 0) return;
      if (s.piece == times.pieces.size()) return finish(row);
      work_.clear();
      do add_piece(row, times.pieces[s.piece++]);
      while (s.piece < times.pieces.size() && goes_on(row, times));
      if (!work_.empty()) return work(row);
    }
  }

  void add_piece(int row, const Piece& part) {
    RowState& s = state(row);
    const bool computes = part.what == Activity::compute;
    if (!s.folded) s.folded = &folded(row, *s.segment);
    double seconds = part.fixed + part.per_pair * s.pairs + part.per_square * s.squares;
    if (computes) seconds = (seconds + std::exchange(s.zeroing, 0.0)) / hardware_.device.alone_speedup;
    if (seconds > 0) work_.push_back({seconds, computes ? s.folded->computing : s.folded->exchanging[static_cast<size_t>(part.exchange)], !computes});
  }

  const FoldedSegment& folded(int row, const LaneSegment& segment) {
    const auto [it, fresh] = folded_segments_.try_emplace({&segment, fold_->size(row)});
    if (fresh) {
      it->second.computing = fold_->claims(row, segment.computing);
      for (const std::vector<Claim>& claims : segment.exchanging) it->second.exchanging.push_back(fold_->claims(row, claims));
    }
    return it->second;
  }
  const std::vector<Claim>& folded(int row, const PlacedWork& work) {
    const auto [it, fresh] = folded_.try_emplace({&work, fold_->size(row)});
    if (fresh) it->second = fold_->claims(row, work.claims);
    return it->second;
  }

  // Whether nothing happens at the start of the present piece.
  bool goes_on(int row, const SegmentTimes& times) {
    RowState& s = state(row);
    size_t release = s.release, await = s.await;
    for (; release < times.releases.size() && times.releases[release].before == s.piece; ++release)
      if (s.awaited) return false;
    for (; await < times.awaits.size() && times.awaits[await].before == s.piece; ++await)
      for (const ir::Wait& wait : task(row).after)
        if (wait.unit == times.awaits[await].unit && !state(fold_->of(wait.row)).done) return false;
    s.release = release;
    s.await = await;
    return true;
  }

  void work(int row) {
    const auto number = static_cast<size_t>(shared_.start(work_));
    if (row_of_activity_.size() <= number) row_of_activity_.resize(number + 1);
    row_of_activity_[number] = row;
    work_began_[static_cast<size_t>(row)] = shared_.now();
  }

  void work_ended(int activity) {
    const int row = row_of_activity_[static_cast<size_t>(activity)];
    const std::span<const Stretch> stretches = shared_.stretches(activity);
    const std::span<const double> ends = shared_.ends(activity);
    double begin = work_began_[static_cast<size_t>(row)];
    for (size_t i = 0; i < ends.size(); ++i) spans_[static_cast<size_t>(row)].push_back({std::exchange(begin, ends[i]), ends[i], stretches[i].tag != 0});
    go_on(row);
  }

  void finish(int row) {
    state(row).done = true;
    time(row).end = shared_.now();
    for (const int follower : after_row_[static_cast<size_t>(row)]) arrived(follower);
  }

  void arrived(int row) {
    if (--state(row).missing == 0) ready_.push_back(row);
  }

  void released(int row, int unit) {
    const auto found = after_unit_.find({row, unit});
    if (found == after_unit_.end()) return;
    for (const int follower : found->second) arrived(follower);
  }

  static std::vector<Claim> devices_of(const Task& t) {
    std::vector<Claim> claims;
    for (const int rank : t.ranks) claims.push_back({rank, 1});
    return claims;
  }

  static Claim& claim_on(std::vector<Claim>& claims, int resource) {
    const auto known = std::ranges::find(claims, resource, &Claim::resource);
    return known != claims.end() ? *known : claims.emplace_back(Claim{resource, 0});
  }

  // Claims start with those of devices.
  static void set_devices(std::vector<Claim>& claims, const Use& use) {
    for (size_t i = 0; i < use.devices.size(); ++i) claims[i].share = use.devices[i];
  }

  std::vector<Claim> claims_of(const Task& t, const Work& needed) const {
    std::vector<Claim> claims = devices_of(t);
    if (!needed.use) return claims;
    set_devices(claims, *needed.use);
    for (const cost::Exchange::PortShare& busy : needed.use->ports) claims.push_back({number_of(t, *needed.use, busy.port), busy.share});
    return claims;
  }

  // The port that lies to the row's ranks as this one does to those that the use was made for.
  int number_of(const Task& t, const Use& use, cost::Port port) const {
    port.host += plans_.cluster().host[static_cast<size_t>(t.ranks[0])] - use.first_host;
    return number_of(port);
  }

  // Ports are numbered after the ranks.
  int number_of(const cost::Port& port) const {
    const bool inter = port.link == cluster::Link::inter_host;
    return plans_.cluster().ranks() + ((port.host * hardware_.devices_per_host + port.number) * 2 + inter) * 2 + port.out;
  }

  // Hosts after the ports.
  int number_of_host(int host) const { return hardware_.ranks() * (1 + kPortsOfDevice) + host; }

  const batch::MicroBatch& micro_batch(const Task& t) const {
    return plan_.phases[static_cast<size_t>(t.phase)].lane[static_cast<size_t>(t.lane)][static_cast<size_t>(t.micro_batch)];
  }

  const compiler::CompiledStrategy& strategy_of(const Task& t) const {
    return plans_.strategies()[static_cast<size_t>(plan_.phases[static_cast<size_t>(t.phase)].strategy)];
  }

  // Devices of ranks, counted from the first one's host: what lies alike takes equally long.
  std::vector<int> places_of(const std::vector<int>& ranks) const {
    const std::vector<int>& host = plans_.cluster().host;
    const int devices = hardware_.devices_per_host, first = host[static_cast<size_t>(ranks[0])];
    std::vector<int> places;
    for (const int rank : ranks) places.push_back((host[static_cast<size_t>(rank)] - first) * devices + rank % devices);
    return places;
  }

  LaneSegment& segment_of(const Task& t) {
    const auto [it, fresh] = segments_.try_emplace({t.phase, t.lane, t.stage, t.pass, micro_batch(t).T});
    if (fresh) it->second = placed(t, times_of(t));
    return it->second;
  }

  LaneSegment placed(const Task& t, const TimedSegment& timed) const {
    LaneSegment segment{&timed.times, devices_of(t), {}, {}};
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
      set_devices(claims, use);
      for (const cost::Exchange::PortShare& busy : use.ports) claim_on(claims, number_of(t, use, busy.port)).share = busy.share;
    }
    return segment;
  }

  const TimedSegment& times_of(const Task& t) {
    const auto [it, fresh] = times_.try_emplace({&strategy_of(t), t.group, t.stage, t.pass, micro_batch(t).T, places_of(t.ranks)});
    if (fresh) {
      const ir::StageCode& stage = strategy_of(t).groups[static_cast<size_t>(t.group)].stages[static_cast<size_t>(t.stage)];
      const auto [timer, first] = timers_.try_emplace({&stage, t.pass, places_of(t.ranks)}, stage, stage.segment(t.pass), t.ranks, hardware_, plans_.cluster());
      it->second.times = timer->second.at(micro_batch(t).T);
      for (const cost::Exchange& exchange : it->second.times.exchanges) it->second.uses.push_back(use_of(exchange, timer->second.ranks()));
    }
    return it->second;
  }

  // The claims of rows without messages are read until the row ends: each has its own.
  PlacedWork& work_of(const Task& t) {
    if (t.messages.empty()) {
      const Work work = fresh_work(t);
      return others_.emplace_back(PlacedWork{work.seconds, claims_of(t, work), -1});
    }
    const auto [it, fresh] = placed_.try_emplace({t.kind, t.messages.pattern().get(), t.messages.ranks().get()});
    if (fresh) {
      const Work& work = transfer_of(t);
      it->second = {work.seconds, claims_of(t, work), -1};
    }
    return it->second;
  }

  // Transfers of the same messages among ranks that lie alike. Those of a send are named by position, others in their order.
  const Work& transfer_of(const Task& t) {
    const bool by_position = t.kind == TaskKind::send && t.messages.ranks();
    std::vector<int> places = places_of(by_position ? *t.messages.ranks() : t.ranks);
    if (by_position) places.push_back(plans_.cluster().host[static_cast<size_t>((*t.messages.ranks())[0])] - plans_.cluster().host[static_cast<size_t>(t.ranks[0])]);
    const auto [it, fresh] = transfers_.try_emplace({t.kind, t.messages.pattern().get(), std::move(places)});
    if (fresh) it->second = fresh_work(t);
    return it->second;
  }

  Work fresh_work(const Task& t) const {
    switch (t.kind) {
      case TaskKind::send:
      case TaskKind::move:
      case TaskKind::spread:
        return exchanged(t, false);
      case TaskKind::flush: {
        Work work = exchanged(t, true);
        work.seconds += added_at_home(t);
        return work;
      }
      case TaskKind::norm:
        return {.seconds = squared() + agreed(t)};
      case TaskKind::update:
        return {.seconds = updated(t)};
      case TaskKind::zero:
        return {.seconds = zeroed(t)};
      case TaskKind::prepare:
        return {.seconds = copied(t)};
      case TaskKind::run:
        return {};
    }
    return {};
  }

  Work exchanged(const Task& t, bool summed) const {
    const i64 element = size_of(ir::type_of(t.kind, plans_.graph().precision()));
    std::vector<cost::Parcel> parcels;
    parcels.reserve(t.messages.size());
    for (const layout::Msg& m : t.messages) parcels.push_back({m.src, m.dst, m.box.elements() * element, summed});
    const cost::Exchange exchange = cost::exchange_over(hardware_, plans_.cluster(), parcels);
    return {exchange.time.count, use_of(exchange, t.ranks)};
  }

  Use use_of(const cost::Exchange& exchange, const std::vector<int>& ranks) const {
    Use use{std::vector<double>(ranks.size(), 0), exchange.ports, plans_.cluster().host[static_cast<size_t>(ranks[0])]};
    for (const cost::Exchange::DeviceShare& busy : exchange.devices) {
      const auto place = std::ranges::find(ranks, busy.rank);
      check(place != ranks.end(), "rank {} transfers in a row of others", busy.rank);
      use.devices[static_cast<size_t>(place - ranks.begin())] += busy.share * hardware_.device_share(busy.link);
    }
    return use;
  }

  // Memory traffic of so many bytes an element, on the rank that has most elements.
  double memory_time(const char* name, DType type, const std::map<int, i64>& elements, i64 bytes) const {
    i64 most = 0;
    for (const auto& [rank, count] : elements) most = std::max(most, count);
    return cost::moving_time(hardware_.device, type, name, static_cast<double>(most), static_cast<double>(bytes)).count;
  }

  // A rank's own addends: read, added to home's sum, written.
  double added_at_home(const Task& t) const {
    const DType type = plans_.graph().precision().state;
    std::map<int, i64> elements;
    for (const layout::Msg& m : t.messages)
      if (m.src == m.dst) elements[m.src] += m.box.elements();
    return memory_time("add", type, elements, 3 * size_of(type));
  }

  // Elements of a unit that the maps give each rank.
  void add_elements(const std::vector<layout::ShardMap>& maps, int unit, std::map<int, i64>& elements) const {
    for (const int tensor : plans_.units()[static_cast<size_t>(unit)].tensors)
      for (const layout::Shard& shard : maps[static_cast<size_t>(tensor)].shards) elements[shard.rank] += shard.box.elements();
  }

  // Gradients are read.
  double squared() const {
    const DType type = plans_.graph().precision().state;
    std::map<int, i64> elements;
    for (size_t unit = 0; unit < plans_.units().size(); ++unit) add_elements(plans_.owners(), static_cast<int>(unit), elements);
    return memory_time("sum_of_squares", type, elements, size_of(type));
  }

  // A few numbers from all to all, by halves of the ranks: one latency of the slowest link for each halving, there and back.
  double agreed(const Task& t) const {
    if (t.ranks.size() < 2) return 0;
    const cluster::Link link = plans_.cluster().hosts() > 1 ? cluster::Link::inter_host : cluster::Link::intra_host;
    int halvings = 0;
    while ((size_t{1} << halvings) < t.ranks.size()) ++halvings;
    return 2 * halvings * hardware_.link(link).latency.count;
  }

  // Master weights and two moments read and written, the gradient read and cleared, home's image written: memory traffic.
  double updated(const Task& t) const {
    const Precision precision = plans_.graph().precision();
    const i64 bytes = 8 * size_of(precision.state) + (precision.compute == precision.state ? 0 : size_of(precision.compute));
    std::map<int, i64> elements;
    add_elements(plans_.home(), t.unit, elements);
    return memory_time("adamw", precision.state, elements, bytes);
  }

  // A bank's own memory takes over what its ranks hold. Units whose moves are alike copy alike.
  double copied(const Task& t) const {
    const int strategy = plan_.phases[static_cast<size_t>(t.phase)].strategy;
    const int previous = t.phase == 0 ? -1 : plan_.phases[static_cast<size_t>(t.phase - 1)].strategy;
    const auto& rounds = plans_.moves(previous, strategy).units[static_cast<size_t>(t.unit)].moves.rounds;
    if (rounds.empty()) return 0;
    const auto [it, fresh] = copied_.try_emplace({previous, strategy, rounds.front().pattern().get()});
    const DType type = plans_.graph().precision().compute;
    if (fresh) it->second = memory_time("copy", type, compiler::copied_elements(plans_, strategy, previous, t.unit), 2 * size_of(type));
    return it->second;
  }

  // Accumulators of a stage are filled with zeros.
  double zeroed(const Task& t) const {
    const ir::StageCode& stage = strategy_of(t).groups[static_cast<size_t>(t.group)].stages[static_cast<size_t>(t.stage)];
    const auto [it, fresh] = zeroed_.try_emplace(&stage);
    if (fresh) it->second = zeroing_of(stage);
    return it->second;
  }

  double zeroing_of(const ir::StageCode& stage) const {
    const DType type = plans_.graph().precision().state;
    std::map<int, i64> elements;
    for (const ir::ParamUse& use : stage.params)
      for (int position = 0; position < stage.lane.size(); ++position)
        elements[position] += layout::shard_box(stage.lane, use.used, plans_.graph().param(use.param).shape, position).elements();
    return memory_time("zero", type, elements, size_of(type));
  }

  // How long a row computes and transfers before a time.
  std::pair<double, double> spent(int row, double until) {
    const RowTime& t = time(row);
    std::vector<std::pair<double, double>>& sums = sums_[static_cast<size_t>(fold_->of(row))];  // before each span, and at the end
    if (sums.empty()) {
      sums.emplace_back(0, 0);
      for (const Span& span : t.spans) {
        sums.push_back(sums.back());
        (span.communication ? sums.back().second : sums.back().first) += span.end - span.begin;
      }
    }
    const auto next = std::ranges::upper_bound(t.spans, until, {}, &Span::begin);
    std::pair<double, double> sum = sums[static_cast<size_t>(next - t.spans.begin())];
    if (next == t.spans.begin()) return sum;
    const Span& last = *(next - 1);
    (last.communication ? sum.second : sum.first) -= std::max(0.0, last.end - until);
    return sum;
  }

  // When a rank transfers beside its compute queue, and the rows of that one.
  struct Busy {
    std::vector<int> computing;
    std::vector<std::pair<double, double>> transfers;
    bool operator==(const Busy&) const = default;
  };

  Busy busy_of(int rank) const {
    Busy busy;
    for (const int row : program_.of_rank[static_cast<size_t>(rank)]) {
      if (task(row).queue == ir::Queue::compute)
        busy.computing.push_back(row);
      else
        for (const Span& span : result_.rows[static_cast<size_t>(row)].spans) busy.transfers.emplace_back(span.begin, span.end);
    }
    busy.transfers = united(std::move(busy.transfers));
    return busy;
  }

  // Ranks that aren't bound to fare alike may do so; mostly neighbours.
  void add_rank_times() {
    Busy known;
    int known_rank = -1;
    std::vector<int> first(static_cast<size_t>(fold_->resources()), -1);
    for (int rank = 0; rank < plans_.cluster().ranks(); ++rank) {
      int& alike = first[static_cast<size_t>(fold_->resource(rank))];
      if (alike < 0) {
        Busy busy = busy_of(rank);
        alike = known_rank >= 0 && busy == known ? known_rank : rank;
        if (alike == rank) {
          result_.ranks.push_back(time_of(busy));
          known = std::move(busy);
          known_rank = rank;
          continue;
        }
      }
      result_.ranks.push_back(result_.ranks[static_cast<size_t>(alike)]);
    }
  }

  // The compute queue's rows follow one another; what the other queues transfer meanwhile overlaps them.
  RankTime time_of(const Busy& busy) {
    const std::vector<int>& computing = busy.computing;
    RankTime sum;
    for (const int row : computing) {
      const auto [compute, communication] = spent(row, time(row).end);
      sum.compute += compute;
      sum.communication += communication;
    }
    double idle = result_.step_seconds - sum.compute - sum.communication;
    for (const auto& [begin, end] : busy.transfers) {
      auto row = std::ranges::upper_bound(computing, begin, {}, [&](int r) { return time(r).end; });
      double overlap = 0, doubled = 0;
      for (; row != computing.end() && time(*row).begin < end; ++row) {
        const auto before = spent(*row, begin), after = spent(*row, end);
        overlap += after.first - before.first;
        doubled += after.second - before.second;
      }
      sum.overlap += overlap;
      sum.communication += end - begin - doubled;
      idle -= end - begin - doubled - overlap;
    }
    sum.idle = idle;
    return sum;
  }

  static std::vector<std::pair<double, double>> united(std::vector<std::pair<double, double>> spans) {
    std::sort(spans.begin(), spans.end());
    std::vector<std::pair<double, double>> whole;
    for (const auto& span : spans) {
      if (whole.empty() || span.first > whole.back().second)
        whole.push_back(span);
      else
        whole.back().second = std::max(whole.back().second, span.second);
    }
    return whole;
  }

  const ir::Program& program_;
  const batch::StepPlan& plan_;
  const compiler::Plans& plans_;
  const cluster::Hardware& hardware_;
  Simulation result_;
  std::optional<Fold> fold_;
  std::vector<std::pair<int, int>> in_order_;  // rows of a queue, the later one first
  std::map<std::pair<const LaneSegment*, i64>, FoldedSegment> folded_segments_;  // rows of a class
  std::map<std::pair<const PlacedWork*, i64>, std::vector<Claim>> folded_;
  std::vector<std::vector<Span>> spans_;       // of rows that stand for their class
  std::vector<std::vector<std::pair<double, double>>> sums_;  // of a row: see spent
  compiler::QueueNumbers queues_;
  SharedResources shared_{0};
  std::deque<int> ready_;  // rows that miss nothing
  std::vector<RowState> state_;
  std::vector<std::vector<int>> after_row_;                       // rows that wait for its end
  std::map<std::pair<int, int>, std::vector<int>> after_unit_;     // row, unit
  std::set<std::tuple<int, int, int>> accumulating_;               // phase, lane, stage
  std::vector<int> row_of_activity_;
  std::vector<double> work_began_;                                // of a row's present stretches
  std::vector<Stretch> work_;                                     // of the row that goes on
  std::map<std::tuple<int, int, int, ir::Pass, i64>, LaneSegment> segments_;  // phase, lane, stage, pass, tokens
  // Strategy, group, stage, pass, tokens; places.
  std::map<std::tuple<const compiler::CompiledStrategy*, int, int, ir::Pass, i64, std::vector<int>>, TimedSegment> times_;
  std::map<std::tuple<const ir::StageCode*, ir::Pass, std::vector<int>>, SegmentTimer> timers_;  // places
  std::map<std::tuple<TaskKind, const std::vector<layout::Msg>*, std::vector<int>>, Work> transfers_;              // messages, places
  std::map<std::tuple<TaskKind, const std::vector<layout::Msg>*, const std::vector<int>*>, PlacedWork> placed_;    // messages, names
  std::deque<PlacedWork> others_;
  mutable std::map<const ir::StageCode*, double> zeroed_;
  mutable std::map<std::tuple<int, int, const std::vector<layout::Msg>*>, double> copied_;  // of a prepare's strategies and first round
};

}  // namespace

Simulation simulate(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans, const cluster::Hardware& hardware) {
  return Simulator(program, plan, plans, hardware).run();
}

}  // namespace switchyard::simulator
