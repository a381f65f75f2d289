#include "switching/plan.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "base/errors.hpp"
#include "layout/verify.hpp"
#include "switching/bundle.hpp"
#include "switching/coalesce.hpp"
#include "switching/direct.hpp"
#include "switching/relay.hpp"

namespace switchyard::switching {
namespace {

using cluster::Cluster;
using layout::MessageList;
using layout::Names;
using layout::Rounds;
using layout::ShardMap;

/// The numbers of a unit's ranks: from 0 in the order of their names; without names every rank keeps its own number.
/// Units that differ in names only can use the same moves.
class Numbering {
 public:
  explicit Numbering(Names names) : names_(std::move(names)) {
    if (!names_) return;
    for (size_t i = 0; i < names_->size(); ++i) {
      const auto rank = static_cast<size_t>((*names_)[i]);
      if (number_.size() <= rank) number_.resize(rank + 1, kNone);
      number_[rank] = static_cast<int>(i);
    }
  }
  const Names& names() const { return names_; }

  bool same_map(const ShardMap& mine, const Numbering& other, const ShardMap& its) const {
    return mine.partials == its.partials && mine.shape.size == its.shape.size &&
           std::equal(mine.shards.begin(), mine.shards.end(), its.shards.begin(), its.shards.end(),
                      [&](const layout::Shard& a, const layout::Shard& b) {
                        return number(a.rank) == other.number(b.rank) && a.partial == b.partial && a.box == b.box;
                      });
  }

  /// The hosts of the unit's ranks, numbered from 0 in their order.
  Cluster within(const Cluster& cluster) const {
    if (!names_) return cluster;
    std::set<int> hosts;
    for (const int rank : *names_) hosts.insert(cluster.host[static_cast<size_t>(rank)]);
    const std::vector<int> order(hosts.begin(), hosts.end());
    Cluster numbered;
    for (const int rank : *names_)
      numbered.host.push_back(
          static_cast<int>(std::ranges::lower_bound(order, cluster.host[static_cast<size_t>(rank)]) - order.begin()));
    return numbered;
  }

  ShardMap within(ShardMap map) const {
    for (layout::Shard& shard : map.shards) {
      const int name = shard.rank;
      shard.rank = number(name);
      check(shard.rank != kNone, "rank {} has a shard and no number", name);
    }
    return map;
  }

 private:
  static constexpr int kNone = -1;

  int number(int rank) const {
    if (!names_) return rank;
    return static_cast<size_t>(rank) < number_.size() ? number_[static_cast<size_t>(rank)] : kNone;
  }

  Names names_;
  std::vector<int> number_;  // each rank's number
};

/// The maps of a plan: preferred sources, further sources, destinations.
struct Maps {
  const std::vector<ShardMap>& from;
  const std::vector<ShardMap>& compute_copy;
  const std::vector<ShardMap>& to;

  /// Whether tensors have the same maps under their numberings.
  bool same_maps(const std::vector<int>& tensors, const Numbering& numbers, const std::vector<int>& others,
                 const Numbering& their_numbers) const {
    return std::equal(tensors.begin(), tensors.end(), others.begin(), others.end(), [&](int i, int j) {
      const auto x = static_cast<size_t>(i), y = static_cast<size_t>(j);
      const auto same = [&](const std::vector<ShardMap>& maps) {
        return maps.empty() || numbers.same_map(maps[x], their_numbers, maps[y]);
      };
      return same(to) && same(from) && same(compute_copy);
    });
  }

  Names ranks_of(const UnitMaps& unit) const {
    std::vector<bool> there;
    for (const std::vector<ShardMap>* maps : {&from, &compute_copy, &to})
      if (!maps->empty())
        for (const int tensor : unit.tensors)
          for (const layout::Shard& shard : (*maps)[static_cast<size_t>(tensor)].shards) {
            if (there.size() <= static_cast<size_t>(shard.rank)) there.resize(static_cast<size_t>(shard.rank) + 1);
            there[static_cast<size_t>(shard.rank)] = true;
          }
    std::vector<int> ranks;
    for (size_t rank = 0; rank < there.size(); ++rank)
      if (there[rank]) ranks.push_back(static_cast<int>(rank));
    return std::make_shared<const std::vector<int>>(std::move(ranks));
  }

