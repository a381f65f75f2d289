// Exchange: resharding among ranks that run in lockstep, as transactions of sends and receives. Used inside segments
// (tensor and sequence parallel collectives) and between pipeline stages; switches and reductions plan with switching/.
#pragma once

#include <span>
#include <vector>

#include "cluster/cluster.hpp"
#include "layout/group_collectives.hpp"
#include "layout/layout.hpp"

namespace switchyard::layout {

/// A rank's memory in an exchange: the shard that it starts with, the one that it ends with, and sums that it makes for
/// others.
enum class Place { input, output, scratch };

/// What one rank does in one transaction. Receives take effect in the order of the list; the first piece of an element
/// overwrites, later ones (add) are further partials. peer == the rank itself: a local piece. place: where a sent piece
/// is read; where a received one goes, output or scratch. Local pieces are read from the input.
struct Piece {
  int peer = 0;
  Box box;  // global coordinates
  bool add = false;
  Place place = Place::output;
  bool operator==(const Piece&) const = default;
};
struct Part {
  int rank = 0;
  std::vector<Piece> sends, receives;
  bool zero = false;  // the destination is filled with zeros instead (a copy that becomes a partial)
};
struct Step {
  std::vector<Part> parts;  // one for each rank that holds something in `from` or `to`, ascending
};

/// Steps [first, end) that are the same as a collective in each of the groups, which all ranks of the exchange are in.
/// source: where what the ranks give lies; the result is in their output.
struct Stretch {
  size_t first = 0, end = 0;
  Place source = Place::input;
  std::vector<GroupCollective> groups{};
};

/// Steps, one after the other. scratch: boxes of sums that a rank makes for others, by part; disjoint, and each piece
/// there is one of them. stretches: of those that begin at one step the longest comes first.
struct Exchange {
  std::vector<Step> steps;
  std::vector<std::vector<Box>> scratch;
  std::vector<Stretch> stretches{};
};

/// Steps that turn `from` into `to` with direct messages. A rank has at most one shard in each map. Sums are in order
/// of partials on every receiver. Where several copies of a sum are wanted, the sum is made in pieces first (one step)
/// and then gathered (ring volume of an all-reduce). Where `to` has several partials, each partial of `from` goes into
/// the first one that one of its holders is to hold, so that most stay where they are; partials of `to` that get none
/// are zero.
Exchange exchange(const ShardMap& from, const ShardMap& to);

/// The same over hosts: what several ranks of a host lack crosses to that host once, to one of them, and is passed on
/// inside; partials of a host are summed there before they cross. Ranks of a host share the crossings evenly. A sum is
/// that of its owner's host, in order of partials, plus those of the other hosts in their order. host: of each rank.
/// `to` has one partial.
Exchange exchange_over_hosts(const ShardMap& from, const ShardMap& to, std::span<const int> host);

/// The faster of both by nominal rates of links: a network port of each rank, and five times its rate inside a host.
/// The rates are constants, so that all ranks of a job and its simulation choose the same. Direct if both take equally
/// long.
Exchange quickest_exchange(const ShardMap& from, const ShardMap& to, std::span<const int> host);

/// The hosts of some ranks, numbered in the order in which they appear.
std::vector<int> host_pattern(std::span<const int> ranks, const cluster::Cluster& cluster);

/// Elements that `part` sends to other ranks.
i64 sent_elements(const Part& part);

/// Replays an exchange on sets of holders. InternalError unless sends and receives pair up, every piece lies inside a
/// shard and is present when it is sent, nothing is sent and overwritten in one step, and every element of every shard
/// of `to` ends with every partial exactly once (`to` with several partials: in exactly one of them).
void verify_exchange(const Exchange& exchange, const ShardMap& from, const ShardMap& to);

}  // namespace switchyard::layout
