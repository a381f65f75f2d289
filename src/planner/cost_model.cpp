#include "planner/cost_model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "base/errors.hpp"
#include "batch/planner.hpp"
#include "compiler/job_plans.hpp"
#include "compiler/replica_schedule.hpp"

namespace switchyard::planner {
namespace {

// Number of micro-batches in the first group of an interleaved schedule.
int group_size(int stages, int mbs) {
  const int groups = std::max(1, mbs / stages);
  return (mbs + groups - 1) / groups;
}

int cap_of(const Shape& shape) {
  return shape.activation_cap > 0 ? shape.activation_cap : shape.placement.pp * shape.placement.chunks;
}

// Largest number of forward passes of a stage, counted per chunk, before its first backward pass.
int forwards_ahead(const Shape& shape, int stage, int mbs) {
  const Placement& p = shape.placement;
  switch (shape.schedule) {
    case config::ScheduleKind::gpipe:
      return mbs * p.chunks;
    case config::ScheduleKind::zeropp:
      return std::min(mbs, shape.every) * p.chunks;
    case config::ScheduleKind::one_f_one_b:
      return std::min(mbs, p.pp - stage);
    case config::ScheduleKind::interleaved:
      return mbs <= p.pp
                 ? mbs * p.chunks
                 : std::min(mbs * p.chunks, 2 * (p.pp - 1 - stage) + (p.chunks - 1) * group_size(p.pp, mbs) + 1);
    case config::ScheduleKind::zero_bubble:
    case config::ScheduleKind::zb_v:
      return std::min(cap_of(shape), mbs * p.chunks);
  }
  throw InternalError("forwards_ahead: unknown schedule");
}

// Lower bound on the activations kept at a time with at least `mbs` micro-batches; 1F1B is assumed to have many.
int kept_at_least(const Shape& shape, int stage, int mbs) {
  const Placement& p = shape.placement;
  if (shape.schedule == config::ScheduleKind::one_f_one_b) return p.pp - stage;
  if (shape.schedule != config::ScheduleKind::interleaved) return forwards_ahead(shape, stage, mbs);
  return std::min(mbs * p.chunks, 2 * (p.pp - 1 - stage) + (p.chunks - 1) * p.pp + 1);
}

// Seconds in which ring ranks pass keys on.
double passing(const Spent& spent, const PackedSequence& micro_batch) {
  return spent.values * micro_batch.values + spent.gradients * micro_batch.gradients;
}

}  // namespace

int most_kept(const Shape& shape, int stage, int micro_batches) { return forwards_ahead(shape, stage, micro_batches); }

CostModel::CostModel(const UnitCosts& units, const Transfers& transfers, Workload workload)
    : units_(units),
      transfers_(transfers),
      sent_(codings_of(units.compression().pipeline, units.precision().compute, units.compression(), units.hardware())),
      speedup_(units.hardware().device.alone_speedup),
      workload_(std::move(workload)),
      packings_(units, workload_, speedup_ > 1),
      levels_(static_cast<int>(workload_.bounds.size())),
      tables_(units.table_bytes(workload_.bounds.back())),
      feeds_of_a_token_(3 * size_of(DType::i64) + size_of(units.precision().state) + units.table_bytes_of_a_token()) {
  total_.resize(static_cast<size_t>((levels_ + 1) * (levels_ + 1)));
  sums_.assign(total_.size(), std::vector<Sums>(workload_.steps.size()));
  for (size_t step = 0; step < workload_.steps.size(); ++step)
    for (const i64 length : workload_.steps[step]) {
      const int level = static_cast<int>(std::ranges::lower_bound(workload_.bounds, length) - workload_.bounds.begin());
      if (level == levels_)
        user_error("a document of {} tokens is longer than the longest bucket, {}.", length, workload_.bounds.back());
      for (int lo = 0; lo <= level; ++lo)
        for (int hi = level + 1; hi <= levels_; ++hi)
          for (Sums* sums : {&total_[slot({lo, hi})], &sums_[slot({lo, hi})][step]}) {
            sums->shortest = sums->documents == 0 ? length : std::min(sums->shortest, length);
            sums->longest = std::max(sums->longest, length);
            ++sums->documents;
            sums->tokens += length;
            sums->attention_pairs += attention_pairs_of(length);
          }
    }
}

const CostModel::Pipeline& CostModel::pipeline(const Placement& p) const {
  const auto [it, fresh] = pipelines_.try_emplace({p.pp, p.head_layers, p.chunks, p.path});
  Pipeline& made = it->second;
  if (!fresh) return made;
  const std::vector<int> layers = layers_of_positions(p, units_.model().layers);
  for (int at = 0; at < p.positions(); ++at) {
    made.positions.push_back({planner::kind_of(at, p.positions()), layers[static_cast<size_t>(at)]});
    made.all.add(made.positions.back().kind, made.positions.back().layers);
  }
  for (int stage = 0; stage < p.pp; ++stage) {
    StageRun run{.first = stage, .count = 1};
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      const Position& position = made.positions[static_cast<size_t>(schedule::position_of(p.path, p.pp, stage, chunk))];
      run.positions.push_back(position);
      run.all.add(position.kind, position.layers);
    }
    run.begin.add(run.positions.front().kind, run.positions.front().layers);
    run.end.add(run.positions.back().kind, run.positions.back().layers);
    if (!made.runs.empty() && made.runs.back().positions == run.positions)
      ++made.runs.back().count;
    else
      made.runs.push_back(std::move(run));
  }
  return made;
}

