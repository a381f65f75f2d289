#include "switching/bounds.hpp"

#include <algorithm>
#include <set>

#include "layout/overlay.hpp"

namespace switchyard::switching {
namespace {

using layout::Box;
using layout::ShardMap;

/// The boxes on each host; a box that several ranks hold counts once.
using HostBoxes = std::set<std::pair<int, std::array<i64, 2 * layout::kMaxDims>>>;

void add_boxes(const ShardMap& map, const cluster::Cluster& cluster, HostBoxes& seen, std::vector<Box>& boxes,
               std::vector<int>& hosts) {
  for (const layout::Shard& shard : map.shards) {
    const int host = cluster.host[static_cast<size_t>(shard.rank)];
    std::array<i64, 2 * layout::kMaxDims> corners{};
    std::copy(shard.box.lo.begin(), shard.box.lo.end(), corners.begin());
    std::copy(shard.box.hi.begin(), shard.box.hi.end(), corners.begin() + layout::kMaxDims);
    if (!seen.insert({host, corners}).second) continue;
    boxes.push_back(shard.box);
    hosts.push_back(host);
  }
}

/// Elements of one tensor that must cross, counted once per host.
i64 crossing_elements(const std::vector<const ShardMap*>& sources, const ShardMap& to,
                      const cluster::Cluster& cluster) {
  HostBoxes seen_sources, seen_targets;
  std::vector<Box> boxes;
  std::vector<int> hosts;
  for (const ShardMap* map : sources) add_boxes(*map, cluster, seen_sources, boxes, hosts);
  const int targets = static_cast<int>(boxes.size());
  add_boxes(to, cluster, seen_targets, boxes, hosts);
  i64 elements = 0;
  for (const layout::Region& region : layout::overlay(boxes)) {
    std::set<int> have, want;
    for (const int member : region.members) (member < targets ? have : want).insert(hosts[static_cast<size_t>(member)]);
    const auto lacking = std::count_if(want.begin(), want.end(), [&](int host) { return !have.contains(host); });
    elements += lacking * region.box.elements();
  }
  return elements;
}

}  // namespace

Traffic traffic(const MovePlan& plan, const cluster::Cluster& cluster, i64 element_size) {
  Traffic result;
  std::vector<i64> sent(static_cast<size_t>(cluster.ranks())), received(sent.size());
  for (const UnitMoves& unit : plan.units) {
    for (const auto& round : unit.moves.rounds) {
      for (const layout::Msg& msg : round) {
        if (msg.src == msg.dst) continue;
        const i64 bytes = msg.box.elements() * element_size;
        (cluster.same_host(msg.src, msg.dst) ? result.links.intra_host : result.links.inter_host) += bytes;
        sent[static_cast<size_t>(msg.src)] += bytes;
        received[static_cast<size_t>(msg.dst)] += bytes;
      }
    }
  }
  if (!sent.empty()) {
    result.max_send = *std::max_element(sent.begin(), sent.end());
    result.max_receive = *std::max_element(received.begin(), received.end());
  }
  return result;
}

i64 inter_host_bound_bytes(const std::vector<ShardMap>& from, const std::vector<ShardMap>& compute_copy,
                           const std::vector<ShardMap>& to, const cluster::Cluster& cluster, i64 element_size) {
  const auto same = [](const std::vector<ShardMap>& maps, size_t a, size_t b) {
    return maps.empty() || maps[a].shards == maps[b].shards;
  };
  std::vector<std::pair<size_t, i64>> counted;  // the first tensors of their kind, and their elements
  i64 elements = 0;
  for (size_t t = 0; t < to.size(); ++t) {
    const auto known = std::find_if(counted.begin(), counted.end(), [&](const auto& entry) {
      return same(to, t, entry.first) && same(from, t, entry.first) && same(compute_copy, t, entry.first);
    });
    if (known != counted.end()) {
      elements += known->second;
      continue;
    }
    std::vector<const ShardMap*> sources;
    if (!from.empty()) sources.push_back(&from[t]);
    if (!compute_copy.empty()) sources.push_back(&compute_copy[t]);
    counted.emplace_back(t, crossing_elements(sources, to[t], cluster));
    elements += counted.back().second;
  }
  return elements * element_size;
}

}  // namespace switchyard::switching
