#include "layout/group_collectives.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace switchyard::layout {
namespace {

// Boxes in order of their lower corners.
struct Before {
  bool operator()(const Box& a, const Box& b) const { return std::tie(a.lo, a.hi) < std::tie(b.lo, b.hi); }
};

using ShardOf = std::map<int, const Shard*>;

// Nothing if a rank has several.
std::optional<ShardOf> by_rank(const ShardMap& map) {
  ShardOf shards;
  for (const Shard& shard : map.shards)
    if (!shard.box.empty() && !shards.emplace(shard.rank, &shard).second) return std::nullopt;
  return shards;
}

bool same_size(const Box& a, const Box& b) {
  for (int d = 0; d < a.dims; ++d)
    if (a.size(d) != b.size(d)) return false;
  return true;
}

// Whether boxes of one size, in order, are all of `whole` once.
bool tile(const std::vector<Box>& pieces, const Box& whole) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!whole.contains(pieces[i]) || !same_size(pieces[i], pieces[0])) return false;
    for (size_t j = 0; j < i; ++j)
      if (!intersect(pieces[i], pieces[j]).empty()) return false;
  }
  return static_cast<i64>(pieces.size()) * pieces[0].elements() == whole.elements();
}

// The ranks of each key, dealt to groups: each has one rank of every key, in the order of keys. None unless all keys
// have equally many.
template <class Key, class Order>
std::vector<std::vector<int>> dealt(const std::map<Key, std::vector<int>, Order>& ranks_of) {
  std::vector<std::vector<int>> groups(ranks_of.begin()->second.size());
  for (const auto& [key, ranks] : ranks_of) {
    if (ranks.size() != groups.size()) return {};
    for (size_t g = 0; g < groups.size(); ++g) groups[g].push_back(ranks[g]);
  }
  return groups;
}

std::optional<std::vector<GroupCollective>> gathers(const Box& whole, const std::vector<int>& ranks,
                                                    const ShardOf& held) {
  std::map<Box, std::vector<int>, Before> holders;
  for (const int rank : ranks) {
    const auto own = held.find(rank);
    if (own == held.end()) return std::nullopt;
    holders[own->second->box].push_back(rank);
  }
  std::vector<Box> pieces;
  for (const auto& [piece, of_piece] : holders) pieces.push_back(piece);
  if (pieces.size() < 2 || !tile(pieces, whole)) return std::nullopt;
  std::vector<GroupCollective> groups;
  for (std::vector<int>& group : dealt(holders))
    groups.push_back({.call = GroupCall::all_gather, .ranks = std::move(group), .pieces = pieces});
  return groups;
}

std::optional<std::vector<GroupCollective>> reductions(const Box& whole, const std::vector<int>& ranks, int partials,
                                                       const ShardOf& held, const ShardOf& wanted) {
  std::map<int, std::vector<int>> holders;  // by partial
  for (const int rank : ranks) holders[held.at(rank)->partial].push_back(rank);
  if (holders.size() != static_cast<size_t>(partials)) return std::nullopt;
  std::vector<GroupCollective> groups;
  for (const std::vector<int>& group : dealt(holders)) {
    std::map<Box, int, Before> taker;
    for (const int rank : group) {
      const auto own = wanted.find(rank);
      if (own == wanted.end()) return std::nullopt;
      taker[own->second->box] = rank;
    }
    if (taker.size() == 1 && taker.begin()->first == whole) {
      groups.push_back({.call = GroupCall::all_reduce, .ranks = group, .pieces = {whole}});
      continue;
    }
    GroupCollective& made = groups.emplace_back(GroupCollective{.call = GroupCall::reduce_scatter});
    for (const auto& [piece, rank] : taker) {
      made.ranks.push_back(rank);
      made.pieces.push_back(piece);
    }
    if (!tile(made.pieces, whole)) return std::nullopt;
  }
  return groups;
}

}  // namespace

std::vector<GroupCollective> group_collectives(const ShardMap& from, const ShardMap& to) {
  if (to.partials > 1) return {};
  const std::optional<ShardOf> held = by_rank(from), wanted = by_rank(to);
  if (!held || !wanted) return {};
  const bool adds = from.partials > 1;
  std::map<Box, std::vector<int>, Before> ranks_of;  // by what they gather, or make sums of
  for (const Shard& shard : adds ? from.shards : to.shards)
    if (!shard.box.empty()) ranks_of[shard.box].push_back(shard.rank);
  std::vector<GroupCollective> all;
  for (const auto& [whole, ranks] : ranks_of) {
    const auto groups = adds ? reductions(whole, ranks, from.partials, *held, *wanted) : gathers(whole, ranks, *held);
    if (!groups) return {};
    all.insert(all.end(), groups->begin(), groups->end());
  }
  size_t members = 0;
  for (const GroupCollective& group : all) members += group.ranks.size();
  return members == wanted->size() ? all : std::vector<GroupCollective>();
}

}  // namespace switchyard::layout