// Sums of the micro-batches' seconds, by kind of stage. Micro-batches on several ring ranks are not assigned to them
// yet, so their seconds are lower bounds.
CostModel::ByKind CostModel::sum_over(const Placement& p, std::span<const PackedSequence> micro_batches,
                                      config::Recompute recompute, Pass pass, i64 capacity, ByKind* most) const {
  ByKind sum{};
  const StageMesh mesh = p.code_mesh();
  for (const StageKind kind : kinds_of(p.pp)) {
    const auto k = static_cast<size_t>(kind);
    const TimeTable& times = kind == StageKind::middle ? units_.times_further(mesh, recompute, pass)
                                                       : units_.times(kind, mesh, recompute, pass);
    const Spent* least = p.ring() > 1 ? &units_.least_of_pass(kind, mesh, recompute, pass, capacity) : nullptr;
    Spent spent;
    i64 last = 0;  // most micro-batches have as many tokens as the previous one
    for (const PackedSequence& micro_batch : micro_batches) {
      if (micro_batch.T != last) spent = times.at(micro_batch.T);
      last = micro_batch.T;
      double seconds = spent.total(micro_batch.attention_pairs);
      if (least)
        seconds = packings_.ring_loads().least(p, micro_batch.longest, *least, units_.times_rise() ? seconds : 0);
      sum[k] += seconds;
      if (most) (*most)[k] = std::max((*most)[k], seconds);
    }
  }
  return sum;
}

std::vector<CostModel::BoundedStep>& CostModel::bounded_steps(const Placement& p, i64 capacity, Range range) const {
  const auto [it, fresh] = bounded_steps_.try_emplace(steps_key(p, p.tied(), capacity, range));
  if (!fresh) return it->second;
  for (const Replicas& timed : packings_.even(p, capacity, range)) {
    BoundedStep& step = it->second.emplace_back(BoundedStep{&timed});
    for (const Replica& replica : timed) {
      Load& load = step.loads.emplace_back(Load{replica.micro_batches});
      const auto forward = [&](std::span<const PackedSequence> some, ByKind* most = nullptr) {
        return sum_over(p, some, config::Recompute::gathers, Pass::F, capacity, most);
      };
      load.forward = forward(load.micro_batches, &load.most_forward);
      load.first_forward = forward(load.micro_batches.first(1));
    }
  }
  return it->second;
}

