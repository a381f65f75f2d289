#include "switching/coalesce.hpp"

#include <algorithm>
#include <array>
#include <compare>

#include "layout/overlay.hpp"
#include "layout/rank_shards.hpp"

namespace switchyard::switching {
namespace {

using layout::Box;
using layout::Msg;
using layout::ShardMap;

/// What a message must have in common with messages it is joined with, and its place.
struct Placed {
  int src = 0, dst = 0, tensor = 0;
  std::array<int, 4> shards{};  // of the source in from, to; of the destination in from, to
  int place = 0;
  auto operator<=>(const Placed&) const = default;
  bool joins(const Placed& other) const {
    return src == other.src && dst == other.dst && tensor == other.tensor && shards == other.shards;
  }
};

}  // namespace

std::vector<Msg> coalesce(std::vector<Msg> messages, const std::vector<ShardMap>& from,
                          const std::vector<ShardMap>& to) {
  std::vector<layout::RankShards> sources(from.begin(), from.end()), targets(to.begin(), to.end());
  std::vector<Placed> placed;
  placed.reserve(messages.size());
  for (size_t place = 0; place < messages.size(); ++place) {
    const Msg& msg = messages[place];
    const layout::RankShards& source = sources[static_cast<size_t>(msg.tensor)];
    const layout::RankShards& target = targets[static_cast<size_t>(msg.tensor)];
    placed.push_back({.src = msg.src,
                      .dst = msg.dst,
                      .tensor = msg.tensor,
                      .shards = {source.find(msg.src, msg.box), target.find(msg.src, msg.box),
                                 source.find(msg.dst, msg.box), target.find(msg.dst, msg.box)},
                      .place = static_cast<int>(place)});
  }
  std::ranges::sort(placed);
  std::vector<Msg> joined;
  joined.reserve(messages.size());
  for (auto first = placed.begin(); first != placed.end();) {
    const auto end = std::find_if(first, placed.end(), [&](const Placed& other) { return !first->joins(other); });
    const auto box_of = [&](const Placed& one) -> const Box& { return messages[static_cast<size_t>(one.place)].box; };
    if (end - first == 1) {
      joined.push_back({.src = first->src, .dst = first->dst, .tensor = first->tensor, .box = box_of(*first)});
    } else {
      std::vector<Box> boxes;
      for (auto at = first; at != end; ++at) boxes.push_back(box_of(*at));
      for (const Box& box : layout::merge(std::move(boxes)))
        joined.push_back({.src = first->src, .dst = first->dst, .tensor = first->tensor, .box = box});
    }
    first = end;
  }
  layout::sort_messages(joined);
  return joined;
}

}  // namespace switchyard::switching
