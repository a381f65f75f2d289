#include "layout/exchange.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "base/errors.hpp"
#include "layout/slices.hpp"

namespace switchyard::layout {
namespace {

Part& part_of(std::map<int, Part>& parts, int rank) {
  Part& part = parts[rank];
  part.rank = rank;
  return part;
}

Step finish(std::map<int, Part>& parts) {
  Step step;
  for (auto& [rank, part] : parts) step.parts.push_back(std::move(part));
  return step;
}

// Holders of one partial, best source for `rank` first: the rank itself, then by cyclic distance in rank order.
std::vector<const Shard*> sources(const ShardMap& from, int partial, int rank) {
  std::vector<const Shard*> list;
  for (const Shard& shard : from.shards)
    if (shard.partial == partial && !shard.box.empty()) list.push_back(&shard);
  std::stable_sort(list.begin(), list.end(),
                   [&](const Shard* a, const Shard* b) { return std::abs(a->rank - rank) < std::abs(b->rank - rank); });
  return list;
}

// Pieces of `shard` that partial `partial` brings to its rank; each element from one holder, who has it in `place`.
void fetch(std::map<int, Part>& parts, const ShardMap& from, Place place, int partial, const Shard& shard, bool add) {
  std::vector<Box> missing;
  if (!shard.box.empty()) missing.push_back(shard.box);
  for (const Shard* source : sources(from, partial, shard.rank)) {
    std::vector<Box> left;
    for (const Box& box : missing) {
      const Box common = intersect(box, source->box);
      if (common.empty()) {
        left.push_back(box);
        continue;
      }
      if (place == Place::input || source->rank != shard.rank) {  // else it is in place already
        part_of(parts, source->rank).sends.push_back({.peer = shard.rank, .box = common, .place = place});
        part_of(parts, shard.rank).receives.push_back({source->rank, common, add});
      }
      for (const Box& rest : subtract(box, common)) left.push_back(rest);
    }
    missing = std::move(left);
  }
  check(missing.empty(), "exchange: rank {} finds no holder of partial {} for {}", shard.rank, partial,
        missing.empty() ? "" : to_string(missing[0]));
}

// A part for every rank of both maps, with nothing to do.
std::map<int, Part> empty_parts(const ShardMap& from, const ShardMap& to) {
  std::map<int, Part> parts;
  for (const Shard& s : from.shards) part_of(parts, s.rank);
  for (const Shard& s : to.shards) part_of(parts, s.rank);
  return parts;
}

Step copy_step(const ShardMap& from, Place place, const ShardMap& to) {
  std::map<int, Part> parts = empty_parts(from, to);
  for (const Shard& shard : to.shards) fetch(parts, from, place, 0, shard, false);
  return finish(parts);
}

Step sum_step(const ShardMap& from, const ShardMap& to) {
  std::map<int, Part> parts = empty_parts(from, to);
  for (const Shard& shard : to.shards)
    for (int partial = 0; partial < from.partials; ++partial)
      fetch(parts, from, Place::input, partial, shard, partial > 0);
  return finish(parts);
}

bool has_copies(const ShardMap& map) {
  i64 held = 0;
  for (const Shard& shard : map.shards) held += shard.box.elements();
  return held > map.shape.elements();
}

// For each partial of `from`, the partial of `to` that it goes into: the first that one of its holders is to hold.
std::vector<int> successors(const ShardMap& from, const ShardMap& to) {
  std::vector<std::set<int>> holders(static_cast<size_t>(from.partials));
  for (const Shard& shard : from.shards) holders[static_cast<size_t>(shard.partial)].insert(shard.rank);
  std::vector<int> list;
  for (const std::set<int>& ranks : holders) {
    int successor = to.partials;
    for (const Shard& shard : to.shards)
      if (ranks.contains(shard.rank)) successor = std::min(successor, shard.partial);
    list.push_back(successor % to.partials);
  }
  return list;
}

// Partials stay partials: those of `to` are sums of some of `from`, or zero.
Step regroup_partials(const ShardMap& from, const ShardMap& to) {
  std::map<int, Part> parts = empty_parts(from, to);
  const std::vector<int> into = successors(from, to);
  for (const Shard& shard : to.shards) {
    bool empty = true;
    for (int partial = 0; partial < from.partials; ++partial) {
      if (into[static_cast<size_t>(partial)] != shard.partial) continue;
      fetch(parts, from, Place::input, partial, shard, !empty);
      empty = false;
    }
    if (empty) part_of(parts, shard.rank).zero = true;
  }
  return finish(parts);
}

// An exchange in which no rank makes sums for others.
Exchange direct(std::vector<Step> steps) {
  const size_t parts = steps[0].parts.size();
  return {.steps = std::move(steps), .scratch = std::vector<std::vector<Box>>(parts)};
}

// Adds steps [first, end) to the stretches, if they are collectives. A rank that only gives something has no call.
void add_stretch(Exchange& exchange, size_t first, size_t end, Place source, const ShardMap& from, const ShardMap& to) {
  std::vector<GroupCollective> groups = group_collectives(from, to);
  size_t members = 0;
  for (const GroupCollective& group : groups) members += group.ranks.size();
  if (members == exchange.steps[0].parts.size())
    exchange.stretches.push_back({.first = first, .end = end, .source = source, .groups = std::move(groups)});
}

// Adds the stretches of an exchange whose first `sums` steps bring sums to `owners`, and whose other steps copy them.
// sums: 0 if all steps copy.
Exchange with_stretches(Exchange exchange, size_t sums, const ShardMap& from, const ShardMap& owners,
                        const ShardMap& to) {
  const size_t all = exchange.steps.size();
  add_stretch(exchange, 0, all, Place::input, from, to);
  if (sums == 0 || sums == all) return exchange;
  add_stretch(exchange, 0, sums, Place::input, from, owners);
  add_stretch(exchange, sums, all, Place::output, owners, to);
  return exchange;
}

/// Steps over hosts, and the load given to each rank so far: among ranks that could do the same, the one with the least
/// load does it.
class OverHosts {
 public:
  OverHosts(const ShardMap& from, const ShardMap& to, std::span<const int> host)
      : from_(from), to_(to), host_(host), empty_parts_(empty_parts(from, to)) {}

