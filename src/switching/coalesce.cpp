#include "switching/coalesce.hpp"

#include <algorithm>
#include <array>
#include <tuple>

#include "layout/overlay.hpp"
#include "layout/rank_shards.hpp"

namespace switchyard::switching {
namespace {

using layout::Box;
using layout::Msg;
using layout::ShardMap;

/// A message and the shards that it must have in common with messages it is joined with.
struct Placed {
  Msg msg;
  std::array<int, 4> shards{};  // of the source in from, to; of the destination in from, to
  auto key() const { return std::tuple(msg.src, msg.dst, msg.tensor, shards); }
};

}  // namespace

std::vector<Msg> coalesce(std::vector<Msg> messages, const std::vector<ShardMap>& from,
                          const std::vector<ShardMap>& to) {
  std::vector<layout::RankShards> sources(from.begin(), from.end()), targets(to.begin(), to.end());
  std::vector<Placed> placed;
  placed.reserve(messages.size());
  for (const Msg& msg : messages) {
    const layout::RankShards& source = sources[static_cast<size_t>(msg.tensor)];
    const layout::RankShards& target = targets[static_cast<size_t>(msg.tensor)];
    placed.push_back({msg,
                      {source.find(msg.src, msg.box), target.find(msg.src, msg.box), source.find(msg.dst, msg.box),
                       target.find(msg.dst, msg.box)}});
  }
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.key() < b.key(); });
  messages.clear();
  for (auto first = placed.begin(); first != placed.end();) {
    const auto end =
        std::find_if(first, placed.end(), [&](const Placed& other) { return other.key() != first->key(); });
    std::vector<Box> boxes;
    for (auto at = first; at != end; ++at) boxes.push_back(at->msg.box);
    for (const Box& box : layout::merge(std::move(boxes)))
      messages.push_back({first->msg.src, first->msg.dst, first->msg.tensor, box});
    first = end;
  }
  layout::sort_messages(messages);
  return messages;
}

}  // namespace switchyard::switching