// A send counts as crossing hosts if it does in any pipeline.
const CostModel::Hops& CostModel::hops(const Placement& p) const {
  const auto [it, fresh] = hops_.try_emplace(placement_key(p));
  Hops& hops = it->second;
  const int devices = units_.hardware().devices_per_host;
  for (int at = 0; fresh && at + 1 < p.positions(); ++at) {
    const int from = p.stage_of(at), to = p.stage_of(at + 1);
    bool crosses = false;
    for (int replica = 0; replica < p.dp && !crosses; ++replica)
      for (int t = 0; t < p.stage_ranks() && !crosses; ++t)
        crosses = (first_rank(p, replica, from) + t) / devices != (first_rank(p, replica, to) + t) / devices;
    hops.to_next.push_back(from == to ? Hop::none : crosses ? Hop::across : Hop::inside);
    hops.inside.push_back(hops.inside.back() + (hops.to_next.back() == Hop::inside ? 1 : 0));
    hops.across.push_back(hops.across.back() + (hops.to_next.back() == Hop::across ? 1 : 0));
  }
  return hops;
}

// Seconds of sending each part t of a stage to part t of the next one, all at once. Pipelines that are side by side do
// so at about the same time, over the same ports.
double CostModel::send(const Placement& p, bool crosses, i64 T) const {
  const int senders = p.stage_ranks() * (p.inside == config::Inside::data ? p.dp : 1);
  const auto [it, fresh] = sends_.try_emplace(std::tuple(T, p.code_ranks(), senders, crosses), 0.0);
  if (!fresh) return it->second;
  const cluster::Hardware& hardware = units_.hardware();
  if (crosses && !hardware.inter_host) return it->second = 0;
  const cluster::LinkClass& link = crosses ? *hardware.inter_host : hardware.intra_host;
  const double bytes =
      static_cast<double>(T / p.code_ranks() * units_.model().hidden_size * size_of(units_.precision().compute));
  const double port = std::min(link.shared_by, senders) / link.bandwidth.count;  // seconds of a byte
  const auto seconds = [&](double sent) {
    return link.latency.count + std::max(port, 1 / link.pair_rate().count) * sent / link.curve.at(sent);
  };
  const std::optional<Coding>& coding = crosses ? sent_.across : sent_.inside;
  it->second = seconds(bytes);
  if (coding) it->second = std::min(it->second, seconds(bytes * coding->size) + bytes * coding->seconds);
  return it->second;
}

double CostModel::Hops::sum(int from, int to, const Sends& of_micro_batch) const {
  const size_t a = static_cast<size_t>(from), b = static_cast<size_t>(to);
  return (inside[b] - inside[a]) * of_micro_batch.inside + (across[b] - across[a]) * of_micro_batch.across;
}

double CostModel::once(const Shape& shape, const Parts& parts, Pass pass, const PackedSequence& micro_batch) const {
  const Spent spent = spent_on(shape, parts, pass, micro_batch);
  return spent.total(micro_batch.attention_pairs) + passing(spent, micro_batch);
}

Spent CostModel::spent_on(const Shape& shape, const Parts& parts, Pass pass, const PackedSequence& micro_batch) const {
  return units_.time(parts, timed_mesh(shape.placement, micro_batch), shape.recompute, pass, micro_batch.T);
}

StageTime CostModel::stage_time(const Shape& shape, const Position& position, const PackedSequence& micro_batch,
                                const OfBlock& block) const {
  const Parts parts = parts_of(position.kind, position.layers);
  const bool split = shape.splits_gradients(), joins = joins_gradients(shape);
  const auto of = [&](Pass pass) {
    return shape.placement.runs_transfer() ? with_transfers(shape, position, pass, block, micro_batch)
                                           : once(shape, parts, pass, micro_batch);
  };
  StageTime time{.forward = of(Pass::F),
                 .backward = of(split ? Pass::B : Pass::BW),
                 .weight = split ? of(Pass::W) : 0,
                 .joined = joins ? of(Pass::BW) : 0};
  if (speedup_ > 1) {
    const auto exchange = [&](Pass pass) {
      const Spent spent = spent_on(shape, parts, pass, micro_batch);
      return spent.communication + passing(spent, micro_batch);
    };
    time.forward_exchange = exchange(Pass::F);
    time.backward_exchange = exchange(split ? Pass::B : Pass::BW);
    time.weight_exchange = split ? exchange(Pass::W) : 0;
    time.joined_exchange = joins ? exchange(Pass::BW) : 0;
  }
  return time;
}