  /// All sources of a tensor as one map; those of `from` first.
  ShardMap sources(size_t tensor) const {
    if (compute_copy.empty()) return from.empty() ? ShardMap{to[tensor].shape, 1, {}} : from[tensor];
    return from.empty() ? compute_copy[tensor] : layout::as_copies({from[tensor], compute_copy[tensor]});
  }
};

void check_partials(const layout::Slice& slice, int partials) {
  const std::set<int> found(slice.partials.begin(), slice.partials.end());
  check(static_cast<int>(found.size()) == partials, "box {} has {} of {} partials", slice.box, found.size(), partials);
}

/// Drops shards of the compute copy (those from `first_compute_copy` on) on hosts where the previous strategy has
/// copies, because a finely cut compute copy would only make slices small. Ranks that want the cell themselves keep
/// their shard.
layout::NarrowHolders prefer_previous(const ShardMap& sources, size_t first_compute_copy, const Cluster& cluster) {
  return [&sources, first_compute_copy, &cluster](std::vector<int>& shards, const std::vector<int>& takers) {
    const auto middle = std::lower_bound(shards.begin(), shards.end(), static_cast<int>(first_compute_copy));
    const auto rank_of = [&](int shard) { return sources.shards[static_cast<size_t>(shard)].rank; };
    const auto is_dropped = [&](int shard) {
      const int rank = rank_of(shard);
      return std::any_of(shards.begin(), middle, [&](int other) { return cluster.same_host(rank_of(other), rank); }) &&
             std::find(takers.begin(), takers.end(), rank) == takers.end();
    };
    shards.erase(std::remove_if(middle, shards.end(), is_dropped), shards.end());
  };
}

/// The maps of one unit's tensors, its ranks numbered.
struct UnitsOwnMaps {
  UnitsOwnMaps(const UnitMaps& unit, const Maps& maps, const Numbering& numbers) {
    for (const int tensor : unit.tensors) {
      const auto t = static_cast<size_t>(tensor);
      if (!maps.from.empty()) from.push_back(numbers.within(maps.from[t]));
      if (!maps.compute_copy.empty()) compute_copy.push_back(numbers.within(maps.compute_copy[t]));
      to.push_back(numbers.within(maps.to[t]));
    }
  }
  Maps maps() const { return {from, compute_copy, to}; }
  std::vector<ShardMap> from, compute_copy, to;
};

std::vector<TensorSlice> slices_of(const UnitMaps& unit, const Maps& own, const Cluster& cluster) {
  std::vector<TensorSlice> result;
  for (size_t i = 0; i < unit.tensors.size(); ++i) {
    const ShardMap sources = own.sources(i);
    const size_t first_compute_copy = own.from.empty() ? 0 : own.from[i].shards.size();
    try {
      for (auto& slice : layout::slices(sources, own.to[i], prefer_previous(sources, first_compute_copy, cluster))) {
        check_partials(slice, sources.partials);
        result.push_back({static_cast<int>(i), std::move(slice)});
      }
    } catch (const InternalError& error) {
      throw InternalError(fmt::format("tensor {}: {}", unit.tensors[i], error.what()));
    }
  }
  return result;
}

Rounds relayed(std::span<const TensorSlice> slices, const Maps& own, const Cluster& cluster, bool sum) {
  std::vector<ShardMap> from;
  for (size_t i = 0; i < own.to.size(); ++i) from.push_back(own.sources(i));
  const std::vector<Bundle> all = bundles(slices);
  Rounds moves;
  for (std::vector<BundleRange>& round : sum ? relay_reduce(all, cluster) : relay_switch(all, cluster))
    moves.rounds.push_back(coalesced(std::move(round), from, own.to));
  return moves;
}

Rounds sorted(Rounds moves) {
  for (auto& round : moves.rounds) layout::sort_messages(round);
  return moves;
}

/// The patterns of all rounds that aren't empty.
std::vector<MessageList::Pattern> patterns_of(Rounds moves) {
  std::vector<MessageList::Pattern> patterns;
  for (auto& round : moves.rounds)
    if (!round.empty()) patterns.push_back(std::make_shared<const layout::MessagePattern>(std::move(round)));
  return patterns;
}

/// Attaches the names of ranks and tensors to the unit's patterns.
SharedRounds named(const std::vector<MessageList::Pattern>& patterns, const Names& ranks, const UnitMaps& unit) {
  const auto tensors = std::make_shared<const std::vector<int>>(unit.tensors);
  SharedRounds shared;
  for (const MessageList::Pattern& pattern : patterns) shared.rounds.emplace_back(pattern, ranks, tensors);
  return shared;
}

/// Plans each distinct unit once. Direct policies share only the slices, because their loads carry over.
MovePlan plan_units(const std::vector<UnitMaps>& units, const Maps& maps, const Cluster& cluster, Planner planner,
                    bool sum) {
  struct Known {
    const UnitMaps* unit;
    Numbering numbers;
    Cluster cluster;
    std::vector<TensorSlice> slices;
    std::vector<MessageList::Pattern> moves;  // relay only
  };
  std::optional<DirectPlanner> direct;
  if (planner != Planner::relay) direct.emplace(planner, cluster);
  std::vector<Known> known;
  MovePlan plan{{}, sum};
  for (size_t u = 0; u < units.size(); ++u) {
    const Numbering numbers(direct ? nullptr : maps.ranks_of(units[u]));
    const Cluster within = numbers.within(cluster);
    auto same = std::find_if(known.rbegin(), known.rend(), [&](const Known& other) {
      return other.cluster.host == within.host &&
             maps.same_maps(other.unit->tensors, other.numbers, units[u].tensors, numbers);
    });
    if (same == known.rend()) {
      const UnitsOwnMaps own(units[u], maps, numbers);
      Known fresh{.unit = &units[u],
                  .numbers = numbers,
                  .cluster = within,
                  .slices = slices_of(units[u], own.maps(), within),
                  .moves = {}};
      if (!direct) fresh.moves = patterns_of(relayed(fresh.slices, own.maps(), within, sum));
      known.push_back(std::move(fresh));
      same = known.rbegin();
    }
    const Names& known_names =
        same->numbers.names();  // equal names are shared: equal lists are known by their pointers
    const Names& names = known_names && *known_names == *numbers.names() ? known_names : numbers.names();
    const auto moves =
        direct ? patterns_of(sorted(sum ? direct->reduce_unit(same->slices) : direct->switch_unit(same->slices)))
               : same->moves;
    plan.units.push_back({static_cast<int>(u), named(moves, names, units[u])});
  }
  return plan;
}

using Verify = void (*)(layout::RoundSpans, const std::vector<ShardMap>&, const std::vector<ShardMap>&);

/// Replays each unit's messages, as they are numbered, except those of units that differ from another one in names
/// only. What no unit moves must be where it is wanted.
class Proof {
 public:
  Proof(const Maps& maps, Verify verify) : maps_(maps), verify_(verify), moved_(maps.to.size()) {}

