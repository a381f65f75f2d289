#include "switching/plan.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/errors.hpp"
#include "switching/bundle.hpp"
#include "switching/coalesce.hpp"
#include "switching/direct.hpp"
#include "switching/relay.hpp"

namespace switchyard::switching {
namespace {

using cluster::Cluster;
using layout::Rounds;
using layout::ShardMap;

constexpr std::array<std::pair<Planner, std::string_view>, 4> kNames{
    {{Planner::relay, "relay"}, {Planner::greedy, "greedy"}, {Planner::first, "first"}, {Planner::round_robin, "round-robin"}}};

bool same_map(const ShardMap& a, const ShardMap& b) {
  return a.addends == b.addends && a.shape.size == b.shape.size && a.shards == b.shards;
}

/// The maps a plan is about: sources that come first, further sources, destinations.
struct Maps {
  const std::vector<ShardMap>& from;
  const std::vector<ShardMap>& image;
  const std::vector<ShardMap>& to;

  /// Whether the units can use the same moves.
  bool alike(const UnitMaps& a, const UnitMaps& b) const {
    return std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(), [&](int i, int j) {
      const auto x = static_cast<size_t>(i), y = static_cast<size_t>(j);
      return same_map(to[x], to[y]) && (from.empty() || same_map(from[x], from[y])) && (image.empty() || same_map(image[x], image[y]));
    });
  }

  /// All sources of a tensor as one map; those of `from` first.
  ShardMap sources(size_t tensor) const {
    if (image.empty()) return from.empty() ? ShardMap{to[tensor].shape, 1, {}} : from[tensor];
    return from.empty() ? image[tensor] : layout::as_copies({from[tensor], image[tensor]});
  }
};

void check_addends(const layout::Slice& slice, int addends) {
  const std::set<int> found(slice.addends.begin(), slice.addends.end());
  check(static_cast<int>(found.size()) == addends, "box {} has {} of {} addends", to_string(slice.box), found.size(), addends);
}

/// Drops shards of the image (those from `first_image` on) on hosts where the previous strategy has copies, but for ranks that
/// want the cell themselves: a finely cut image would only make slices small.
layout::NarrowHolders prefer_previous(const ShardMap& sources, size_t first_image, const Cluster& cluster) {
  return [&sources, first_image, &cluster](std::vector<int>& shards, const std::vector<int>& takers) {
    const auto middle = std::lower_bound(shards.begin(), shards.end(), static_cast<int>(first_image));
    if (middle == shards.begin()) return;
    const auto rank_of = [&](int shard) { return sources.shards[static_cast<size_t>(shard)].rank; };
    shards.erase(std::remove_if(middle, shards.end(),
                                [&](int shard) {
                                  const int rank = rank_of(shard);
                                  if (std::find(takers.begin(), takers.end(), rank) != takers.end()) return false;
                                  return std::any_of(shards.begin(), middle,
                                                     [&](int other) { return cluster.same_host(rank_of(other), rank); });
                                }),
                 shards.end());
  };
}

std::vector<TensorSlice> slices_of(const UnitMaps& unit, const Maps& maps, const Cluster& cluster) {
  std::vector<TensorSlice> result;
  for (size_t i = 0; i < unit.tensors.size(); ++i) {
    const auto tensor = static_cast<size_t>(unit.tensors[i]);
    const ShardMap sources = maps.sources(tensor);
    const size_t first_image = maps.from.empty() ? 0 : maps.from[tensor].shards.size();
    try {
      for (auto& slice : layout::slices(sources, maps.to[tensor], prefer_previous(sources, first_image, cluster))) {
        check_addends(slice, sources.addends);
        result.push_back({static_cast<int>(i), std::move(slice)});
      }
    } catch (const InternalError& error) {
      throw InternalError(fmt::format("tensor {}: {}", tensor, error.what()));
    }
  }
  return result;
}

/// Empty rounds dropped, messages in order.
Rounds tidy(Rounds moves) {
  std::erase_if(moves.rounds, [](const auto& round) { return round.empty(); });
  for (auto& round : moves.rounds) layout::sort_messages(round);
  return moves;
}

Rounds relayed(const UnitMaps& unit, std::span<const TensorSlice> slices, const Maps& maps, const Cluster& cluster, bool sum) {
  std::vector<ShardMap> from, to;
  for (const int tensor : unit.tensors) {
    from.push_back(maps.sources(static_cast<size_t>(tensor)));
    to.push_back(maps.to[static_cast<size_t>(tensor)]);
  }
  Rounds moves = sum ? relay_flush(slices, cluster) : relay_switch(slices, cluster);
  for (auto& round : moves.rounds) round = coalesce(std::move(round), from, to);
  return tidy(std::move(moves));
}

/// Indices within the unit replaced by the unit's tensors.
Rounds named(Rounds moves, const UnitMaps& unit) {
  for (auto& round : moves.rounds) {
    for (layout::Msg& msg : round) msg.tensor = unit.tensors[static_cast<size_t>(msg.tensor)];
  }
  return moves;
}

/// Plans each distinct unit once; direct policies only share the slices, as their loads go on.
MovePlan plan_units(const std::vector<UnitMaps>& units, const Maps& maps, const Cluster& cluster, Planner planner, bool sum) {
  struct Known {
    const UnitMaps* unit;
    std::vector<TensorSlice> slices;
    Rounds moves;  // relay only
  };
  std::optional<DirectPlanner> direct;
  if (planner != Planner::relay) direct.emplace(planner, cluster);
  std::vector<Known> known;
  MovePlan plan{{}, sum};
  for (size_t u = 0; u < units.size(); ++u) {
    auto same = std::find_if(known.rbegin(), known.rend(), [&](const Known& other) { return maps.alike(*other.unit, units[u]); });
    if (same == known.rend()) {
      Known fresh{&units[u], slices_of(units[u], maps, cluster), {}};
      if (!direct) fresh.moves = relayed(units[u], fresh.slices, maps, cluster, sum);
      known.push_back(std::move(fresh));
      same = known.rbegin();
    }
    Rounds moves = direct ? tidy(sum ? direct->flush_unit(same->slices) : direct->switch_unit(same->slices)) : same->moves;
    plan.units.push_back({static_cast<int>(u), named(std::move(moves), units[u])});
  }
  return plan;
}

/// All units' rounds side by side.
Rounds together(const MovePlan& plan) {
  Rounds all;
  for (const UnitMoves& unit : plan.units) {
    if (all.rounds.size() < unit.moves.rounds.size()) all.rounds.resize(unit.moves.rounds.size());
    for (size_t r = 0; r < unit.moves.rounds.size(); ++r) {
      all.rounds[r].insert(all.rounds[r].end(), unit.moves.rounds[r].begin(), unit.moves.rounds[r].end());
    }
  }
  return all;
}

void check_lists(const std::vector<UnitMaps>& units, const Maps& maps) {
  const size_t tensors = maps.to.size();
  check(maps.from.empty() || maps.from.size() == tensors, "{} tensors to move, {} sources", tensors, maps.from.size());
  check(maps.image.empty() || maps.image.size() == tensors, "{} tensors to move, {} images", tensors, maps.image.size());
  for (const UnitMaps& unit : units) {
    for (const int tensor : unit.tensors)
      check(tensor >= 0 && static_cast<size_t>(tensor) < tensors, "unit with tensor {} of {}", tensor, tensors);
  }
}

}  // namespace

