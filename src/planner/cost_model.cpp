#include "planner/cost_model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/errors.hpp"
#include "batch/planner.hpp"
#include "compiler/job_plans.hpp"

namespace switchyard::planner {
namespace {

// Tokens of rows that the rough bound takes as the largest there are.
i64 roughly_most(const std::vector<i64>& bounds) { return 4 * bounds.back(); }

double pairs_of(i64 length) { return 0.5 * static_cast<double>(length) * (static_cast<double>(length) + 1); }

// Without other stages nothing waits.
double alone(const std::vector<StageTime>& micro_batches) {
  double sum = 0;
  for (const StageTime& time : micro_batches) sum += time.forward + time.backward;
  return sum;
}

schedule::Kind kind_of(config::ScheduleKind kind) {
  return kind == config::ScheduleKind::gpipe ? schedule::Kind::gpipe : schedule::Kind::one_f_one_b;
}

}  // namespace

CostModel::CostModel(const UnitCosts& units, Workload workload)
    : units_(units), workload_(std::move(workload)), levels_(static_cast<int>(workload_.bounds.size())) {
  total_.resize(static_cast<size_t>((levels_ + 1) * (levels_ + 1)));
  sums_.assign(total_.size(), std::vector<Sums>(workload_.steps.size()));
  for (size_t step = 0; step < workload_.steps.size(); ++step)
    for (const i64 length : workload_.steps[step]) {
      const int level = static_cast<int>(std::ranges::lower_bound(workload_.bounds, length) - workload_.bounds.begin());
      if (level == levels_) user_error("a document of {} tokens is longer than the longest bucket, {}.", length, workload_.bounds.back());
      for (int lo = 0; lo <= level; ++lo)
        for (int hi = level + 1; hi <= levels_; ++hi)
          for (Sums* sums : {&total_[slot({lo, hi})], &sums_[slot({lo, hi})][step]}) {
            sums->shortest = sums->documents == 0 ? length : std::min(sums->shortest, length);
            sums->longest = std::max(sums->longest, length);
            ++sums->documents;
            sums->tokens += length;
            sums->pairs += pairs_of(length);
          }
    }
}

// The slowest pipeline works at least the mean of all, in the stage with most layers.
double CostModel::rough_bound(const Placement& placement, Range range) const {
  const auto [it, fresh] = rough_.try_emplace(placement.tp);
  if (fresh) it->second = units_.least(StageKind::middle, 1, placement.tp, config::Recompute::none, roughly_most(workload_.bounds));
  const Sums& sums = total_[slot(range)];
  const int layers = static_cast<int>((units_.model().layers + placement.pp - 1) / placement.pp);
  const double work = it->second.compute * static_cast<double>(sums.tokens) + it->second.per_pair * sums.pairs;
  return layers * work / placement.dp / static_cast<double>(workload_.steps.size());
}

const std::vector<CostModel::StageRun>& CostModel::stages(const Placement& p) const {
  const auto [it, fresh] = stages_.try_emplace({p.pp, p.head_layers});
  if (!fresh) return it->second;
  const std::vector<int> layers = layers_of_stages(p, units_.model().layers);
  for (int s = 0; s < p.pp; ++s) {
    const StageKind kind = planner::kind_of(s, p.pp);
    const int count = layers[static_cast<size_t>(s)];
    if (it->second.empty() || it->second.back().kind != kind || it->second.back().layers != count) it->second.push_back({s, 0, count, kind});
    ++it->second.back().count;
  }
  return it->second;
}

double CostModel::bound(const Shape& shape, i64 capacity, Range range, bool layers_alone) const {
  double sum = 0;
  for (const Sums& sums : sums_[slot(range)])
    if (sums.documents > 0) sum += step_bound(shape, capacity, sums, layers_alone);
  return sum / static_cast<double>(workload_.steps.size());
}

// Of all that a stage does: it begins when a first micro-batch has passed the stages before, and ends before a last one goes back there.
//  mean      the pipeline with most work has at least the mean of all
//  filled    where all rows are within T, tokens take at least what those of T do; where one is longer, it alone takes what T tokens do
//  crowded   a pipeline has at least ceil(documents / pipelines) of them
//  passed    the longest document passes all stages
//  layers_alone  a stage with embedding or head takes no less than one without
double CostModel::step_bound(const Shape& shape, i64 capacity, const Sums& sums, bool layers_alone) const {
  const Placement& p = shape.placement;
  const double tokens = static_cast<double>(sums.tokens) / p.dp, pairs = sums.pairs / p.dp, longest = static_cast<double>(sums.longest);
  const double crowd = static_cast<double>((sums.documents + p.dp - 1) / p.dp), shortest = static_cast<double>(sums.shortest);
  const i64 row = std::min(capacity, static_cast<i64>(std::bit_ceil(static_cast<std::uint64_t>(std::ceil(tokens)))));
  double bound = 0, passed = 0, before = 0;
  for (const StageRun& run : stages(p)) {
    const StageKind kind = layers_alone ? StageKind::middle : run.kind;
    const Spent least = units_.least(kind, run.layers, p.tp, shape.recompute, capacity);
    const Spent filled = units_.least(kind, run.layers, p.tp, shape.recompute, row);
    double through = 0;
    for (const bool forward : {true, false})
      through += units_.time(kind, run.layers, p.tp, shape.recompute, forward, sums.shortest).total(0);
    passed += run.count * (least.compute * longest + least.per_pair * pairs_of(sums.longest));
    const double work = std::max({least.compute * tokens + least.per_pair * pairs, filled.compute * std::min(tokens, static_cast<double>(row)),
                                  crowd * (least.compute * shortest + least.per_pair * pairs_of(sums.shortest))});
    bound = std::max(bound, before + (p.pp > 1 ? (run.count - 1) * through : 0) + work);
    before += run.count * through;
  }
  return std::max(bound, passed);
}

CostModel::Lanes CostModel::packed(const std::vector<i64>& lengths, const Placement& placement, i64 capacity, Range range) const {
  const i64 above = range.lo == 0 ? 0 : workload_.bounds[static_cast<size_t>(range.lo - 1)];
  std::vector<i64> chosen;
  for (const i64 length : lengths)
    if (length > above && length <= longest(range)) chosen.push_back(length);
  if (chosen.empty()) return {};
  batch::BucketSpec spec{.max_length = longest(range), .strategy = 0, .lanes = placement.dp, .micro_batch_tokens = capacity};
  spec.multiple = placement.tp;
  spec.min_micro_batches = placement.pp;
  const batch::StepPlan plan = batch::plan_batch(0, chosen, std::vector{spec}, compiler::work_model(units_.model()));
  Lanes lanes;
  for (const std::vector<batch::MicroBatch>& lane : plan.phases.front().lane) {
    std::vector<Row>& rows = lanes.emplace_back();
    for (const batch::MicroBatch& row : lane) rows.push_back({row.T, batch::causal_pairs(row)});
  }
  // Equal lanes take equally long.
  std::vector<std::vector<Row>> unlike;
  for (std::vector<Row>& lane : lanes)
    if (!lane.empty() && (unlike.empty() || unlike.back() != lane)) unlike.push_back(std::move(lane));
  return unlike;
}

const std::vector<CostModel::Lanes>& CostModel::lanes(const Placement& p, i64 capacity, Range range) const {
  const auto [it, fresh] = lanes_.try_emplace({p.dp, p.tp, p.pp, capacity, range});
  if (fresh)
    for (const std::vector<i64>& lengths : workload_.steps) it->second.push_back(packed(lengths, p, capacity, range));
  return it->second;
}

// Whether any pipeline's sends from each stage to the next cross hosts.
const std::vector<bool>& CostModel::crossings(const Placement& p) const {
  const auto [it, fresh] = crossings_.try_emplace(p);
  const int devices = units_.hardware().devices_per_host;
  for (int stage = 0; fresh && stage + 1 < p.pp; ++stage) {
    bool any = false;
    for (int lane = 0; lane < p.dp && !any; ++lane)
      for (int t = 0; t < p.tp && !any; ++t)
        any = (first_rank(p, lane, stage) + t) / devices != (first_rank(p, lane, stage + 1) + t) / devices;
    it->second.push_back(any);
  }
  return it->second;
}

// Part t of a stage to part t of the next one, all at once.
double CostModel::send(int tp, bool crosses, i64 T) const {
  const cluster::Hardware& hardware = units_.hardware();
  if (crosses && !hardware.inter_host) return 0;
  const cluster::LinkClass& link = crosses ? *hardware.inter_host : hardware.intra_host;
  const double bytes = static_cast<double>(T / tp * units_.model().hidden_size * size_of(units_.precision().compute));
  return link.latency.count + std::min(link.shared_by, tp) * bytes / (link.bandwidth.count * link.curve.at(bytes));
}

// Of each run; they stay where they are.
std::vector<CostModel::RunTimes*> CostModel::run_times(const Shape& shape) const {
  std::vector<RunTimes*> times;
  for (const StageRun& run : stages(shape.placement)) times.push_back(&run_times_[{run.kind, run.layers, shape.placement.tp, shape.recompute}]);
  return times;
}

const CostModel::RunTime& CostModel::run_time(const Shape& shape, const StageRun& run, i64 T, RunTimes& known) const {
  const auto [it, fresh] = known.try_emplace(T);
  if (fresh) {
    it->second.forward = units_.time(run.kind, run.layers, shape.placement.tp, shape.recompute, true, T);
    it->second.backward = units_.time(run.kind, run.layers, shape.placement.tp, shape.recompute, false, T);
    for (const bool crosses : {false, true}) it->second.send[crosses] = send(shape.placement.tp, crosses, T);
  }
  return it->second;
}

// Every schedule begins with the first row and ends with the last one's backward pass: a stage works on all rows between the first one's
// way to it and the last one's way back.
double CostModel::lane_bound(const Shape& shape, const std::vector<Row>& rows, const std::vector<RunTimes*>& known) const {
  const std::vector<StageRun>& runs = stages(shape.placement);
  const std::vector<bool>& crossing = crossings(shape.placement);
  double bound = 0, ways = 0;
  for (size_t r = 0; r < runs.size(); ++r) {
    const StageRun& run = runs[r];
    double work = 0;
    for (const Row& row : rows) {
      const RunTime& time = run_time(shape, run, row.T, *known[r]);
      work += time.forward.total(row.pairs) + time.backward.total(row.pairs);
    }
    const RunTime &first = run_time(shape, run, rows.front().T, *known[r]), &last = run_time(shape, run, rows.back().T, *known[r]);
    for (int s = run.first; s < run.first + run.count; ++s) {
      bound = std::max(bound, ways + work);
      if (s + 1 == shape.placement.pp) break;
      const bool crosses = crossing[static_cast<size_t>(s)];
      ways += first.forward.total(rows.front().pairs) + first.send[crosses] + last.backward.total(rows.back().pairs) + last.send[crosses];
    }
  }
  return bound;
}

double CostModel::rows_bound(const Shape& shape, i64 capacity, Range range) const {
  const std::vector<RunTimes*> known = run_times(shape);
  double sum = 0;
  for (const Lanes& lanes : this->lanes(shape.placement, capacity, range)) {
    double slowest = 0;
    for (const std::vector<Row>& rows : lanes) slowest = std::max(slowest, lane_bound(shape, rows, known));
    sum += slowest;
  }
  return sum / static_cast<double>(workload_.steps.size());
}

double CostModel::lane_seconds(const Shape& shape, const std::vector<Row>& rows, const std::vector<RunTimes*>& known, PhaseParts& spent) const {
  const Placement& p = shape.placement;
  const std::vector<StageRun>& runs = stages(p);
  const std::vector<bool>& crossing = crossings(p);
  std::vector<std::vector<StageTime>> at;
  for (size_t r = 0; r < runs.size(); ++r) {
    const StageRun& run = runs[r];
    std::vector<StageTime> inside, across;
    for (const Row& row : rows) {
      const RunTime& time = run_time(shape, run, row.T, *known[r]);
      const double forward = time.forward.total(row.pairs), backward = time.backward.total(row.pairs);
      inside.push_back({forward, backward, time.send[0]});
      across.push_back({forward, backward, time.send[1]});
      for (const Spent* part : {&time.forward, &time.backward}) {
        spent.compute += (part->compute + part->per_pair * row.pairs) * run.count / p.pp;
        spent.communication += part->communication * run.count / p.pp;
      }
    }
    for (int s = run.first; s < run.first + run.count; ++s) at.push_back(s + 1 < p.pp && crossing[static_cast<size_t>(s)] ? across : inside);
  }
  if (p.pp == 1) return alone(at.front());
  return pipeline_seconds(schedule::schedule(kind_of(shape.schedule), p.pp, static_cast<int>(rows.size())), at);
}

PhaseParts CostModel::parts(const Shape& shape, i64 capacity, Range range) const {
  const std::vector<RunTimes*> known = run_times(shape);
  PhaseParts mean;
  const double share = 1 / static_cast<double>(workload_.steps.size());
  for (const Lanes& lanes : this->lanes(shape.placement, capacity, range)) {
    PhaseParts step;
    for (const std::vector<Row>& rows : lanes) step.seconds = std::max(step.seconds, lane_seconds(shape, rows, known, step));
    mean.seconds += share * step.seconds;
    const double of_lane = lanes.empty() ? 0 : share / static_cast<double>(lanes.size());
    mean.compute += of_lane * step.compute;
    mean.communication += of_lane * step.communication;
  }
  mean.idle = std::max(0.0, mean.seconds - mean.compute - mean.communication);  // not -0 by rounding
  return mean;
}

MemoryNeed CostModel::need(const Shape& shape, i64 capacity, Range range) const {
  if (shape.schedule != config::ScheduleKind::gpipe) return least_need(shape, capacity, range);
  size_t most = 1;
  for (const Lanes& step : lanes(shape.placement, capacity, range))
    for (const std::vector<Row>& rows : step) most = std::max(most, rows.size());
  return need_of(shape, capacity, range, static_cast<i64>(most));
}

MemoryNeed CostModel::least_need(const Shape& shape, i64 capacity, Range range) const {
  i64 tokens = 1;
  for (const Sums& sums : sums_[slot(range)]) tokens = std::max(tokens, sums.tokens);
  const i64 rows = shape.placement.dp * capacity;
  return need_of(shape, capacity, range, (tokens + rows - 1) / rows);
}

MemoryNeed CostModel::need_of(const Shape& shape, i64 capacity, Range range, i64 micro_batches) const {
  const Placement& p = shape.placement;
  const Precision precision = units_.precision();
  MemoryNeed fullest;
  for (const StageRun& run : stages(p)) {
    const Kept kept = units_.kept(run.kind, run.layers, p.tp, shape.recompute, capacity, longest(range));
    const i64 elements = units_.parameters(run.kind, run.layers, p.tp);
    const i64 in_flight = shape.schedule == config::ScheduleKind::gpipe ? micro_batches : p.pp - run.first;
    const i64 feeds = capacity * (3 * size_of(DType::i64) + size_of(precision.state));
    const i64 activations = in_flight * feeds + (in_flight - 1) * kept.stash + std::max(kept.forward_peak, kept.backward_peak);
    const MemoryNeed need{elements * size_of(precision.compute), elements * size_of(precision.state), activations};
    if (need.total() > fullest.total()) fullest = need;
  }
  return fullest;
}

i64 CostModel::home_bytes(const Placement& home) const {
  const auto [it, fresh] = home_bytes_.try_emplace(home);
  if (!fresh) return it->second;
  const Precision precision = units_.precision();
  const i64 element = 4 * size_of(precision.state) + (precision.compute == precision.state ? 0 : size_of(precision.compute));
  for (const StageRun& run : stages(home)) it->second = std::max(it->second, units_.parameters(run.kind, run.layers, home.tp) / home.dp * element);
  return it->second;
}

i64 CostModel::least_home_bytes() const {
  const Precision precision = units_.precision();
  const i64 element = 4 * size_of(precision.state) + (precision.compute == precision.state ? 0 : size_of(precision.compute));
  return units_.parameters(StageKind::whole, static_cast<int>(units_.model().layers), 1) / units_.hardware().ranks() * element;
}

}  // namespace switchyard::planner