// What a unit needs is gathered beside the unit before it, the first one's beside the last unit of the run before; what
// it leaves is reduced beside whatever comes next. Both share the links with the run's collectives, and take a part of
// the device. Nothing hides what the first run needs at once, and what the last one leaves. What a block shares goes on
// beside all of its runs.
double CostModel::with_transfers(const Shape& shape, const Position& position, Pass pass, const OfBlock& block,
                                 const PackedSequence& micro_batch) const {
  const Transfers::OfRun& run = transfers_.of_run(shape.placement);
  const auto computing = [&](const Spent& spent) {
    return spent.compute + spent.per_pair * micro_batch.attention_pairs;
  };
  const StageKind kind = position.kind;
  const int layers = position.layers;
  const bool has_head = kind == StageKind::whole || kind == StageKind::last;
  Transfers::UnitSeconds gather, reduce, zero;
  if (pass == Pass::F || (pass != Pass::W && !block.one_copy)) gather = run.gather;
  if (pass == Pass::BW || pass == Pass::W) std::tie(reduce, zero) = std::tie(run.reduce, run.zero);
  // The last stage turns round at once, and keeps the head's copy.
  if (pass != Pass::F && shape.schedule == config::ScheduleKind::one_f_one_b) gather.head = 0;
  const Spent all = spent_on(shape, parts_of(kind, layers), pass, micro_batch);
  const double computed = computing(all) + zero.of(kind, layers) / block.runs,
               moved = (gather.of(kind, layers) + reduce.of(kind, layers)) / block.runs;
  double waited = 0, first = 0, last = 0;  // for what is gathered, and computing; what nothing hides
  if (!shape.blockwise()) {
    struct Unit {
      double compute = 0, gather = 0, reduce = 0;
    };
    const TimeTable& further = units_.times_further(timed_mesh(shape.placement, micro_batch), shape.recompute, pass);
    const double layer = computing(further.at(micro_batch.T)) + zero.layer,
                 ends = std::max(0.0, computed - layers * layer);
    std::vector<Unit> units(static_cast<size_t>(layers), {layer, gather.layer, reduce.layer});
    // The embedding takes little beside the head.
    if (kind == StageKind::whole || kind == StageKind::first)
      units.insert(units.begin(), {has_head ? 0 : ends, gather.embedding, reduce.embedding});
    if (has_head) units.push_back({ends, gather.head, reduce.head});
    if (pass != Pass::F) std::ranges::reverse(units);
    for (size_t i = 0; i < units.size(); ++i)
      waited += std::max(units[i].compute, units[(i + 1) % units.size()].gather);
    if (block.first && pass == Pass::F) first = units.front().gather;
    if (block.last) last = units.back().reduce;
  }
  return first + std::max({computed, waited, moved}) + run.device_share * std::min(computed, moved) + last +
         all.communication + passing(all, micro_batch);
}

// Whether the shape's schedule may join both kinds of gradients. Blocks that gather or reduce have runs of one pass.
bool CostModel::joins_gradients(const Shape& shape) const {
  return shape.splits_gradients() && !shape.placement.runs_transfer() &&
         units_.joins(shape.placement.code_mesh(), shape.recompute);
}

schedule::Schedule CostModel::schedule_of(const Shape& shape, const std::vector<PackedSequence>& micro_batches) const {
  const Placement& p = shape.placement;
  std::vector<compiler::StageCost> costs(static_cast<size_t>(p.positions()));
  const double mbs = static_cast<double>(micro_batches.size());
  double T = 0, attention_pairs = 0;
  if (shape.splits_gradients()) {
    for (const PackedSequence& micro_batch : micro_batches) {
      T += static_cast<double>(micro_batch.T) / mbs;
      attention_pairs += micro_batch.attention_pairs / mbs;
    }
    for (size_t at = 0; at < costs.size(); ++at) {
      const Position& position = pipeline(p).positions[at];
      costs[at] = parts_of(position.kind, position.layers).sum([&](StageKind kind) {
        return units_.stage_cost(kind, p.code_mesh(), shape.recompute);
      });
      if (!joins_gradients(shape)) costs[at].joined = {};
    }
  }
  return compiler::schedule_of(shape.schedule, p.chunks, shape.activation_cap, shape.every, costs,
                               static_cast<int>(micro_batches.size()), T, attention_pairs);
}

