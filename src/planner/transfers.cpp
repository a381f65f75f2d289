#include "planner/transfers.hpp"

#include <algorithm>

#include "cost/compute_cost.hpp"

namespace switchyard::planner {
namespace {

std::vector<int> stage_of_units(const Placement& placement, i64 layers) {
  std::vector<int> stages = {0};
  const std::vector<int> counts = layers_of_positions(placement, layers);
  for (size_t at = 0; at < counts.size(); ++at) stages.insert(stages.end(), static_cast<size_t>(counts[at]), placement.stage_of(static_cast<int>(at)));
  stages.push_back(placement.stage_of(placement.positions() - 1));
  return stages;
}

// Never 0. Ranks, heads and layers are fewer than these bits count.
std::uint64_t packed(const Placement& p) {
  std::uint64_t bits = 0;
  for (const int field : {p.dp, p.tp, p.pp}) bits = bits << 17 | static_cast<std::uint64_t>(field);
  bits = bits << 7 | static_cast<std::uint64_t>(p.head_layers);
  bits = bits << 4 | static_cast<std::uint64_t>(p.chunks);
  return bits << 2 | (p.path == schedule::Placement::v ? 2U : 0U) | (p.order == Order::data_inside ? 0U : 1U);
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
double Transfers::measure(std::vector<Interval>& intervals) {
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

void Transfers::add_class(HostPosts& host, const UnitClass& c, const std::vector<const Placement*>& placements, i64 element) const {
  const size_t devices = host.busy.size();
  const double bytes = static_cast<double>(c.elements * element);
  size_t users = 0;
  host.held.clear();
  host.all.clear();
  for (size_t d = 0; d < devices; ++d) {
    const size_t first = host.held.size();
    for (size_t p = 1; p < placements.size(); ++p)
      if (const auto& post = host.of[p][d]; post && post->stage == c.stage[p])
        host.held.push_back(p == 1 ? at_home(*placements[p], *post) : used(*placements[p], *post));
    host.missing[d] = 0;
    const auto& post = host.of[0][d];
    if (!post || post->stage != c.stage[0]) continue;
    ++users;
    const Interval needed = used(*placements[0], *post);
    host.all.push_back(needed);
    // Of what it holds, home's part and a copy may be partly the same.
    double missing = needed.end - needed.begin;
    Interval both = needed;
    for (size_t i = first; i < host.held.size(); ++i) {
      const Interval part{std::max(needed.begin, host.held[i].begin), std::min(needed.end, host.held[i].end)};
      both = {std::max(both.begin, part.begin), std::min(both.end, part.end)};
      missing -= std::max(0.0, part.end - part.begin);
    }
    if (host.held.size() - first == 2) missing += std::max(0.0, both.end - both.begin);
    host.missing[d] = missing;
  }
  host.all.insert(host.all.end(), host.held.begin(), host.held.end());
  const bool passed_on = devices > 1 && (users > 1 || !host.held.empty());
  const double crossing = across((measure(host.all) - measure(host.held)) * bytes);
  double lacked = 0, taken = 0;  // by the device before; most lack as much
  for (size_t d = 0; d < devices; ++d) {
    if (host.missing[d] * bytes < 1) continue;
    if (passed_on && host.missing[d] != lacked) taken = inside((lacked = host.missing[d]) * bytes);
    host.busy[d] += static_cast<double>(c.units) * (crossing + taken);
  }
}

double Transfers::slowest_host(const std::vector<const Placement*>& placements, i64 element) const {
  const std::vector<UnitClass> classes = this->classes(placements);
  std::vector<std::vector<size_t>> of_stage(static_cast<size_t>(placements[0]->pp));
  for (size_t c = 0; c < classes.size(); ++c) of_stage[static_cast<size_t>(classes[c].stage[0])].push_back(c);
  const int devices = units_.hardware().devices_per_host;
  HostPosts host{std::vector(placements.size(), std::vector<std::optional<Post>>(static_cast<size_t>(devices))), {}, {}, {}, std::vector<double>(static_cast<size_t>(devices))};
  double slowest = 0;
  for (int begin = 0; begin < std::min(placements[0]->ranks(), units_.hardware().ranks()); begin += devices) {
    host.busy.assign(static_cast<size_t>(devices), 0);
    for (size_t p = 0; p < placements.size(); ++p)
      for (int d = 0; d < devices; ++d) host.of[p][static_cast<size_t>(d)] = post_of(*placements[p], begin + d);
    std::vector<int> stages;
    for (const auto& post : host.of[0])
      if (post && std::ranges::count(stages, post->stage) == 0) stages.push_back(post->stage);
    for (const int stage : stages)
      for (const size_t c : of_stage[static_cast<size_t>(stage)]) add_class(host, classes[c], placements, element);
    slowest = std::max(slowest, *std::ranges::max_element(host.busy));
  }
  return slowest;
}

size_t Transfers::Hash::operator()(const Key& key) const {
  std::uint64_t hash = static_cast<std::uint64_t>(key.type);
  for (const std::uint64_t part : {key.previous, key.next, key.home}) hash = (hash ^ part ^ part >> 29) * 0x9e3779b97f4a7c15U;
  return static_cast<size_t>(hash ^ hash >> 32);
}

double Transfers::transfer(const std::optional<Placement>& previous, const Placement& next, const Placement& home, DType type) const {
  const auto [it, fresh] = known_.try_emplace({previous ? packed(*previous) : 0, packed(next), packed(home), type}, 0.0);
  if (!fresh) return it->second;
  std::vector<const Placement*> placements = {&next, &home};
  if (previous) placements.push_back(&*previous);
  return it->second = slowest_host(placements, size_of(type));
}

double Transfers::moves(const std::optional<Placement>& previous, const Placement& next, const Placement& home) const {
  return previous == next ? 0 : transfer(previous, next, home, units_.precision().compute);
}

// What a rank has made of gradients and isn't home for leaves it on the ways on which parameters come to it.
double Transfers::flush(const Placement& from, const Placement& home) const { return transfer(std::nullopt, from, home, units_.precision().state); }

// As the simulator: memory traffic of master weights, moments, gradient and image; the norm by halves of the ranks.
double Transfers::finish(const Placement& home) const {
  const auto [it, fresh] = finish_.try_emplace(home);
  if (!fresh) return it->second;
  const cluster::Hardware& hardware = units_.hardware();
  const Precision precision = units_.precision();
  const i64 element = 8 * size_of(precision.state) + (precision.compute == precision.state ? 0 : size_of(precision.compute));
  std::vector<double> seconds(static_cast<size_t>(home.pp), 0);  // of stages
  for (const UnitClass& c : classes({&home})) {
    const double bytes = static_cast<double>(c.elements * element) / (home.tp * home.dp);
    seconds[static_cast<size_t>(c.stage[0])] +=
        static_cast<double>(c.units) * cost::call_time(hardware.device, precision.state, {.flops = 0, .narrowest = 0, .bytes = bytes}).count;
  }
  const double slowest = *std::ranges::max_element(seconds);
  int halvings = 0;
  while ((1 << halvings) < hardware.ranks()) ++halvings;
  return it->second = slowest + 2 * halvings * (hardware.hosts > 1 ? hardware.link(cluster::Link::inter_host) : hardware.intra_host).latency.count;
}

}  // namespace switchyard::planner
