#include "planner/transfers.hpp"

#include <algorithm>

#include "cost/compute_cost.hpp"

namespace switchyard::planner {
namespace {

std::vector<int> stage_of_units(const Placement& placement, i64 layers) {
  std::vector<int> stages = {0};
  const std::vector<int> counts = layers_of_stages(placement, layers);
  for (size_t s = 0; s < counts.size(); ++s) stages.insert(stages.end(), static_cast<size_t>(counts[s]), static_cast<int>(s));
  stages.push_back(placement.pp - 1);
  return stages;
}

}  // namespace

std::optional<Post> post_of(const Placement& p, int rank) {
  if (rank >= p.ranks()) return std::nullopt;
  const int block = rank / p.tp;
  if (p.order == Order::data_inside) return Post{block % p.dp, block / p.dp, rank % p.tp};
  return Post{block / p.pp, block % p.pp, rank % p.tp};
}

std::vector<Transfers::UnitClass> Transfers::classes(const std::vector<const Placement*>& placements) const {
  const i64 layers = units_.model().layers;
  std::vector<std::vector<int>> stages;
  for (const Placement* placement : placements) stages.push_back(stage_of_units(*placement, layers));
  const UnitCosts::Units whole = units_.units(1);
  std::vector<UnitClass> classes;
  for (i64 unit = 0; unit < layers + 2; ++unit) {
    const i64 elements = unit == 0 ? whole.embedding : unit <= layers ? whole.layer : whole.head;
    std::vector<int> stage;
    for (const std::vector<int>& of : stages) stage.push_back(of[static_cast<size_t>(unit)]);
    if (classes.empty() || classes.back().stage != stage || classes.back().elements != elements) classes.push_back({stage, 0, elements});
    ++classes.back().units;
  }
  return classes;
}

Transfers::Interval Transfers::used(const Placement& p, const Post& post) {
  return {static_cast<double>(post.part) / p.tp, (post.part + 1.0) / p.tp};
}

Transfers::Interval Transfers::at_home(const Placement& p, const Post& post) {
  const double parts = static_cast<double>(p.tp) * p.dp, first = static_cast<double>(post.part) * p.dp + post.lane;
  return {first / parts, (first + 1) / parts};
}

// Of the union.
double Transfers::measure(std::vector<Interval> intervals) {
  std::ranges::sort(intervals, {}, &Interval::begin);
  double sum = 0, end = 0;
  for (const Interval& interval : intervals) {
    sum += std::max(0.0, interval.end - std::max(interval.begin, end));
    end = std::max(end, interval.end);
  }
  return sum;
}

double Transfers::inside(double bytes) const {
  const cluster::LinkClass& link = units_.hardware().intra_host;
  return bytes < 1 ? 0 : link.latency.count + bytes / (link.bandwidth.count * link.curve.at(bytes));
}

// A host's bytes over all its adapters.
double Transfers::across(double bytes) const {
  if (bytes < 1) return 0;
  const cluster::LinkClass& link = units_.hardware().link(cluster::Link::inter_host);
  const int devices = units_.hardware().devices_per_host, ports = (devices + link.shared_by - 1) / link.shared_by;
  return link.latency.count + bytes / ports / (link.bandwidth.count * link.curve.at(bytes / devices));
}

Transfers::Share Transfers::share_of(int rank, const UnitClass& c, const std::vector<const Placement*>& placements) const {
  Share share;
  for (size_t p = 1; p < placements.size(); ++p)
    if (const auto post = post_of(*placements[p], rank); post && post->stage == c.stage[p])
      share.held.push_back(p == 1 ? at_home(*placements[p], *post) : used(*placements[p], *post));
  if (const auto post = post_of(*placements[0], rank); post && post->stage == c.stage[0]) {
    share.needed.push_back(used(*placements[0], *post));
    std::vector<Interval> all = share.held;
    all.push_back(share.needed.back());
    share.missing = measure(all) - measure(share.held);
  }
  return share;
}

double Transfers::on_host(int host, const std::vector<UnitClass>& classes, const std::vector<const Placement*>& placements, i64 element) const {
  const int devices = units_.hardware().devices_per_host;
  std::vector<double> busy(static_cast<size_t>(devices), 0), missing = busy;
  for (const UnitClass& c : classes) {
    std::vector<Interval> held, all;
    size_t users = 0;
    for (int d = 0; d < devices; ++d) {
      const Share share = share_of(host * devices + d, c, placements);
      missing[static_cast<size_t>(d)] = share.missing;
      users += share.needed.size();
      held.insert(held.end(), share.held.begin(), share.held.end());
      all.insert(all.end(), share.needed.begin(), share.needed.end());
    }
    all.insert(all.end(), held.begin(), held.end());
    const double bytes = static_cast<double>(c.elements * element), crossing = across((measure(all) - measure(held)) * bytes);
    const bool passed_on = devices > 1 && (users > 1 || !held.empty());
    for (size_t d = 0; d < busy.size(); ++d)
      if (missing[d] > 0) busy[d] += static_cast<double>(c.units) * (crossing + (passed_on ? inside(missing[d] * bytes) : 0));
  }
  return *std::ranges::max_element(busy);
}

double Transfers::transfer(const std::optional<Placement>& previous, const Placement& next, const Placement& home, DType type) const {
  const auto [it, fresh] = known_.try_emplace({previous, next, home, type}, 0.0);
  if (!fresh) return it->second;
  std::vector<const Placement*> placements = {&next, &home};
  if (previous) placements.push_back(&*previous);
  const std::vector<UnitClass> classes = this->classes(placements);
  for (int host = 0; host < units_.hardware().hosts; ++host) it->second = std::max(it->second, on_host(host, classes, placements, size_of(type)));
  return it->second;
}

double Transfers::moves(const std::optional<Placement>& previous, const Placement& next, const Placement& home) const {
  return previous == next ? 0 : transfer(previous, next, home, units_.precision().compute);
}

// What a rank has made of gradients and isn't home for leaves it on the ways on which parameters come to it.
double Transfers::flush(const Placement& from, const Placement& home) const { return transfer(std::nullopt, from, home, units_.precision().state); }

// As the simulator: memory traffic of master weights, moments, gradient and image; the norm by halves of the ranks.
double Transfers::finish(const Placement& home) const {
  const cluster::Hardware& hardware = units_.hardware();
  const Precision precision = units_.precision();
  const i64 element = 8 * size_of(precision.state) + (precision.compute == precision.state ? 0 : size_of(precision.compute));
  double slowest = 0;
  for (int stage = 0; stage < home.pp; ++stage) {
    double seconds = 0;
    for (const UnitClass& c : classes({&home})) {
      const double bytes = static_cast<double>(c.elements * element) / (home.tp * home.dp);
      if (c.stage[0] == stage)
        seconds += static_cast<double>(c.units) * cost::call_time(hardware.device, precision.state, {.flops = 0, .narrowest = 0, .bytes = bytes}).count;
    }
    slowest = std::max(slowest, seconds);
  }
  int halvings = 0;
  while ((1 << halvings) < hardware.ranks()) ++halvings;
  return slowest + 2 * halvings * (hardware.hosts > 1 ? hardware.link(cluster::Link::inter_host) : hardware.intra_host).latency.count;
}

}  // namespace switchyard::planner
