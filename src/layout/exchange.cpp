#include "layout/exchange.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/errors.hpp"

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

// Holders of one addend, best source for `rank` first: itself, then by distance in rank order going round.
std::vector<const Shard*> sources(const ShardMap& from, int addend, int rank) {
  std::vector<const Shard*> list;
  for (const Shard& shard : from.shards)
    if (shard.addend == addend && !shard.box.empty()) list.push_back(&shard);
  std::stable_sort(list.begin(), list.end(),
                   [&](const Shard* a, const Shard* b) { return std::abs(a->rank - rank) < std::abs(b->rank - rank); });
  return list;
}

// Pieces of `wanted` that addend `addend` brings to `shard`'s rank; each element from one holder.
void fetch(std::map<int, Part>& parts, const ShardMap& from, int addend, const Shard& shard, bool add) {
  std::vector<Box> missing;
  if (!shard.box.empty()) missing.push_back(shard.box);
  for (const Shard* source : sources(from, addend, shard.rank)) {
    std::vector<Box> left;
    for (const Box& box : missing) {
      const Box common = intersect(box, source->box);
      if (common.empty()) {
        left.push_back(box);
        continue;
      }
      part_of(parts, source->rank).sends.push_back({shard.rank, common, false});
      part_of(parts, shard.rank).receives.push_back({source->rank, common, add});
      for (const Box& rest : subtract(box, common)) left.push_back(rest);
    }
    missing = std::move(left);
  }
  check(missing.empty(), "exchange: rank {} finds no holder of addend {} for {}", shard.rank, addend,
        missing.empty() ? "" : to_string(missing[0]));
}

// Every rank of both maps takes part, if only to agree that it has nothing to do.
std::map<int, Part> everyone(const ShardMap& from, const ShardMap& to) {
  std::map<int, Part> parts;
  for (const Shard& s : from.shards) part_of(parts, s.rank);
  for (const Shard& s : to.shards) part_of(parts, s.rank);
  return parts;
}

Step copy_step(const ShardMap& from, const ShardMap& to) {
  std::map<int, Part> parts = everyone(from, to);
  for (const Shard& shard : to.shards) fetch(parts, from, 0, shard, false);
  return finish(parts);
}

Step sum_step(const ShardMap& from, const ShardMap& to) {
  std::map<int, Part> parts = everyone(from, to);
  for (const Shard& shard : to.shards)
    for (int addend = 0; addend < from.addends; ++addend) fetch(parts, from, addend, shard, addend > 0);
  return finish(parts);
}

bool has_copies(const ShardMap& map) {
  i64 held = 0;
  for (const Shard& shard : map.shards) held += shard.box.elements();
  return held > map.shape.elements();
}

// Of each addend of `from`, the addend of `to` that it goes into: the first that one of its holders is to hold.
std::vector<int> successors(const ShardMap& from, const ShardMap& to) {
  std::vector<std::set<int>> holders(static_cast<size_t>(from.addends));
  for (const Shard& shard : from.shards) holders[static_cast<size_t>(shard.addend)].insert(shard.rank);
  std::vector<int> list;
  for (const std::set<int>& ranks : holders) {
    int successor = to.addends;
    for (const Shard& shard : to.shards)
      if (ranks.contains(shard.rank)) successor = std::min(successor, shard.addend);
    list.push_back(successor % to.addends);
  }
  return list;
}

// Addends stay addends: those of `to` are sums of some of `from`, or zero.
Step regroup_addends(const ShardMap& from, const ShardMap& to) {
  std::map<int, Part> parts = everyone(from, to);
  const std::vector<int> into = successors(from, to);
  for (const Shard& shard : to.shards) {
    bool empty = true;
    for (int addend = 0; addend < from.addends; ++addend) {
      if (into[static_cast<size_t>(addend)] != shard.addend) continue;
      fetch(parts, from, addend, shard, !empty);
      empty = false;
    }
    if (empty) part_of(parts, shard.rank).zero = true;
  }
  return finish(parts);
}

}  // namespace

std::vector<Step> exchange(const ShardMap& from, const ShardMap& to) {
  check(from.shape.size == to.shape.size, "exchange: shapes differ");
  if (to.addends > 1) return {regroup_addends(from, to)};
  if (from.addends == 1) return {copy_step(from, to)};
  if (!has_copies(to)) return {sum_step(from, to)};
  const ShardMap owners = one_owner(to);
  return {sum_step(from, owners), copy_step(owners, to)};
}

i64 sent_elements(const Part& part) {
  i64 total = 0;
  for (const Piece& piece : part.sends)
    if (piece.peer != part.rank) total += piece.box.elements();
  return total;
}

}  // namespace switchyard::layout