  void prove(const MovePlan& plan) {
    for (size_t u = 0; u < plan.units.size(); ++u) {
      try {
        check(plan.units[u].unit == static_cast<int>(u), "has the number {}", plan.units[u].unit);
        if (!plan.units[u].moves.rounds.empty()) prove(plan.units[u].moves);
      } catch (const InternalError& error) {
        throw InternalError(fmt::format("unit {}: {}", u, error.what()));
      }
    }
    prove_rest();
  }

 private:
  struct Proven {
    const SharedRounds* moves;
    Numbering numbers;
  };

  void prove(const SharedRounds& moves) {
    const MessageList& first = moves.rounds[0];
    check(first.tensors() && std::ranges::all_of(moves.rounds,
                                                 [&](const MessageList& round) {
                                                   return round.ranks() == first.ranks() &&
                                                          round.tensors() == first.tensors();
                                                 }),
          "its rounds have different names");
    for (const int tensor : *first.tensors()) {
      const auto t = static_cast<size_t>(tensor);
      check(t < moved_.size() && !moved_[t], "moves tensor {}, which is no tensor or moved already", tensor);
      moved_[t] = true;
    }
    const Numbering numbers(first.ranks());
    if (std::ranges::any_of(proven_, [&](const Proven& other) { return differ_in_names(other, moves, numbers); }))
      return;
    try {
      replay(moves, numbers);
    } catch (const InternalError& error) {
      const std::string ranks = first.ranks() ? fmt::format("ranks {} and ", *first.ranks()) : "";
      throw InternalError(fmt::format("{} (numbers of {}tensors {})", error.what(), ranks, *first.tensors()));
    }
    proven_.push_back({&moves, numbers});
  }

