// Replays move plans on arrays: what each rank has at the end, element by element.
#pragma once

#include <cmath>
#include <stdexcept>
#include <vector>

#include "layout/messages.hpp"
#include "random_maps.hpp"

namespace switchyard::layout {

/// Value of element e of partial a: whole numbers, so that sums are exact.
inline double element_value(int tensor, size_t e, int partial = 0) {
  return static_cast<double>(1 + tensor) * 1e6 + static_cast<double>(e) * 16 + static_cast<double>(partial + 1);
}

/// One array per shard, each as large as the whole tensor: absent elements are not a number.
using Arrays = std::vector<std::vector<double>>;

inline Arrays absent(const ShardMap& map) {
  return Arrays(map.shards.size(), std::vector<double>(static_cast<size_t>(map.shape.elements()), std::nan("")));
}

inline Arrays filled(const ShardMap& map, int tensor) {
  Arrays arrays = absent(map);
  for (size_t s = 0; s < arrays.size(); ++s) {
    each_element(map.shards[s].box, map.shape.size,
                 [&](size_t e) { arrays[s][e] = element_value(tensor, e, map.shards[s].partial); });
  }
  return arrays;
}

/// The first shard of the rank that contains the box; nullptr if there is none.
inline std::vector<double>* shard_array(const ShardMap& map, Arrays& arrays, int rank, const Box& box) {
  for (size_t s = 0; s < arrays.size(); ++s) {
    if (map.shards[s].rank == rank && map.shards[s].box.contains(box)) return &arrays[s];
  }
  return nullptr;
}

/// Copies: the arrays of `to` after the plan. Sources are `from` or, where that has no copy, what `to` received in
/// earlier rounds. What is in `from` on the same rank must come as a local message.
inline Arrays replay_copy(const Rounds& plan, int tensor, const ShardMap& from, const ShardMap& to) {
  Arrays source = filled(from, tensor), result = absent(to);
  for (const auto& round : plan.rounds) {
    const Arrays before = result;
    for (const Msg& msg : round) {
      if (msg.tensor != tensor) continue;
      Arrays received = before;
      const std::vector<double>* values = shard_array(from, source, msg.src, msg.box);
      if (values == nullptr) values = shard_array(to, received, msg.src, msg.box);
      std::vector<double>* target = shard_array(to, result, msg.dst, msg.box);
      if (values == nullptr || target == nullptr) throw std::runtime_error("a message outside the shards");
      each_element(msg.box, to.shape.size, [&](size_t e) { (*target)[e] = (*values)[e]; });
    }
  }
  return result;
}

/// Sums: as verify_sum defines them.
inline Arrays replay_sum(const Rounds& plan, int tensor, const ShardMap& from, const ShardMap& to) {
  Arrays running = filled(from, tensor), result = absent(to);
  for (auto& array : result) std::fill(array.begin(), array.end(), 0.0);
  for (const auto& round : plan.rounds) {
    Arrays before = running;
    for (const Msg& msg : round) {
      if (msg.tensor != tensor) continue;
      const std::vector<double>* values = shard_array(from, before, msg.src, msg.box);
      std::vector<double>* target = msg.src == msg.dst ? nullptr : shard_array(from, running, msg.dst, msg.box);
      if (target == nullptr) target = shard_array(to, result, msg.dst, msg.box);
      if (values == nullptr || target == nullptr) throw std::runtime_error("a message outside the shards");
      each_element(msg.box, to.shape.size, [&](size_t e) { (*target)[e] += (*values)[e]; });
    }
  }
  return result;
}

/// Whether every shard has exactly the sum of the given partials (1: the plain values) in its box.
inline bool holds_values(const ShardMap& map, const Arrays& arrays, int tensor, int partials) {
  bool right = true;
  for (size_t s = 0; s < arrays.size(); ++s) {
    each_element(map.shards[s].box, map.shape.size, [&](size_t e) {
      double expected = 0;
      for (int a = 0; a < partials; ++a) expected += element_value(tensor, e, a);
      if (arrays[s][e] != expected) right = false;
    });
  }
  return right;
}

}  // namespace switchyard::layout
