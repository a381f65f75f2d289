#include "switching/coalesce.hpp"

#include <algorithm>
#include <array>
#include <tuple>

#include "layout/overlay.hpp"

namespace switchyard::switching {
namespace {

using layout::Box;
using layout::Msg;
using layout::ShardMap;

/// The shards of each rank, found without a search over all.
class ShardFinder {
 public:
  explicit ShardFinder(const ShardMap& map) : map_(map) {
    for (size_t s = 0; s < map.shards.size(); ++s) order_.push_back(static_cast<int>(s));
    std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return rank(a) < rank(b); });
  }
  /// The first shard of the rank that contains the box; -1 if there is none.
  int find(int of_rank, const Box& box) const {
    auto at = std::lower_bound(order_.begin(), order_.end(), of_rank, [&](int shard, int wanted) { return rank(shard) < wanted; });
    for (; at != order_.end() && rank(*at) == of_rank; ++at) {
      if (map_.shards[static_cast<size_t>(*at)].box.contains(box)) return *at;
    }
    return -1;
  }

 private:
  int rank(int shard) const { return map_.shards[static_cast<size_t>(shard)].rank; }

  const ShardMap& map_;
  std::vector<int> order_;  // shards by rank
};

/// A message and what it must have in common with those it is joined with.
struct Placed {
  Msg msg;
  std::array<int, 4> shards{};  // of the source in from, to; of the destination in from, to
  auto key() const { return std::tuple(msg.src, msg.dst, msg.tensor, shards); }
};

}  // namespace

std::vector<Msg> coalesce(std::vector<Msg> messages, const std::vector<ShardMap>& from, const std::vector<ShardMap>& to) {
  std::vector<ShardFinder> sources(from.begin(), from.end()), targets(to.begin(), to.end());
  std::vector<Placed> placed;
  placed.reserve(messages.size());
  for (const Msg& msg : messages) {
    const ShardFinder& source = sources[static_cast<size_t>(msg.tensor)];
    const ShardFinder& target = targets[static_cast<size_t>(msg.tensor)];
    placed.push_back(
        {msg,
         {source.find(msg.src, msg.box), target.find(msg.src, msg.box), source.find(msg.dst, msg.box), target.find(msg.dst, msg.box)}});
  }
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.key() < b.key(); });
  messages.clear();
  for (auto first = placed.begin(); first != placed.end();) {
    const auto end = std::find_if(first, placed.end(), [&](const Placed& other) { return other.key() != first->key(); });
    std::vector<Box> boxes;
    for (auto at = first; at != end; ++at) boxes.push_back(at->msg.box);
    for (const Box& box : layout::merge(std::move(boxes))) messages.push_back({first->msg.src, first->msg.dst, first->msg.tensor, box});
    first = end;
  }
  layout::sort_messages(messages);
  return messages;
}

}  // namespace switchyard::switching
