#include "batch/packing.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::batch {
namespace {

template <class Key>
using LeastFirst = std::priority_queue<Key, std::vector<Key>, std::greater<>>;

// Micro-batches may cost at most this much more time than the best found before a smaller number of them is preferred.
constexpr double kWorthwhile = 1.01;

void put(PackedSequence& micro_batch, const Item& item) {
  micro_batch.items.push_back(item);
  micro_batch.tokens += item.tokens;
  micro_batch.work += item.work;
}

double heaviest(const std::vector<PackedSequence>& micro_batches) {
  double most = 0;
  for (const PackedSequence& micro_batch : micro_batches) most = std::max(most, micro_batch.work);
  return most;
}

double total_work(std::span<const Item> items) {
  double sum = 0;
  for (const Item& item : items) sum += item.work;
  return sum;
}

// First-fit decreasing. A tournament tree over micro-batches finds the first one with room in log n steps; node 1 is
// the root and holds the most room of any micro-batch.
std::vector<PackedSequence> first_fit(std::span<const Item> items, Capacity capacity) {
  const std::size_t leaves = std::bit_ceil(std::max<std::size_t>(items.size(), 1));
  std::vector<i64> room(2 * leaves, capacity.tokens);
  std::vector<PackedSequence> micro_batches;
  for (const Item& item : items) {
    std::size_t node = 1;
    while (node < leaves) node = 2 * node + (room[2 * node] < item.tokens ? 1 : 0);
    const std::size_t micro_batch = node - leaves;
    if (micro_batch == micro_batches.size()) micro_batches.emplace_back();
    put(micro_batches[micro_batch], item);
    room[node] = capacity.left(micro_batches[micro_batch]);
    while (node /= 2) room[node] = std::max(room[2 * node], room[2 * node + 1]);
  }
  return micro_batches;
}

// Puts each document into the lightest micro-batch with room for it; returns nothing if a document finds none.
// Documents get shorter, so a micro-batch without room waits in a queue ordered by its room until a document fits.
std::optional<std::vector<PackedSequence>> lightest_fit(std::span<const Item> items, Capacity capacity,
                                                        std::size_t count) {
  std::vector<PackedSequence> micro_batches(count);
  LeastFirst<std::pair<double, std::size_t>> open;
  std::priority_queue<std::pair<i64, std::size_t>> waiting;
  for (std::size_t micro_batch = 0; micro_batch < count; ++micro_batch) open.emplace(0.0, micro_batch);
  for (const Item& item : items) {
    while (!waiting.empty() && waiting.top().first >= item.tokens) {
      const std::size_t micro_batch = waiting.top().second;
      waiting.pop();
      open.emplace(micro_batches[micro_batch].work, micro_batch);
    }
    while (!open.empty() && capacity.left(micro_batches[open.top().second]) < item.tokens) {
      const std::size_t micro_batch = open.top().second;
      open.pop();
      waiting.emplace(capacity.left(micro_batches[micro_batch]), micro_batch);
    }
    if (open.empty()) return std::nullopt;
    const std::size_t micro_batch = open.top().second;
    open.pop();
    put(micro_batches[micro_batch], item);
    open.emplace(micro_batches[micro_batch].work, micro_batch);
  }
  return micro_batches;
}

// Numbers of micro-batches to try: the fewest, and larger ones that may pay.
std::vector<std::size_t> micro_batch_counts(std::size_t fewest, std::size_t items, std::size_t stages) {
  std::vector<std::size_t> counts{fewest};
  if (stages > 1) {
    for (std::size_t count = fewest + 1; count <= stages; ++count) counts.push_back(count);
    counts.push_back(fewest + (fewest + 31) / 32);
    counts.push_back(fewest + (fewest + 7) / 8);
  }
  std::erase_if(counts, [&](std::size_t count) { return count > items; });
  std::sort(counts.begin(), counts.end());
  return counts;
}

}  // namespace

std::vector<std::vector<Item>> spread_over_replicas(std::vector<Item> items, std::span<const double> speed,
                                                    int stages) {
  std::sort(items.begin(), items.end(),
            [](const Item& a, const Item& b) { return std::tie(b.tokens, a.doc) < std::tie(a.tokens, b.doc); });
  double total_speed = 0;
  // Replicas of one speed in one queue, least loaded first: only the heads need comparing.
  std::map<double, LeastFirst<std::pair<double, std::size_t>>> queues;
  for (std::size_t replica = 0; replica < speed.size(); ++replica) {
    queues[speed[replica]].emplace(0.0, replica);
    total_speed += speed[replica];
  }
  const double even_replica = total_work(items) / total_speed;  // per unit of speed
  std::vector<std::vector<Item>> replicas(speed.size());
  for (const Item& item : items) {
    auto best = queues.end();
    std::pair<double, std::size_t> first_end;  // and the replica, so that ties go to the lower one
    for (auto queue = queues.begin(); queue != queues.end(); ++queue) {
      const auto& [load, replica] = queue->second.top();
      const std::pair end((load + item.work) / queue->first, replica);
      if (best == queues.end() || end < first_end) {
        best = queue;
        first_end = end;
      }
    }
    auto [load, replica] = best->second.top();
    best->second.pop();
    if (replicas[replica].empty())
      load += (stages - 1) * std::max(0.0, item.work - even_replica * best->first / stages);
    replicas[replica].push_back(item);
    best->second.emplace(load + item.work, replica);
  }
  return replicas;
}

std::vector<PackedSequence> pack_sequences(std::span<const Item> items, Capacity capacity, int stages) {
  if (items.empty()) return {};
  check(items.front().tokens <= capacity.tokens, "document {} of {} tokens does not fit in a micro-batch of {}",
        items.front().doc, items.front().tokens, capacity.tokens);
  const double sum = total_work(items);
  const auto time = [&](const std::vector<PackedSequence>& micro_batches) {
    return sum + std::max(0, stages - 1) * heaviest(micro_batches);
  };
  std::vector<std::vector<PackedSequence>> found{first_fit(items, capacity)};
  const std::size_t fewest = found.front().size();
  for (const std::size_t count :
       micro_batch_counts(fewest, items.size(), static_cast<std::size_t>(std::max(1, stages)))) {
    std::optional<std::vector<PackedSequence>> micro_batches = lightest_fit(items, capacity, count);
    if (!micro_batches) continue;
    if (count == fewest && heaviest(*micro_batches) <= heaviest(found.front())) found.clear();
    found.push_back(std::move(*micro_batches));
  }
  double best = time(found.front());
  for (const std::vector<PackedSequence>& micro_batches : found) best = std::min(best, time(micro_batches));
  const auto chosen = std::find_if(found.begin(), found.end(), [&](const std::vector<PackedSequence>& micro_batches) {
    return time(micro_batches) <= best * kWorthwhile;
  });
  std::stable_sort(chosen->begin(), chosen->end(),
                   [](const PackedSequence& a, const PackedSequence& b) { return a.work > b.work; });
  return std::move(*chosen);
}

}  // namespace switchyard::batch