  bool differ_in_names(const Proven& proven, const SharedRounds& moves, const Numbering& numbers) const {
    const auto same_pattern = [](const MessageList& a, const MessageList& b) { return a.pattern() == b.pattern(); };
    return std::ranges::equal(proven.moves->rounds, moves.rounds, same_pattern) &&
           maps_.same_maps(*proven.moves->rounds[0].tensors(), proven.numbers, *moves.rounds[0].tensors(), numbers);
  }

  void replay(const SharedRounds& moves, const Numbering& numbers) const {
    const UnitsOwnMaps own({*moves.rounds[0].tensors()}, maps_, numbers);
    std::vector<ShardMap> from;
    for (size_t i = 0; i < own.to.size(); ++i) from.push_back(own.maps().sources(i));
    std::vector<std::span<const layout::Msg>> spans;
    for (const MessageList& round : moves.rounds) spans.push_back(round.pattern()->messages());
    verify_(spans, from, own.to);
  }

  void prove_rest() const {
    std::vector<ShardMap> from, to;
    for (size_t t = 0; t < moved_.size(); ++t) {
      const ShardMap nothing{maps_.to[t].shape, 1, {}};
      from.push_back(moved_[t] ? nothing : maps_.sources(t));
      to.push_back(moved_[t] ? nothing : maps_.to[t]);
    }
    verify_({}, from, to);
  }

  Maps maps_;
  Verify verify_;
  std::vector<bool> moved_;
  std::vector<Proven> proven_;
};

void check_lists(const std::vector<UnitMaps>& units, const Maps& maps) {
  const size_t tensors = maps.to.size();
  check(maps.from.empty() || maps.from.size() == tensors, "{} tensors to move, {} sources", tensors, maps.from.size());
  check(maps.compute_copy.empty() || maps.compute_copy.size() == tensors, "{} tensors to move, {} compute copies",
        tensors, maps.compute_copy.size());
  for (const UnitMaps& unit : units) {
    for (const int tensor : unit.tensors)
      check(static_cast<size_t>(tensor) < tensors, "unit with tensor {} of {}", tensor, tensors);
  }
}

}  // namespace

MovePlan plan_switch(const std::vector<UnitMaps>& units, const std::vector<ShardMap>& from,
                     const std::vector<ShardMap>& compute_copy, const std::vector<ShardMap>& to, const Cluster& cluster,
                     Planner planner) {
  const Maps maps{from, compute_copy, to};
  check_lists(units, maps);
  return plan_units(units, maps, cluster, planner, false);
}

MovePlan plan_reduce(const std::vector<UnitMaps>& units, const std::vector<ShardMap>& grad,
                     const std::vector<ShardMap>& home, const Cluster& cluster, Planner planner) {
  const std::vector<ShardMap> none;
  const Maps maps{grad, none, home};
  check_lists(units, maps);
  return plan_units(units, maps, cluster, planner, true);
}

void verify_switch(const MovePlan& plan, const std::vector<ShardMap>& from, const std::vector<ShardMap>& compute_copy,
                   const std::vector<ShardMap>& to) {
  Proof({from, compute_copy, to}, layout::verify_copied).prove(plan);
}

void verify_reduce(const MovePlan& plan, const std::vector<ShardMap>& grad, const std::vector<ShardMap>& home) {
  Proof({grad, {}, home}, layout::verify_summed).prove(plan);
}

}  // namespace switchyard::switching
