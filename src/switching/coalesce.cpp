#include "switching/coalesce.hpp"

#include <algorithm>
#include <array>
#include <compare>
#include <span>
#include <tuple>
#include <utility>

#include "base/parallel.hpp"
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
  std::array<int, 4> shards{};  // the source's in from, to; the destination's in from, to
  int place = 0;
  auto operator<=>(const Placed&) const = default;
  bool joins(const Placed& other) const { return tensor == other.tensor && shards == other.shards; }
};

/// The shards of each tensor's map.
using Shards = std::vector<RankShards>;

class Coalescer {
 public:
  Coalescer(const Shards& sources, const Shards& targets) : sources_(sources), targets_(targets) {}

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
  const Shards& sources_;
  const Shards& targets_;
  std::vector<Placed> placed_;
  std::vector<Box> boxes_;
};

std::pair<int, int> ranks_of(const BundleRange& range) { return {range.src, range.dst}; }

/// Cuts ranges into parts to work on side by side; those between the same ranks stay together.
std::vector<std::span<const BundleRange>> parts_of(std::span<const BundleRange> ranges) {
  constexpr size_t kLeast = 1 << 14;  // ranges; for fewer, a thread costs more than it brings
  std::vector<std::span<const BundleRange>> parts;
  while (!ranges.empty()) {
    size_t size = std::min(kLeast, ranges.size());
    while (size < ranges.size() && ranks_of(ranges[size]) == ranks_of(ranges[size - 1])) ++size;
    parts.push_back(ranges.first(size));
    ranges = ranges.subspan(size);
  }
  return parts;
}

std::vector<Msg> joined(std::span<const BundleRange> ranges, const Shards& sources, const Shards& targets) {
  Coalescer coalescer(sources, targets);
  std::vector<Msg> joined, between;
  for (auto first = ranges.begin(); first != ranges.end();) {
    const auto end = std::find_if(first, ranges.end(),
                                  [&](const BundleRange& range) { return ranks_of(range) != ranks_of(*first); });
    between.clear();
    for (auto range = first; range != end; ++range) add_messages(*range, between);
    coalescer.add(between, joined);
    first = end;
  }
  return joined;
}

}  // namespace

std::vector<Msg> coalesced(std::vector<BundleRange> ranges, const std::vector<ShardMap>& from,
                           const std::vector<ShardMap>& to) {
  std::ranges::stable_sort(ranges, {}, ranks_of);
  const Shards sources(from.begin(), from.end()), targets(to.begin(), to.end());
  const std::vector<std::span<const BundleRange>> parts = parts_of(ranges);
  std::vector<std::vector<Msg>> joined_parts(parts.size());
  parallel_for(parts.size(), [&](size_t part) { joined_parts[part] = joined(parts[part], sources, targets); });
  if (parts.size() == 1) return std::move(joined_parts[0]);
  size_t messages = 0;
  for (const std::vector<Msg>& part : joined_parts) messages += part.size();
  std::vector<Msg> all;
  all.reserve(messages);
  for (std::vector<Msg>& part : joined_parts) {
    all.insert(all.end(), part.begin(), part.end());
    part = {};  // frees its memory: there may be millions
  }
  return all;
}

}  // namespace switchyard::switching
