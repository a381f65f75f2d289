#include "batch/packing.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
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

// A bound is a sum in another order than what it bounds.
constexpr double kRounding = 1 - 1e-9;

struct Load {
  i64 tokens = 0, items = 0;
  double work = 0;
  void put(const Item& item) {
    tokens += item.tokens;
    ++items;
    work += item.work;
  }
};

// A way to pack: the micro-batch of each item.
struct Packing {
  std::vector<std::size_t> of;
  std::vector<Load> micro_batches{};
  double heaviest() const { return std::ranges::max(micro_batches, {}, &Load::work).work; }
};

i64 left(Capacity capacity, const Load& micro_batch) {
  return capacity.items > 0 && micro_batch.items == capacity.items ? 0 : capacity.tokens - micro_batch.tokens;
}

double total_work(std::span<const Item> items) {
  double sum = 0;
  for (const Item& item : items) sum += item.work;
  return sum;
}

// First-fit decreasing. A tournament tree over micro-batches finds the first one with room in log n steps; node 1 is
// the root and holds the most room of any micro-batch.
Packing first_fit(std::span<const Item> items, Capacity capacity) {
  const std::size_t leaves = std::bit_ceil(std::max<std::size_t>(items.size(), 1));
  std::vector<i64> room(2 * leaves, capacity.tokens);
  Packing packing;
  packing.of.reserve(items.size());
  for (const Item& item : items) {
    std::size_t node = 1;
    while (node < leaves) node = 2 * node + (room[2 * node] < item.tokens ? 1 : 0);
    const std::size_t micro_batch = node - leaves;
    if (micro_batch == packing.micro_batches.size()) packing.micro_batches.emplace_back();
    packing.micro_batches[micro_batch].put(item);
    packing.of.push_back(micro_batch);
    room[node] = left(capacity, packing.micro_batches[micro_batch]);
    while (node /= 2) room[node] = std::max(room[2 * node], room[2 * node + 1]);
  }
  return packing;
}

// Puts each document into the lightest micro-batch with room for it; returns nothing if a document finds none.
// Documents get shorter, so a micro-batch without room waits in a queue ordered by its room until a document fits.
std::optional<Packing> lightest_fit(std::span<const Item> items, Capacity capacity, std::size_t count) {
  Packing packing{{}, std::vector<Load>(count)};
  packing.of.reserve(items.size());
  std::vector<Load>& micro_batches = packing.micro_batches;
  std::vector<std::pair<double, std::size_t>> heap(count);  // in order, so a heap
  for (std::size_t micro_batch = 0; micro_batch < count; ++micro_batch) heap[micro_batch].second = micro_batch;
  LeastFirst<std::pair<double, std::size_t>> open({}, std::move(heap));
  std::priority_queue<std::pair<i64, std::size_t>> waiting;
  for (const Item& item : items) {
    while (!waiting.empty() && waiting.top().first >= item.tokens) {
      const std::size_t micro_batch = waiting.top().second;
      waiting.pop();
      open.emplace(micro_batches[micro_batch].work, micro_batch);
    }
    while (!open.empty() && left(capacity, micro_batches[open.top().second]) < item.tokens) {
      const std::size_t micro_batch = open.top().second;
      open.pop();
      waiting.emplace(left(capacity, micro_batches[micro_batch]), micro_batch);
    }
    if (open.empty()) return std::nullopt;
    const std::size_t micro_batch = open.top().second;
    open.pop();
    micro_batches[micro_batch].put(item);
    packing.of.push_back(micro_batch);
    open.emplace(micro_batches[micro_batch].work, micro_batch);
  }
  return packing;
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
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

// Chooses among packings in their order: the first one whose time is within kWorthwhile of the best.
class Choice {
 public:
  Choice(std::span<const Item> items, int stages)
      : stages_(std::max(0, stages - 1)),
        sum_(total_work(items)),
        longest_(std::ranges::max(items, {}, &Item::work).work) {}

  /// No packing into `count` micro-batches takes less.
  double least(std::size_t count) const {
    return (sum_ + stages_ * std::max(longest_, sum_ / static_cast<double>(count))) * kRounding;
  }
  bool may_be_chosen(std::size_t count) const { return least(count) <= best_ * kWorthwhile; }
  void add(std::size_t place, Packing packing) {
    const double time = sum_ + stages_ * packing.heaviest();
    best_ = std::min(best_, time);
    found_.try_emplace(place, time, std::move(packing));
  }
  /// Whether no packing that takes at least `least` and comes from `place` on changes the choice.
  bool is_made_before(std::size_t place, double least) {
    const auto& [at, packing] = *first();
    return at < place && packing.first <= least * kWorthwhile;
  }
  Packing chosen() && { return std::move(first()->second.second); }

 private:
  using Found = std::map<std::size_t, std::pair<double, Packing>>;
  Found::iterator first() {
    return std::ranges::find_if(found_, [&](const auto& one) { return one.second.first <= best_ * kWorthwhile; });
  }

  int stages_;  // besides the one that works
  double sum_, longest_, best_ = std::numeric_limits<double>::infinity();
  Found found_;  // by place: time, packing
};

// Numbers of micro-batches are left out whose packings take too long however level they are, or that come after one
// that nothing can beat.
Packing best_packing(std::span<const Item> items, Capacity capacity, int stages) {
  Choice choice(items, stages);
  Packing first = first_fit(items, capacity);
  const std::vector<std::size_t> counts =
      micro_batch_counts(first.micro_batches.size(), items.size(), static_cast<std::size_t>(std::max(1, stages)));
  std::optional<Packing> level = lightest_fit(items, capacity, counts.front());
  if (!level || level->heaviest() > first.heaviest()) choice.add(0, std::move(first));
  if (level) choice.add(1, std::move(*level));
  const double least = choice.least(counts.back());
  const auto add = [&](std::size_t i) {
    if (std::optional<Packing> packing = lightest_fit(items, capacity, counts[i]))
      choice.add(i + 1, std::move(*packing));
  };
  if (counts.size() > 1 && !choice.is_made_before(2, least)) {
    add(counts.size() - 1);  // mostly the quickest: it leaves less to be tried
    for (std::size_t i = 1; i + 1 < counts.size() && !choice.is_made_before(i + 1, least); ++i)
      if (choice.may_be_chosen(counts[i])) add(i);
  }
  return std::move(choice).chosen();
}

}  // namespace