// Sums over all positions; compute includes the attention pairs.
Spent CostModel::spent_by(const Shape& shape, const std::vector<PackedSequence>& micro_batches,
                          std::initializer_list<Pass> passes) const {
  const Pipeline& pipeline = this->pipeline(shape.placement);
  Spent spent;
  for (const PackedSequence& micro_batch : micro_batches)
    for (const Pass pass : passes) {
      const Spent all = spent_on(shape, pipeline.all, pass, micro_batch);
      spent.compute += all.compute + all.per_pair * micro_batch.attention_pairs;
      spent.communication += all.communication + passing(all, micro_batch);
    }
  return spent;
}

Spent CostModel::spent_by(const Shape& shape, const std::vector<PackedSequence>& micro_batches) const {
  // Where gradients are joined, most of them are.
  return shape.splits_gradients() && !joins_gradients(shape)
             ? spent_by(shape, micro_batches, {Pass::F, Pass::B, Pass::W})
             : spent_by(shape, micro_batches, {Pass::F, Pass::BW});
}

// [position][micro-batch]
std::vector<std::vector<StageTime>> CostModel::stage_times(const Shape& shape,
                                                           const std::vector<PackedSequence>& micro_batches) const {
  const Placement& p = shape.placement;
  const Pipeline& pipeline = this->pipeline(p);
  const Hops& hops = this->hops(p);
  const auto one_copy = [&](size_t i) {
    return shape.blockwise() && std::cmp_greater_equal(i + static_cast<size_t>(p.pp), pipeline.positions.size());
  };
  std::vector<std::vector<StageTime>> at;
  for (size_t i = 0; i < pipeline.positions.size(); ++i) {
    if (i > 1 && pipeline.positions[i] == pipeline.positions[i - 1] && one_copy(i) == one_copy(i - 1)) {
      at.push_back(at.back());
    } else {
      at.emplace_back();
      for (size_t mb = 0; mb < micro_batches.size(); ++mb) {
        const int runs = shape.block_size(static_cast<int>(mb), static_cast<int>(micro_batches.size()));
        at.back().push_back(stage_time(shape, pipeline.positions[i], micro_batches[mb],
                                       {.runs = runs,
                                        .one_copy = one_copy(i),
                                        .first = i == 0 && mb == 0,
                                        .last = i == 0 && mb + 1 == micro_batches.size()}));
      }
    }
    if (i + 1 == pipeline.positions.size()) break;
    for (size_t mb = 0; mb < micro_batches.size(); ++mb)
      at.back()[mb].send =
          hops.to_next[i] == Hop::none ? 0 : send(p, hops.to_next[i] == Hop::across, micro_batches[mb].T);
  }
  return at;
}

double CostModel::replica_seconds(const Shape& shape, const std::vector<PackedSequence>& micro_batches,
                                  PhaseParts& spent) const {
  const Spent all = spent_by(shape, micro_batches);
  spent.compute += all.compute / shape.placement.pp;
  spent.communication += all.communication / shape.placement.pp;
  if (shape.placement.pp == 1) return all.compute + all.communication;  // nothing waits
  return pipeline_seconds(schedule_of(shape, micro_batches), stage_times(shape, micro_batches));
}

// While all devices of a host compute, each has its share of the host, and none is faster than the table states; see
// simulator/task_work.
std::vector<std::vector<simulator::Claim>> CostModel::host_claims(const Placement& p, int replica) const {
  const int devices = units_.hardware().devices_per_host;
  std::vector<std::vector<simulator::Claim>> claims(static_cast<size_t>(p.pp));
  for (int stage = 0; stage < p.pp; ++stage)
    for (int t = 0; t < p.stage_ranks(); ++t) {
      std::vector<simulator::Claim>& of = claims[static_cast<size_t>(stage)];
      const int host = (first_rank(p, replica, stage) + t) / devices;
      if (of.empty() || of.back().resource != host) of.push_back({host, 0});
      of.back().share += speedup_ / devices;
    }
  return claims;
}

