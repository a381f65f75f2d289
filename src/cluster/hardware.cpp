#include "cluster/hardware.hpp"

#include <algorithm>
#include <cmath>

#include "base/errors.hpp"

namespace switchyard::cluster {

double EfficiencyCurve::at(double size) const {
  if (points.empty()) return 1;
  if (!(size > points.front().size)) return points.front().share;
  if (size >= points.back().size) return points.back().share;
  const auto right =
      std::upper_bound(points.begin(), points.end(), size, [](double value, const Point& p) { return value < p.size; });
  const auto left = right - 1;
  const double way = std::log(size / left->size) / std::log(right->size / left->size);
  return left->share + way * (right->share - left->share);
}

void EfficiencyCurve::add(double size, double share) {
  share = std::min(share, 1.0);
  if (!points.empty()) share = std::min(share, 0.999 * points.back().share * (1 + std::log(size / points.back().size)));
  points.push_back({size, share});
}

std::string EfficiencyCurve::error() const {
  for (size_t i = 0; i < points.size(); ++i) {
    const Point& point = points[i];
    if (!(point.size > 0) || !std::isfinite(point.size)) {
      return fmt::format("point {} has size {}; a size must be above 0", i + 1, point.size);
    }
    if (!(point.share > 0 && point.share <= 1)) {
      return fmt::format("point {} has share {}; a share must be above 0 and at most 1", i + 1, point.share);
    }
    if (i == 0) continue;
    const Point& before = points[i - 1];
    if (point.size <= before.size)
      return fmt::format("point {} has size {} after {}; sizes must rise", i + 1, point.size, before.size);
    // d(size / share) / dsize > 0 wherever share > rise per unit of log(size), first violated at the left end.
    if (const double logs = std::log(point.size / before.size); point.share - before.share > before.share * logs) {
      return fmt::format(
          "from point {} to {} the share rises so fast that a bigger size takes less time; raise share {} to {:.2g} or "
          "more",
          i, i + 1, before.share, std::ceil(100 * point.share / (1 + logs)) / 100);
    }
  }
  return "";
}

const Rates& Device::rates_of(DType type) const {
  const auto found = rates.find(type);
  if (found != rates.end()) return found->second;
  const std::string_view section = name_of(Precision{.compute = type, .state = type});
  user_error("device {} has no rates for {}. Add a section [device.{}] with matmul to the cluster file.", name, section,
             section);
}

const OperatorTable* Device::measured(DType type, const std::string& name) const {
  const auto tables = operators.find(type);
  if (tables == operators.end()) return nullptr;
  const auto found = tables->second.find(name);
  return found == tables->second.end() ? nullptr : &found->second;
}

Cluster Hardware::placement() const {
  Cluster placed = uniform(hosts, devices_per_host);
  check(host_names.empty() || static_cast<int>(host_names.size()) == hosts, "{} names for {} hosts", host_names.size(),
        hosts);
  placed.names = host_names;
  placed.overlaps_collectives = overlaps_collectives;
  placed.torch_elements = device.torch_elements;
  return placed;
}

const LinkClass& Hardware::link(Link link) const {
  check(link != Link::local, "a rank has no link to itself");
  if (link == Link::intra_host) return intra_host;
  check(inter_host.has_value(), "cluster {} has no links between hosts", name);
  return *inter_host;
}

double Hardware::device_share(Link class_of) const {
  if (class_of == Link::local) return 1;
  const double own = link(class_of).overlap_slowdown;
  return (own > 0 ? own : overlap_slowdown) - 1;
}

}  // namespace switchyard::cluster