Planner planner_from(std::string_view name) {
  for (const auto& [planner, known] : kNames) {
    if (known == name) return planner;
  }
  user_error("planner \"{}\" is unknown. Use relay, greedy, first or round-robin.", name);
}

std::string_view name_of(Planner planner) {
  return std::find_if(kNames.begin(), kNames.end(), [&](const auto& entry) { return entry.first == planner; })->second;
}

MovePlan plan_switch(const std::vector<UnitMaps>& units, const std::vector<ShardMap>& from, const std::vector<ShardMap>& image,
                     const std::vector<ShardMap>& to, const Cluster& cluster, Planner planner) {
  const Maps maps{from, image, to};
  check_lists(units, maps);
  return plan_units(units, maps, cluster, planner, false);
}

MovePlan plan_flush(const std::vector<UnitMaps>& units, const std::vector<ShardMap>& grad, const std::vector<ShardMap>& home,
                    const Cluster& cluster, Planner planner) {
  const std::vector<ShardMap> none;
  const Maps maps{grad, none, home};
  check_lists(units, maps);
  return plan_units(units, maps, cluster, planner, true);
}

void verify_switch(const MovePlan& plan, const std::vector<ShardMap>& from, const std::vector<ShardMap>& image,
                   const std::vector<ShardMap>& to) {
  const Maps maps{from, image, to};
  std::vector<ShardMap> sources;
  for (size_t t = 0; t < to.size(); ++t) sources.push_back(maps.sources(t));
  layout::verify_copy(together(plan), sources, to);
}

void verify_flush(const MovePlan& plan, const std::vector<ShardMap>& grad, const std::vector<ShardMap>& home) {
  layout::verify_sum(together(plan), grad, home);
}

}  // namespace switchyard::switching
