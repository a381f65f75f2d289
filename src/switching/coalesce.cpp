#include "switching/coalesce.hpp"

#include <algorithm>
#include <array>
#include <compare>
#include <tuple>
#include <utility>

#include "layout/overlay.hpp"
#include "layout/rank_shards.hpp"

namespace switchyard::switching {
namespace {

using layout::Box;
using layout::Msg;
using layout::RankShards;
using layout::ShardMap;

/// What a message must have in common with messages between the same ranks that it is joined with, and its place.
struct Placed {
  int tensor = 0;
  std::array<int, 4> shards{};  // of the source in from, to; of the destination in from, to
  int place = 0;
  auto operator<=>(const Placed&) const = default;
  bool joins(const Placed& other) const { return tensor == other.tensor && shards == other.shards; }
};

class Coalescer {
 public:
  Coalescer(const std::vector<ShardMap>& from, const std::vector<ShardMap>& to)
      : sources_(from.begin(), from.end()), targets_(to.begin(), to.end()) {}

  /// Appends what becomes of messages between two ranks.
  void add(const std::vector<Msg>& messages, std::vector<Msg>& joined) {
    placed_.clear();
    for (const Msg& msg : messages) {
      const RankShards& source = sources_[static_cast<size_t>(msg.tensor)];
      const RankShards& target = targets_[static_cast<size_t>(msg.tensor)];
      placed_.push_back({.tensor = msg.tensor,
                         .shards = {source.find(msg.src, msg.box), target.find(msg.src, msg.box),
                                    source.find(msg.dst, msg.box), target.find(msg.dst, msg.box)},
                         .place = static_cast<int>(placed_.size())});
    }
    std::ranges::sort(placed_);
    const auto begin = static_cast<std::ptrdiff_t>(joined.size());
    for (auto first = placed_.begin(); first != placed_.end();) {
      const auto end = std::find_if(first, placed_.end(), [&](const Placed& other) { return !first->joins(other); });
      const auto message = [&](const Placed& one) { return messages[static_cast<size_t>(one.place)]; };
      if (end - first == 1) {
        joined.push_back(message(*first));
      } else {
        boxes_.clear();
        for (auto at = first; at != end; ++at) boxes_.push_back(message(*at).box);
        Msg whole = message(*first);
        for (const Box& box : layout::merge(boxes_)) {
          whole.box = box;
          joined.push_back(whole);
        }
      }
      first = end;
    }
    std::sort(joined.begin() + begin, joined.end(),
              [](const Msg& a, const Msg& b) { return std::tie(a.tensor, a.box.lo) < std::tie(b.tensor, b.box.lo); });
  }

 private:
  std::vector<RankShards> sources_, targets_;
  std::vector<Placed> placed_;
  std::vector<Box> boxes_;
};

}  // namespace

std::vector<Msg> coalesced(std::vector<BundleRange> ranges, const std::vector<ShardMap>& from,
                           const std::vector<ShardMap>& to) {
  const auto ranks = [](const BundleRange& range) { return std::pair(range.src, range.dst); };
  std::ranges::stable_sort(ranges, {}, ranks);
  Coalescer coalescer(from, to);
  std::vector<Msg> joined, between;
  for (auto first = ranges.begin(); first != ranges.end();) {
    const auto end =
        std::find_if(first, ranges.end(), [&](const BundleRange& range) { return ranks(range) != ranks(*first); });
    between.clear();
    for (auto range = first; range != end; ++range) add_messages(*range, between);
    coalescer.add(between, joined);
    first = end;
  }
  return joined;
}

}  // namespace switchyard::switching
