// Hot switching: which messages bring the parameters of one strategy to another, and the gradients home.
// Source: HotSPa (SOSP 2024) for switching and for `greedy`; relays across hosts are ours.
#pragma once

#include <vector>

#include "cluster/cluster.hpp"
#include "config/switch_planner.hpp"
#include "layout/message_list.hpp"

namespace switchyard::switching {

using Planner = config::SwitchPlanner;

/// The tensors (indices into the lists of maps) that move together: one model layer, the embedding, or the head.
struct UnitMaps {
  std::vector<int> tensors;
};

/// The same as layout::Rounds; units that differ only in names share their messages.
struct SharedRounds {
  std::vector<layout::MessageList> rounds;
};

/// `unit` is the index in the list of units.
struct UnitMoves {
  int unit = 0;
  SharedRounds moves;
};

/// One entry per unit, in their order. Rounds are never empty; messages of a round are in order of source, destination,
/// tensor (as the unit lists them), box.
struct MovePlan {
  std::vector<UnitMoves> units;
  bool sum = false;
};

/// Moves parameters to the shards of `to`. Sources are `from` (the previous strategy's copies) and `compute_copy`
/// (home's, in compute precision); either list may be empty, and so may a map in it. A shard that a rank already holds
/// in `from` or `compute_copy` becomes a local message of round 0. `from` is preferred: `compute_copy` is used only on
/// hosts that `from` doesn't reach, and of ranks that want it themselves. Units of equal maps get equal moves (greedy
/// and round_robin: except for the effect of their load counters). For relay, this also holds where ranks and hosts
/// have other numbers in the same order, as for layers of other pipeline stages. InternalError if an element is on no
/// rank.
MovePlan plan_switch(const std::vector<UnitMaps>& units, const std::vector<layout::ShardMap>& from,
                     const std::vector<layout::ShardMap>& compute_copy, const std::vector<layout::ShardMap>& to,
                     const cluster::Cluster& cluster, Planner planner);

/// Moves gradients (any partials, any copies) to `home` (one owner per element). The last round has the local messages:
/// the owner's own sum, once all partials that it adds have arrived.
MovePlan plan_reduce(const std::vector<UnitMaps>& units, const std::vector<layout::ShardMap>& grad,
                     const std::vector<layout::ShardMap>& home, const cluster::Cluster& cluster, Planner planner);

/// Verifies the whole plan by layout::verify_copied and verify_summed. Among units whose maps and moves differ only in
/// names, one is replayed. InternalError, which names the unit, if a shard is not what it should be afterwards.
void verify_switch(const MovePlan& plan, const std::vector<layout::ShardMap>& from,
                   const std::vector<layout::ShardMap>& compute_copy, const std::vector<layout::ShardMap>& to);
void verify_reduce(const MovePlan& plan, const std::vector<layout::ShardMap>& grad,
                   const std::vector<layout::ShardMap>& home);

}  // namespace switchyard::switching