// All pipelines run concurrently: the share of a host that some leave idle is available to the others.
PhaseParts CostModel::shared_parts(const Shape& shape, const Replicas& replicas) const {
  std::vector<SharedPipeline> pipelines;
  PhaseParts parts;
  for (const Replica& replica : replicas) {
    const SharedPipeline each{schedule_of(shape, replica.micro_batches), stage_times(shape, replica.micro_batches), {}};
    parts.communication += replica.count * spent_by(shape, replica.micro_batches).communication;
    for (int number = replica.first; number < replica.first + replica.count; ++number) {
      pipelines.push_back(each);
      pipelines.back().hosts = host_claims(shape.placement, number);
    }
  }
  if (pipelines.empty()) return parts;
  const SharedSeconds shared = shared_seconds(pipelines, units_.hardware().hosts, speedup_);
  const double stages = static_cast<double>(pipelines.size()) * shape.placement.pp;
  return {shared.seconds, shared.compute / stages, parts.communication / stages, 0};
}

// Pipelines that gather and reduce together are done with a micro-batch when the slowest is.
PhaseParts CostModel::parts_in_step(const Shape& shape, const Replicas& replicas, const Replicas& timed) const {
  PhaseParts parts;
  for (const Replica& replica : replicas) {
    const Spent spent = spent_by(shape, replica.micro_batches);
    parts.compute += spent.compute / shape.placement.pp;
    parts.communication += spent.communication / shape.placement.pp;
  }
  const double share = static_cast<double>(replicas.size()) / static_cast<double>(timed.size());
  for (const Replica& slowest : timed) {
    const std::vector<std::vector<StageTime>> at = stage_times(shape, slowest.micro_batches);
    const Spent spent = spent_by(shape, slowest.micro_batches);
    double busy = 0;  // sum over stages
    for (const std::vector<StageTime>& position : at)
      for (const StageTime& time : position) busy += time.forward + time.backward + time.weight;
    const double seconds =
        shape.placement.pp > 1 ? pipeline_seconds(schedule_of(shape, slowest.micro_batches), at) : busy;
    parts.seconds = std::max(parts.seconds, seconds);
    parts.communication +=
        share * std::max(0.0, busy - spent.compute - spent.communication) / shape.placement.pp;  // beside computing
  }
  return parts;
}

double CostModel::seconds_up_to(double most, ReplicaTimes& known, const Shape& shape, i64 capacity, Range range) const {
  if (speedup_ > 1) return seconds(shape, capacity, range);
  constexpr int kLooked = 3;  // pipelines that wait for others, of a step
  const Placement& p = shape.placement;
  std::vector<Packings::Apart>& steps = packings_.apart(p, capacity, range);
  const Spent& least =
      units_.least(StageKind::middle, p.code_mesh(), shape.recompute, capacity, shape.splits_gradients());
  known.resize(steps.size());
  double sum = 0;
  const double share = 1 / static_cast<double>(steps.size());
  for (size_t step = 0; step < steps.size(); ++step) {
    const std::vector<Packings::Apart::Documents>& pipelines = steps[step].unlike;
    known[step].resize(pipelines.size(), -1);
    std::vector<size_t> by_work(pipelines.size());
    std::iota(by_work.begin(), by_work.end(), size_t{0});
    std::ranges::stable_sort(by_work, std::greater<>(), [&](size_t number) {
      return least.compute * pipelines[number].tokens + least.per_pair * pipelines[number].attention_pairs;
    });
    double slowest = 0;
    int looked = 0;
    for (const size_t number : by_work) {
      double& seconds = known[step][number];
      if (seconds < 0) {
        const std::vector<PackedSequence>& micro_batches =
            packings_.micro_batches(steps[step], number, step, p, capacity, range);
        const double bound = std::max(slowest, replica_bound(shape, micro_batches));
        if (sum + share * bound > most) return sum + share * bound;
        if (p.runs_transfer()) {
          slowest = bound;
          if (++looked == kLooked) break;
          continue;
        }
        PhaseParts parts;
        seconds = replica_seconds(shape, micro_batches, parts);
      }
      slowest = std::max(slowest, seconds);
      if (sum + share * slowest > most) return sum + share * slowest;
    }
    sum += share * slowest;
  }
  if (!p.runs_transfer()) return sum;
  sum = 0;
  for (const Replicas& timed : packings_.assigned(p, p.tied(), capacity, range)) {
    double slowest = 0;
    for (const Replica& replica : timed) slowest = std::max(slowest, replica_bound(shape, replica.micro_batches));
    sum += share * slowest;
  }
  return sum > most ? sum : seconds(shape, capacity, range);
}