  /// Copies what the holders have in `place`.
  void copy(const ShardMap& from, Place place) {
    std::map<int, Part>&first = add_step(), &second = add_step();
    for (const Slice& slice : slices(from, to_))
      for (const auto& [host, takers] : by_host(slice.takers)) {
        std::vector<int> lacking;
        for (const int taker : takers) {
          if (std::ranges::count(slice.holders, taker) == 0)
            lacking.push_back(taker);
          else if (place == Place::input)
            pass(first, taker, taker, slice.box, place, {.box = slice.box});
        }
        if (const std::vector<int> near = on_host(slice.holders, host); !near.empty()) {
          for (const int taker : lacking)
            pass(first, least(near, sent_, slice.box), taker, slice.box, place, {.box = slice.box});
          continue;
        }
        const int gate = least(lacking, crossed_, slice.box);
        pass(first, least(slice.holders, sent_, slice.box), gate, slice.box, place, {.box = slice.box});
        for (const int taker : lacking)
          if (taker != gate) pass(second, gate, taker, slice.box, Place::output, {.box = slice.box});
      }
  }

  /// Sums to `owners`, each of which owns a part of its shard in `to`.
  void sum(const ShardMap& owners) {
    std::map<int, Part>&inside = add_step(), &across = add_step();
    for (const Slice& slice : slices(from_, owners)) {
      const int owner = slice.takers[0];
      std::map<int, std::vector<int>> partials = contributions(slice, owner);
      bool add = false;
      for (const int rank : partials[host_of(owner)]) {
        pass(across, rank, owner, slice.box, Place::input, {.box = slice.box, .add = add});
        add = true;
      }
      partials.erase(host_of(owner));
      for (const auto& [host, ranks] : partials) {
        const int gate = ranks.size() == 1 ? ranks[0] : least(ranks, crossed_, slice.box);
        if (ranks.size() > 1) {
          scratch_[gate].push_back(slice.box);
          for (size_t i = 0; i < ranks.size(); ++i)
            pass(inside, ranks[i], gate, slice.box, Place::input,
                 {.box = slice.box, .add = i > 0, .place = Place::scratch});
        }
        pass(across, gate, owner, slice.box, ranks.size() == 1 ? Place::input : Place::scratch,
             {.box = slice.box, .add = add});
        add = true;
      }
    }
  }

