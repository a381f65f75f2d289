// Lower bounds on the time of a phase and of its last backward pass, from sums over its documents and from its
// micro-batches.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>

#include "planner/cost_model.hpp"

namespace switchyard::planner {
namespace {

// The largest micro-batch, in tokens, that the rough bound assumes.
i64 roughly_most(const std::vector<i64>& bounds) { return 4 * bounds.back(); }

// The shorter of both kinds of gradients at once and one after the other, summed over micro-batches by kind of stage.
template <class ByKind, class Of>
ByKind sum_of_shorter(size_t micro_batches, const Of& of) {
  ByKind sum{};
  for (size_t mb = 0; mb < micro_batches; ++mb) {
    const ByKind both = of(mb, Pass::BW), inputs = of(mb, Pass::B), weights = of(mb, Pass::W);
    for (size_t k = 0; k < sum.size(); ++k) sum[k] += std::min(both[k], inputs[k] + weights[k]);
  }
  return sum;
}

}  // namespace

// No device is faster than one that is alone on its host, so bounds at the usual rates are divided by that speedup.

// The slowest pipeline's work is at least the mean of all, in the stage with most layers.
double CostModel::rough_bound(const Placement& placement, Range range) const {
  const bool by_ranks = units_.shares_rise();
  const StageMesh mesh = by_ranks ? StageMesh{} : placement.code_mesh();
  const auto [it, fresh] = rough_.try_emplace(mesh);
  if (fresh) {
    const auto least = [&](bool split) {
      return units_.least(StageKind::middle, mesh, least_recompute(mesh), roughly_most(workload_.bounds), split);
    };
    it->second = least(false);
    // Other code hides other communication; a single rank has none.
    if (!by_ranks) it->second.compute = std::min(it->second.compute, least(true).compute);
  }
  const Sums& sums = total_[slot(range)];
  const int layers = static_cast<int>((units_.model().layers + placement.pp - 1) / placement.pp);
  const double work =
      it->second.compute * static_cast<double>(sums.tokens) + it->second.per_pair * sums.attention_pairs;
  return layers * work /
         (by_ranks ? placement.stage_ranks() * placement.dp : placement.ring() * placement.pipelines()) /
         static_cast<double>(workload_.steps.size()) / speedup_;
}

// A stage begins when a micro-batch has passed a layer of each stage before it, or more, and unless gradients are split
// ends before a gradient goes back there: the last stage waits for all others, a stage in the mean for half of them.
double CostModel::layers_bound(const Shape& shape, i64 capacity, Range range, bool with_transfers) const {
  const Placement& p = shape.placement;
  const config::Recompute recompute = shape.recompute;
  const bool split = shape.splits_gradients();
  const int layers = static_cast<int>(units_.model().layers), most = (layers + p.pp - 1) / p.pp;
  const StageMesh mesh = p.code_mesh();
  const Spent &least = units_.least(StageKind::middle, mesh, recompute, capacity, split),
              &through = units_.least(StageKind::middle, mesh, recompute, capacity, split, true);
  const Transfers::OfRun run = with_transfers ? transfers_.least_of_run(p) : Transfers::OfRun{};
  const double share = std::min(1.0, run.device_share);
  double sum = 0;
  for (const Sums& sums : sums_[slot(range)]) {
    if (sums.documents == 0) continue;
    const i64 micro_batch = filled_micro_batch(sums, p.pipelines() * p.ring(), capacity);
    const double of_layer = work(least, units_.least(StageKind::middle, mesh, recompute, micro_batch, split),
                                 micro_batch, capacity, sums, p);
    const PackedSequence shortest{p.ring() > 1 ? 1 : sums.shortest};
    const auto pass = [&](Pass pass) {
      return units_.time(StageKind::middle, mesh, recompute, pass, shortest.T).total(0);
    };
    const double way = p.pp == 1 || !units_.times_rise() ? 0 : pass(Pass::F) + (split ? 0 : pass(Pass::BW));
    // Beside runs goes what they gather and reduce, of as many micro-batches as the documents fill at least.
    const i64 filled = p.pipelines() * capacity;
    const double blocks = shape.blocks(static_cast<int>((sums.tokens + filled - 1) / filled)),
                 beside = blocks * ((shape.blockwise() ? 1 : 2) * run.gather.layer + run.reduce.layer);
    const double with_both = std::max(of_layer + share * beside, beside + share * of_layer);
    sum += std::max({most * with_both, 0.5 * (p.pp - 1) * way + of_layer * layers / p.pp,
                     layers * alone(through, sums.longest, p)});
  }
  return sum / static_cast<double>(workload_.steps.size()) / speedup_;
}

i64 CostModel::filled_micro_batch(const Sums& sums, int ring_ranks, i64 capacity) const {
  const double tokens = static_cast<double>(sums.tokens) / ring_ranks;
  return std::min(capacity, static_cast<i64>(std::bit_ceil(static_cast<std::uint64_t>(std::ceil(tokens)))));
}

double CostModel::last_backward(const Placement& p, Range range) const {
  const auto [it, fresh] = last_backward_.try_emplace(steps_key(p, 1, 0, range), 0.0);
  if (!fresh) return it->second;
  for (const Sums& sums : sums_[slot(range)]) {
    const double capacity = static_cast<double>(longest(range)) * p.pipelines(),
                 tokens = static_cast<double>(sums.tokens),
                 shares = std::max(1.0, std::ceil(tokens / capacity)) * p.pipelines() * p.ring();
    const Spent spent = units_.time(StageKind::middle, p.code_mesh(), least_recompute(p.mesh), Pass::BW,
                                    std::max<i64>(1, static_cast<i64>(tokens / shares)));
    it->second += spent.total(sums.attention_pairs / shares);
  }
  const auto steps = static_cast<double>(workload_.steps.size());
  return it->second *= static_cast<double>(units_.model().layers) / p.pp / steps / speedup_;
}

// Lower bound on the work of the pipeline with most work, at the lowest rates of micro-batches of the capacity and of
// `micro_batch` tokens; the maximum of three bounds:
//  mean      it has at least the mean of all pipelines
//  filled    if all micro-batches are within T, tokens take at least as long as in one of T; a longer one alone takes
//            at least as long as T tokens
//  crowded   a pipeline has at least ceil(documents / pipelines) documents, or, where ring ranks may share them, at
//            least ceil(full micro-batches / pipelines) micro-batches
// Ring ranks count as pipelines, of which the slowest decides.
double CostModel::work(const Spent& least, const Spent& filled, i64 micro_batch, i64 capacity, const Sums& sums,
                       const Placement& p) const {
  const int pipelines = p.pipelines(), ring_ranks = pipelines * p.ring();
  const double tokens = static_cast<double>(sums.tokens) / ring_ranks,
               attention_pairs = sums.attention_pairs / ring_ranks;
  const i64 apart = p.ring() > 1 ? (sums.tokens + capacity - 1) / capacity : sums.documents;
  return std::max({least.compute * tokens + least.per_pair * attention_pairs,
                   filled.compute * std::min(tokens, static_cast<double>(micro_batch)),
                   static_cast<double>((apart + pipelines - 1) / pipelines) * alone(least, sums.shortest, p)});
}

// A document by itself, on as many ring ranks as are best.
double CostModel::alone(const Spent& least, i64 tokens, const Placement& p) const {
  return p.ring() > 1 ? packings_.ring_loads().least(p, tokens, least, 0)
                      : least.compute * static_cast<double>(tokens) + least.per_pair * attention_pairs_of(tokens);
}

const CostModel::Gradients& CostModel::gradients(const Shape& shape, i64 capacity, Load& load) const {
  const bool split = shape.splits_gradients(), joins = joins_gradients(shape);
  std::optional<Gradients>& known = load.gradients[static_cast<size_t>(shape.recompute)][joins ? 2 : split ? 1 : 0];
  if (known) return *known;
  const std::span<const PackedSequence> micro_batches = load.micro_batches;
  const auto of = [&](std::span<const PackedSequence> some, Pass pass) {
    return sum_over(shape.placement, some, shape.recompute, pass, capacity);
  };
  const Pass pass = split ? Pass::B : Pass::BW;
  known = {of(micro_batches, pass), of(micro_batches.first(1), pass), of(micro_batches.last(1), pass)};
  if (joins)
    known->all = sum_of_shorter<ByKind>(micro_batches.size(),
                                        [&](size_t mb, Pass pass) { return of(micro_batches.subspan(mb, 1), pass); });
  else if (split)
    std::ranges::transform(known->all, of(micro_batches, Pass::W), known->all.begin(), std::plus<>());
  return *known;
}

// Adds what runs gather and reduce. Two activities that slow each other down by 1 + k take at least the time of one and
// k times that of the other; which one is the longer is decided for all runs at once. The runs of a block have equal
// shares; of gradients in blocks only what is reduced counts, as those of the last chunk gather nothing, and otherwise
// not the head, whose copy the last stage may keep.
CostModel::Times CostModel::with_transfers(const Times& plain, const Shape& shape, size_t micro_batches,
                                           bool transfers_first) const {
  const Transfers::OfRun run = transfers_.least_of_run(shape.placement);
  const int mbs = static_cast<int>(micro_batches);
  const double share = std::min(1.0, run.device_share), blocks = shape.blocks(mbs);
  Times times = plain;
  for (int k = 0; k < kStageKinds; ++k) {
    const StageKind kind = static_cast<StageKind>(k);
    const double gather = run.gather.of(kind, 1), reduce = run.reduce.of(kind, 1);
    const double kept = kind == StageKind::whole || kind == StageKind::last ? run.gather.head : 0;
    const double again = shape.blockwise() ? 0 : gather - kept,
                 of_gradients = again + (shape.splits_gradients() ? 0 : reduce);
    const auto add = [&](ByKind& to, double transfers) {
      double& seconds = to[static_cast<size_t>(k)];
      seconds = transfers_first ? transfers + share * seconds : seconds + share * transfers;
    };
    add(times.forward, blocks * gather);
    add(times.most_forward, gather);
    add(times.first_forward, gather / shape.block_size(0, mbs));
    add(times.gradients.all, blocks * (again + reduce));
    add(times.gradients.first, of_gradients);
    add(times.gradients.last, of_gradients);
  }
  return times;
}

// Every schedule begins with the first micro-batch, and the gradients of a position are computed in the order of
// micro-batches. Two bounds on the end of a stage:
//  all its work after the first micro-batch has reached it
//  all but the forward passes that it may run ahead, after the first micro-batch's gradient has reached it
// Unless gradients are split, the last micro-batch's gradient then goes back to the first stage.
double CostModel::pipeline_bound(const Shape& shape, const Times& times,
                                 std::span<const PackedSequence> micro_batches) const {
  const Placement& p = shape.placement;
  const Pipeline& pipeline = this->pipeline(p);
  if (p.pp == 1) return pipeline.all.weigh(times.forward) + pipeline.all.weigh(times.gradients.all);
  const Hops& hops = this->hops(p);
  const auto sends = [&](const PackedSequence& micro_batch) {
    return Sends{send(p, false, micro_batch.T), send(p, true, micro_batch.T)};
  };
  const Sends first = sends(micro_batches.front()), last = sends(micro_batches.back());
  const bool split = shape.splits_gradients(), turns = p.path == schedule::Placement::v;
  const int end = p.positions() - 1, mbs = static_cast<int>(micro_batches.size());
  const double forward = pipeline.all.weigh(times.first_forward) + hops.sum(0, end, first);
  double later = 0;  // gradients of the first micro-batch at positions after the stage's last one
  const ByKind& first_gradient = times.gradients.first;
  for (const StageRun& run : pipeline.runs)
    if (!turns) later += run.count * run.end.weigh(first_gradient);
  double bound = 0, in = 0, back = 0;
  for (const StageRun& run : pipeline.runs) {
    const double of_end = run.end.weigh(first_gradient), all_forward = run.all.weigh(times.forward),
                 all = all_forward + run.all.weigh(times.gradients.all);
    const double way = run.begin.weigh(times.first_forward),
                 way_back = split ? 0 : run.begin.weigh(times.gradients.last);
    double slowest = 0;  // forward
    for (const Position& position : run.positions)
      slowest = std::max(slowest, parts_of(position.kind, position.layers).weigh(times.most_forward));
    for (const int s : {run.first, run.first + run.count - 1}) {
      const int skipped = s - run.first, last_position = turns ? end - s : end - (p.pp - 1 - s);
      const double came = in + skipped * way + hops.sum(0, s, first);
      const double after = turns ? later + skipped * of_end : later - (skipped + 1) * of_end;
      const double ahead = std::min(all_forward, most_kept(shape, s, mbs) * slowest);
      const double gradient = forward + after + hops.sum(last_position, end, first) - ahead;
      bound = std::max(bound,
                       std::max(came, gradient) + all + (split ? 0 : back + skipped * way_back + hops.sum(0, s, last)));
    }
    in += run.count * way;
    back += run.count * way_back;
    later += (turns ? 1 : -1) * run.count * of_end;
  }
  return bound;
}

// From the times of these very micro-batches.
double CostModel::replica_bound(const Shape& shape, const std::vector<PackedSequence>& micro_batches) const {
  const Placement& p = shape.placement;
  Times times;
  const auto parts_of_kind = [](StageKind kind) {
    Parts parts;
    if (kind == StageKind::middle)
      parts.further = 1;
    else
      parts.add(kind, 1);
    return parts;
  };
  const auto add = [&](Pass pass, ByKind* all, ByKind* most, ByKind* first, ByKind* last) {
    for (const StageKind kind : kinds_of(p.pp)) {
      const auto k = static_cast<size_t>(kind);
      for (const PackedSequence& micro_batch : micro_batches) {
        const double seconds = once(shape, parts_of_kind(kind), pass, micro_batch);
        (*all)[k] += seconds;
        if (most) (*most)[k] = std::max((*most)[k], seconds);
        if (first && &micro_batch == &micro_batches.front()) (*first)[k] = seconds;
        if (last && &micro_batch == &micro_batches.back()) (*last)[k] = seconds;
      }
    }
  };
  Gradients& gradients = times.gradients;
  add(Pass::F, &times.forward, &times.most_forward, &times.first_forward, nullptr);
  const bool split = shape.splits_gradients();
  add(split ? Pass::B : Pass::BW, &gradients.all, nullptr, &gradients.first, &gradients.last);
  if (joins_gradients(shape))
    gradients.all = sum_of_shorter<ByKind>(micro_batches.size(), [&](size_t mb, Pass pass) {
      ByKind seconds{};
      for (const StageKind kind : kinds_of(p.pp))
        seconds[static_cast<size_t>(kind)] = once(shape, parts_of_kind(kind), pass, micro_batches[mb]);
      return seconds;
    });
  else if (split)
    add(Pass::W, &gradients.all, nullptr, nullptr, nullptr);
  double bound = 0;
  for (const Times& least : with_transfers(times, shape, micro_batches.size()))
    bound = std::max(bound, pipeline_bound(shape, least, micro_batches));
  return bound;
}

// The same without sends, and from the first of the bounds alone, so that neither order nor schedule counts.
double CostModel::stages_bound(const Pipeline& pipeline, bool splits_gradients, const Times& times) {
  double bound = 0, around = 0;  // around: before a run's first stage begins and after it has ended
  for (const StageRun& run : pipeline.runs) {
    const double way =
        run.begin.weigh(times.first_forward) + (splits_gradients ? 0 : run.begin.weigh(times.gradients.last));
    bound = std::max(
        bound, around + (run.count - 1) * way + run.all.weigh(times.forward) + run.all.weigh(times.gradients.all));
    around += run.count * way;
  }
  return bound;
}

std::vector<CostModel::Times> CostModel::times_of(const Shape& shape, i64 capacity, Load& load, bool transfers) const {
  const Times plain{load.forward, load.most_forward, load.first_forward, gradients(shape, capacity, load)};
  return transfers ? with_transfers(plain, shape, load.micro_batches.size()) : std::vector{plain};
}

std::vector<CostModel::Times> CostModel::with_transfers(const Times& plain, const Shape& shape,
                                                        size_t micro_batches) const {
  if (!shape.placement.runs_transfer()) return {plain};
  return {with_transfers(plain, shape, micro_batches, false), with_transfers(plain, shape, micro_batches, true)};
}

std::vector<double> CostModel::packed_layers_bounds(const Shape& shape, std::span<const Shape* const> layouts,
                                                    i64 capacity, Range range, bool transfers) const {
  std::vector<double> bounds(layouts.size(), 0), slowest;
  std::vector<const Pipeline*> pipelines;
  for (const Shape* layout : layouts) pipelines.push_back(&pipeline(layout->placement));
  const bool transfer = transfers && shape.placement.runs_transfer();
  const double share = 1 / static_cast<double>(workload_.steps.size()) / (transfer ? 1 : speedup_);
  for (BoundedStep& step : bounded_steps(shape.placement, capacity, range)) {
    slowest.assign(layouts.size(), 0);
    for (Load& load : step.loads)
      for (const Times& times : times_of(shape, capacity, load, transfers))
        for (size_t i = 0; i < layouts.size(); ++i)
          slowest[i] = std::max(slowest[i], stages_bound(*pipelines[i], shape.splits_gradients(), times));
    for (size_t i = 0; i < layouts.size(); ++i) bounds[i] += share * slowest[i];
  }
  return bounds;
}

double CostModel::micro_batches_bound(const Shape& shape, i64 capacity, Range range) const {
  double sum = 0;
  for (BoundedStep& step : bounded_steps(shape.placement, capacity, range)) {
    double slowest = 0;
    for (Load& load : step.loads)
      for (const Times& times : times_of(shape, capacity, load))
        slowest = std::max(slowest, pipeline_bound(shape, times, load.micro_batches));
    if (speedup_ > 1 && !shape.placement.runs_transfer())
      slowest = std::max(slowest / speedup_, shared_bound(shape, *step.timed));
    sum += slowest;
  }
  return sum / static_cast<double>(workload_.steps.size());
}

// No host is faster than with all its devices computing.
double CostModel::shared_bound(const Shape& shape, const Replicas& replicas) const {
  double compute = 0;
  for (const Replica& replica : replicas)
    compute += replica.count * spent_by(shape, replica.micro_batches, {Pass::F, Pass::BW}).compute;
  return compute * shape.placement.code_ranks() / units_.hardware().ranks();  // the slowest ring ranks alone
}

}  // namespace switchyard::planner