std::vector<std::vector<Item>> spread_over_replicas(std::vector<Item> items, std::span<const Pipeline> pipelines) {
  std::sort(items.begin(), items.end(),
            [](const Item& a, const Item& b) { return std::tie(b.tokens, a.doc) < std::tie(a.tokens, b.doc); });
  double total_speed = 0;
  // Equal pipelines in one queue, least loaded first: only the heads need comparing.
  std::map<Pipeline, LeastFirst<std::pair<double, std::size_t>>> queues;
  for (std::size_t replica = 0; replica < pipelines.size(); ++replica) {
    queues[pipelines[replica]].emplace(0.0, replica);
    total_speed += pipelines[replica].speed;
  }
  const double even_replica = total_work(items) / total_speed;  // per unit of speed
  std::vector<std::vector<Item>> replicas(pipelines.size());
  for (const Item& item : items) {
    const auto with = [&](const Pipeline& pipeline, double load, std::size_t replica) {
      if (replicas[replica].empty())
        load += (pipeline.stages - 1) * std::max(0.0, item.work - even_replica * pipeline.speed / pipeline.stages);
      return load + item.work;
    };
    auto best = queues.end();
    std::pair<double, std::size_t> first_end;  // and the replica, so that ties go to the lower one
    for (auto queue = queues.begin(); queue != queues.end(); ++queue) {
      const auto& [load, replica] = queue->second.top();
      const std::pair end(with(queue->first, load, replica) / queue->first.speed, replica);
      if (best == queues.end() || end < first_end) {
        best = queue;
        first_end = end;
      }
    }
    const auto [load, replica] = best->second.top();
    best->second.pop();
    best->second.emplace(with(best->first, load, replica), replica);
    replicas[replica].push_back(item);
  }
  return replicas;
}

std::vector<PackedSequence> pack_sequences(std::span<const Item> items, Capacity capacity, int stages, bool paired) {
  if (items.empty()) return {};
  check(items.front().tokens <= capacity.tokens, "document {} of {} tokens does not fit in a micro-batch of {}",
        items.front().doc, items.front().tokens, capacity.tokens);
  Packing packing = best_packing(items, capacity, stages);
  if (const std::size_t count = packing.micro_batches.size(); paired && count % 2 == 1 && count < items.size())
    if (std::optional<Packing> even = lightest_fit(items, capacity, count + 1)) packing = std::move(*even);
  std::vector<PackedSequence> micro_batches(packing.micro_batches.size());
  for (std::size_t i = 0; i < micro_batches.size(); ++i) {
    const Load& load = packing.micro_batches[i];
    micro_batches[i].tokens = load.tokens;
    micro_batches[i].work = load.work;
    micro_batches[i].items.reserve(static_cast<std::size_t>(load.items));
  }
  for (std::size_t i = 0; i < items.size(); ++i) micro_batches[packing.of[i]].items.push_back(items[i]);
  std::ranges::stable_sort(micro_batches, std::greater<>(), &PackedSequence::work);
  return micro_batches;
}

}  // namespace switchyard::batch
