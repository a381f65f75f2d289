// Messages that turn one ShardMap into another, their proof, and the names of collectives between layouts.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/cluster.hpp"
#include "layout/layout.hpp"

namespace switchyard::layout {

/// One box of one tensor from src to dst; it lies inside one shard of each. src == dst: a local copy (or view).
/// `tensor` indexes the caller's list of tensors.
struct Msg {
  int src = 0, dst = 0, tensor = 0;
  Box box;
  bool operator==(const Msg&) const = default;
};

/// Rounds of messages: a round may forward (or add) what earlier rounds brought; messages of one round are concurrent.
struct Rounds {
  std::vector<std::vector<Msg>> rounds;
};

struct LinkBytes {
  i64 intra_host = 0, inter_host = 0;
  bool operator==(const LinkBytes&) const = default;
};
/// The name of the cheapest collective between two layouts. `nothing`: they are the same; `slice`: each rank keeps a
/// part of what it has; `point_to_point`: the same layout on other ranks; `general`: none of these.
enum class Pattern { nothing, slice, all_gather, reduce_scatter, all_reduce, all_to_all, point_to_point, general };
std::string_view name_of(Pattern pattern);

/// A pattern and its arguments. axes: the axes whose members exchange (slice: the axes that are new), outermost first.
/// dim_from: the dim that loses them (all_gather, all_to_all); dim_to: the one that gains them (slice, reduce_scatter,
/// all_to_all); -1 where there is none, or where several dims are concerned.
struct Collective {
  Pattern pattern = Pattern::general;
  std::vector<int> axes;
  int dim_from = -1, dim_to = -1;
  bool operator==(const Collective&) const = default;
};
/// The collective between two layouts of one mesh. Axes of size 1 are ignored. The members of a group, in the order of
/// Mesh::peers(position, axes), hold consecutive parts of the group's box; parts may be uneven or empty.
Collective collective_between(const Mesh& mesh, const Layout& from, const Layout& to);
/// The same between two meshes: point_to_point where axes and layouts are equal and the ranks differ; general where the
/// axes differ.
Collective collective_between(const Mesh& from_mesh, const Layout& from, const Mesh& to_mesh, const Layout& to);
Pattern classify(const Mesh& mesh, const Layout& from, const Layout& to);

/// Sorted by source, destination, tensor, lower corner: the order in which messages are packed and sums are formed.
void sort_messages(std::vector<Msg>& messages);

using RoundSpans = std::span<const std::span<const Msg>>;
/// Copy: from has one partial, to has one partial. Throws InternalError naming tensor, box and ranks unless every
/// element of every destination shard is written exactly once: by a local message (src == dst) if its rank holds it in
/// `from`, else by a message whose source holds it in that round (from `from` itself or from an earlier round).
void verify_copied(RoundSpans rounds, const std::vector<ShardMap>& from, const std::vector<ShardMap>& to);
/// Sum: `to` has one owner per element and one partial; on each rank `from` has at most one shard per tensor that
/// contains a given element. A message carries the sender's running sum of the box as it stands when the round starts.
/// The receiver adds it to its own running sum if it holds the box in `from`, else straight into its `to` shard. A
/// local message (src == dst) adds the running sum into the `to` shard. Throws unless every destination element ends
/// with every partial of `from` exactly once.
void verify_summed(RoundSpans rounds, const std::vector<ShardMap>& from, const std::vector<ShardMap>& to);

}  // namespace switchyard::layout