  /// Steps so far in which something is received: the others are left out.
  size_t kept() const { return static_cast<size_t>(std::ranges::count_if(steps_, receives)); }

  Exchange finished() {
    Exchange done;
    for (std::map<int, Part>& step : steps_)
      if (receives(step)) done.steps.push_back(finish(step));
    if (done.steps.empty()) done.steps.push_back(finish(empty_parts_));
    for (const Part& part : done.steps[0].parts) done.scratch.push_back(std::move(scratch_[part.rank]));
    return done;
  }

 private:
  static bool receives(const std::map<int, Part>& step) {
    return std::ranges::any_of(step, [](const auto& part) { return !part.second.receives.empty(); });
  }
  int host_of(int rank) const { return host_[static_cast<size_t>(rank)]; }
  std::map<int, Part>& add_step() { return steps_.emplace_back(empty_parts_); }

  std::map<int, std::vector<int>> by_host(const std::vector<int>& ranks) const {
    std::map<int, std::vector<int>> hosts;
    for (const int rank : ranks) hosts[host_of(rank)].push_back(rank);
    return hosts;
  }
  std::vector<int> on_host(const std::vector<int>& ranks, int host) const {
    std::vector<int> here;
    std::ranges::copy_if(ranks, std::back_inserter(here), [&](int rank) { return host_of(rank) == host; });
    return here;
  }

  // The first rank with the least load, which is charged for the box.
  static int least(const std::vector<int>& ranks, std::map<int, i64>& load, const Box& box) {
    const int rank = *std::ranges::min_element(ranks, {}, [&](int r) { return load[r]; });
    load[rank] += box.elements();
    return rank;
  }

  static void pass(std::map<int, Part>& step, int from, int to, const Box& box, Place place, Piece received) {
    step.at(from).sends.push_back({.peer = to, .box = box, .place = place});
    received.peer = from;
    step.at(to).receives.push_back(received);
  }

  // The rank that contributes each partial, by host and in order of partials: the owner if it has a copy, else a holder
  // on its host, else one on a host that contributes in any case, else the first.
  std::map<int, std::vector<int>> contributions(const Slice& slice, int owner) const {
    std::vector<int> rank(static_cast<size_t>(from_.partials), -1);
    std::set<int> hosts;
    for (const bool sure : {true, false})
      for (int partial = 0; partial < from_.partials; ++partial) {
        int& chosen = rank[static_cast<size_t>(partial)];
        const std::vector<int> holders = slice.holders_of(partial);
        check(!holders.empty(), "exchange: rank {} finds no holder of partial {} for {}", owner, partial, slice.box);
        if (chosen >= 0 || (sure && by_host(holders).size() > 1)) continue;
        std::vector<int> near = on_host(holders, host_of(owner));
        for (auto host = hosts.begin(); near.empty() && host != hosts.end(); ++host) near = on_host(holders, *host);
        if (near.empty()) near = holders;
        chosen = std::ranges::count(near, owner) > 0 ? owner : near[0];
        hosts.insert(host_of(chosen));
      }
    return by_host(rank);
  }