PhaseParts CostModel::parts(const Shape& shape, i64 capacity, Range range) const {
  PhaseParts mean;
  const double share = 1 / static_cast<double>(workload_.steps.size());
  const std::vector<Replicas>&apart = packings_.assigned(shape.placement, 1, capacity, range),
        &timed = packings_.assigned(shape.placement, shape.placement.tied(), capacity, range);
  for (size_t i = 0; i < apart.size(); ++i) {
    const Replicas& replicas = apart[i];
    PhaseParts step;
    double of_replica = share;
    if (speedup_ > 1 && !shape.placement.runs_transfer()) {
      step = shared_parts(shape, replicas);
    } else {
      if (shape.placement.runs_transfer())
        step = parts_in_step(shape, replicas, timed[i]);
      else
        for (const Replica& replica : replicas)
          step.seconds = std::max(step.seconds, replica_seconds(shape, replica.micro_batches, step));
      of_replica = replicas.empty() ? 0 : share / static_cast<double>(replicas.size());
    }
    mean.seconds += share * step.seconds;
    mean.compute += of_replica * step.compute;
    mean.communication += of_replica * step.communication;
  }
  mean.idle = std::max(0.0, mean.seconds - mean.compute - mean.communication);  // not -0 by rounding
  return mean;
}

MemoryNeed CostModel::need(const Shape& shape, i64 capacity, Range range) const {
  if (shape.schedule == config::ScheduleKind::one_f_one_b) return least_need(shape, capacity, range);
  const auto [least, most] = packings_.micro_batches(shape.placement, capacity, range);
  MemoryNeed highest;
  // In interleaved schedules fewer micro-batches may keep more activations at a time.
  const bool any = shape.schedule == config::ScheduleKind::interleaved;
  for (int mbs = any ? std::min(least, most) : most; mbs <= most; ++mbs)
    if (const MemoryNeed need = need_of(shape, capacity, range, mbs, false); need.total() > highest.total())
      highest = need;
  return highest;
}

MemoryNeed CostModel::least_need(const Shape& shape, i64 capacity, Range range) const {
  i64 tokens = 1;
  for (const Sums& sums : sums_[slot(range)]) tokens = std::max(tokens, sums.tokens);
  const i64 micro_batches = shape.placement.pipelines() * capacity;
  return need_of(shape, capacity, range, static_cast<int>((tokens + micro_batches - 1) / micro_batches), true);
}

MemoryNeed CostModel::need_of_one(const Shape& shape, i64 capacity, Range range) const {
  return need_of(shape, capacity, range, 1, true);
}

// Whether home's shares are those that the placement's ranks keep between runs: they are then views of home.
bool CostModel::held_by_home(const Placement& placement, Range range) const {
  return range.hi == levels_ && placement.cuts(3) == placement.copies();
}

MemoryNeed CostModel::need_of(const Shape& shape, i64 capacity, Range range, int micro_batches, bool least) const {
  const Pipeline& pipeline = this->pipeline(shape.placement);
  const CodeMemory& code = code_memory(shape, capacity, longest(range));
  const bool by_home = held_by_home(shape.placement, range);
  const Precision precision = units_.precision();
  MemoryNeed highest;
  for (const StageRun& run : pipeline.runs) {
    i64 stash = 0, peak = 0, of_a_run = 0;  // each for one micro-batch
    std::array<i64, 2> chunks{};            // elements of the largest ones
    for (const Position& position : run.positions) {
      const Kept kept = deepened(code.kept[static_cast<size_t>(position.kind)],
                                 code.kept[static_cast<size_t>(StageKind::middle)], position.layers);
      stash = std::max(stash, kept.most());
      peak = std::max({peak, kept.forward_peak, kept.backward_peak});
      // Two units lie beside each other: a layer, and another one or what comes with it.
      of_a_run = std::max(
          of_a_run, code.layer + std::max(code.layer, code.elements[static_cast<size_t>(position.kind)] - code.layer));
      const i64 chunk = parts_of(position.kind, position.layers).weigh(code.elements);
      if (chunk > chunks.front())
        chunks = {chunk, chunks.front()};
      else
        chunks.back() = std::max(chunks.back(), chunk);
    }
    // Runs of a block keep all units of a chunk, and those of the next chunk come beside them.
    if (shape.every > 1) of_a_run = chunks.front() + (run.positions.size() > 1 ? chunks.back() : chunks.front());
    const i64 elements = run.all.weigh(code.elements);
    const auto held = [&](int cut) {
      const int cuts = shape.placement.cuts(cut);
      if (cuts == 1) return elements;
      return shape.every > 1 ? elements / cuts + of_a_run : std::min(elements, elements / cuts + of_a_run);
    };
    const i64 in_flight =
        least ? kept_at_least(shape, run.first, micro_batches) : most_kept(shape, run.first, micro_batches);
    const i64 feeds = RingLoads::size(shape.placement, capacity, 0).tokens * feeds_of_a_token_;
    const i64 of_home = by_home ? elements / shape.placement.cuts(3) : 0;
    const MemoryNeed need{(held(3) - of_home) * size_of(precision.compute), held(2) * size_of(precision.state),
                          tables_ + in_flight * feeds + (in_flight - 1) * stash + peak};
    if (need.total() > highest.total()) highest = need;
  }
  return highest;
}