  const ShardMap& from_;
  const ShardMap& to_;
  std::span<const int> host_;
  std::map<int, Part> empty_parts_;
  std::deque<std::map<int, Part>> steps_;
  std::map<int, std::vector<Box>> scratch_;
  std::map<int, i64> sent_, crossed_;
};

// A rank's port on a kind of link, in one direction.
struct PortLoad {
  double messages = 0, elements = 0;
};

// Time of all steps, in units of an element's time between hosts. Token dims count in units of many tokens, so a
// message's latency is only that of a few elements.
double nominal_time(const Exchange& exchange, std::span<const int> host) {
  constexpr double kIntraHost = 0.2, kLatency = 16;
  double total = 0;
  for (const Step& step : exchange.steps) {
    std::map<std::tuple<int, bool, bool>, PortLoad> ports;
    for (const Part& part : step.parts)
      for (const Piece& piece : part.sends) {
        if (piece.peer == part.rank) continue;
        const bool crosses = host[static_cast<size_t>(part.rank)] != host[static_cast<size_t>(piece.peer)];
        for (const auto& [rank, out] : {std::pair(part.rank, true), std::pair(piece.peer, false)}) {
          PortLoad& port = ports[{rank, crosses, out}];
          port.messages += 1;
          port.elements += static_cast<double>(piece.box.elements());
        }
      }
    double longest = 0;
    for (const auto& [port, load] : ports)
      longest = std::max(longest, (std::get<1>(port) ? 1 : kIntraHost) * (kLatency * load.messages + load.elements));
    total += longest;
  }
  return total;
}

}  // namespace

Exchange exchange(const ShardMap& from, const ShardMap& to) {
  check(from.shape.size == to.shape.size, "exchange: shapes differ");
  if (to.partials > 1) return direct({regroup_partials(from, to)});
  if (from.partials == 1) return with_stretches(direct({copy_step(from, Place::input, to)}), 0, from, to, to);
  if (!has_copies(to)) return with_stretches(direct({sum_step(from, to)}), 0, from, to, to);
  const ShardMap owners = one_owner(to);
  return with_stretches(direct({sum_step(from, owners), copy_step(owners, Place::output, to)}), 1, from, owners, to);
}

Exchange exchange_over_hosts(const ShardMap& from, const ShardMap& to, std::span<const int> host) {
  check(from.shape.size == to.shape.size, "exchange: shapes differ");
  check(to.partials == 1, "exchange over hosts into {} partials", to.partials);
  OverHosts made(from, to, host);
  if (from.partials == 1) {
    made.copy(from, Place::input);
    return with_stretches(made.finished(), 0, from, to, to);
  }
  const ShardMap owners = has_copies(to) ? one_owner(to) : to;
  made.sum(owners);
  const size_t sums = made.kept();
  if (has_copies(to)) made.copy(owners, Place::output);
  return with_stretches(made.finished(), sums, from, owners, to);
}

Exchange quickest_exchange(const ShardMap& from, const ShardMap& to, std::span<const int> host) {
  Exchange straight = exchange(from, to);
  const bool one_host = std::ranges::adjacent_find(host, std::not_equal_to()) == host.end();
  if (one_host || to.partials > 1) return straight;
  Exchange over_hosts = exchange_over_hosts(from, to, host);
  return nominal_time(over_hosts, host) < nominal_time(straight, host) ? over_hosts : straight;
}

std::vector<int> host_pattern(std::span<const int> ranks, const cluster::Cluster& cluster) {
  std::vector<int> seen, pattern;
  for (const int rank : ranks) {
    const int host = cluster.host[static_cast<size_t>(rank)];
    const auto known = std::ranges::find(seen, host);
    pattern.push_back(static_cast<int>(known - seen.begin()));
    if (known == seen.end()) seen.push_back(host);
  }
  return pattern;
}

i64 sent_elements(const Part& part) {
  i64 total = 0;
  for (const Piece& piece : part.sends)
    if (piece.peer != part.rank) total += piece.box.elements();
  return total;
}

}  // namespace switchyard::layout