const CostModel::CodeMemory& CostModel::code_memory(const Shape& shape, i64 capacity, i64 longest) const {
  const StageMesh mesh = shape.placement.code_mesh();
  ir::CallSize size = RingLoads::size(shape.placement, capacity, longest);
  if (units_.how().on_devices) size.sequences = 1 + (longest > 0 ? capacity / longest : 0);
  size.element_kernels = units_.how().element_kernels;
  const bool split = shape.splits_gradients(), alone = shape.placement.pp == 1;
  const auto [it, fresh] =
      memory_.try_emplace({mesh_key(shape.placement.mesh), shape.recompute, split, alone, capacity, longest});
  CodeMemory& memory = it->second;
  if (!fresh) return memory;
  memory.layer = units_.units(mesh).layer;
  for (int k = 0; k < kStageKinds; ++k) {
    const StageKind kind = static_cast<StageKind>(k);
    if (kind != StageKind::middle && alone != (kind == StageKind::whole)) continue;
    memory.kept[static_cast<size_t>(k)] = units_.kept(kind, 1, mesh, shape.recompute, split, size);
    memory.elements[static_cast<size_t>(k)] = units_.parameters(kind, mesh);
  }
  return memory;
}

i64 CostModel::home_bytes(const Home& home) const {
  const auto [it, fresh] =
      home_bytes_.try_emplace(std::tuple_cat(placement_key(home.placement), std::tuple(home.shares())));
  if (!fresh) return it->second;
  const Precision precision = units_.precision();
  const i64 element =
      4 * size_of(precision.state) + (precision.compute == precision.state ? 0 : size_of(precision.compute));
  const Placement& p = home.placement;
  for (const StageRun& run : pipeline(p).runs)
    it->second = std::max(it->second, run.all.sum([&](StageKind kind) {
      return units_.parameters(kind, p.code_mesh());
    }) / home.shares() * element);
  return it->second;
}

// The stage with the most has at least the mean.
i64 CostModel::least_weights(const Placement& p, Range range) const {
  const Precision precision = units_.precision();
  const Parts whole = parts_of(StageKind::whole, static_cast<int>(units_.model().layers));
  const i64 elements = whole.sum([&](StageKind kind) { return units_.parameters(kind, {}); });
  const i64 used = elements * p.mesh.copies() / (p.stage_ranks() * p.pp);
  const auto held = [&](int cut) { return used / p.cuts(cut); };
  return (held_by_home(p, range) ? 0 : held(3)) * size_of(precision.compute) + held(2) * size_of(precision.state);
}

i64 CostModel::least_home_bytes() const {
  const Precision precision = units_.precision();
  const i64 element =
      4 * size_of(precision.state) + (precision.compute == precision.state ? 0 : size_of(precision.compute));
  const Parts whole = parts_of(StageKind::whole, static_cast<int>(units_.model().layers));
  return whole.sum([&](StageKind kind) { return units_.parameters(kind, {}); }) / units_.hardware().ranks() * element;
}

}  // namespace switchyard::planner
