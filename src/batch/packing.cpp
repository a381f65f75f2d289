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

// Rows may cost at most this much more time than the best found before a smaller number of them is preferred.
constexpr double kWorthwhile = 1.01;

void put(Row& row, const Item& item) {
  row.items.push_back(item);
  row.tokens += item.tokens;
  row.work += item.work;
}

double heaviest(const std::vector<Row>& rows) {
  double most = 0;
  for (const Row& row : rows) most = std::max(most, row.work);
  return most;
}

double total_work(std::span<const Item> items) {
  double sum = 0;
  for (const Item& item : items) sum += item.work;
  return sum;
}

// First-fit decreasing. A tournament tree over rows finds the first one with room in log n steps; node 1 is the root and
// holds the most room of any row.
std::vector<Row> first_fit(std::span<const Item> items, Capacity capacity) {
  const std::size_t leaves = std::bit_ceil(std::max<std::size_t>(items.size(), 1));
  std::vector<i64> room(2 * leaves, capacity.tokens);
  std::vector<Row> rows;
  for (const Item& item : items) {
    std::size_t node = 1;
    while (node < leaves) node = 2 * node + (room[2 * node] < item.tokens ? 1 : 0);
    const std::size_t row = node - leaves;
    if (row == rows.size()) rows.emplace_back();
    put(rows[row], item);
    room[node] = capacity.left(rows[row]);
    while (node /= 2) room[node] = std::max(room[2 * node], room[2 * node + 1]);
  }
  return rows;
}

// Each document to the lightest row with room for it; nothing if one finds none. Documents get shorter, so a row once
// without room waits in a queue ordered by its room until a document comes that fits.
std::optional<std::vector<Row>> lightest_fit(std::span<const Item> items, Capacity capacity, std::size_t count) {
  std::vector<Row> rows(count);
  LeastFirst<std::pair<double, std::size_t>> open;
  std::priority_queue<std::pair<i64, std::size_t>> waiting;
  for (std::size_t row = 0; row < count; ++row) open.emplace(0.0, row);
  for (const Item& item : items) {
    while (!waiting.empty() && waiting.top().first >= item.tokens) {
      const std::size_t row = waiting.top().second;
      waiting.pop();
      open.emplace(rows[row].work, row);
    }
    while (!open.empty() && capacity.left(rows[open.top().second]) < item.tokens) {
      const std::size_t row = open.top().second;
      open.pop();
      waiting.emplace(capacity.left(rows[row]), row);
    }
    if (open.empty()) return std::nullopt;
    const std::size_t row = open.top().second;
    open.pop();
    put(rows[row], item);
    open.emplace(rows[row].work, row);
  }
  return rows;
}

// Numbers of rows worth a try beside the fewest.
std::vector<std::size_t> row_counts(std::size_t fewest, std::size_t items, std::size_t stages) {
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

std::vector<std::vector<Item>> spread_over_lanes(std::vector<Item> items, std::span<const double> speed, int stages) {
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return std::tie(b.tokens, a.doc) < std::tie(a.tokens, b.doc); });
  double total_speed = 0;
  // Lanes of one speed in one queue, least loaded first: only the heads need comparing.
  std::map<double, LeastFirst<std::pair<double, std::size_t>>> queues;
  for (std::size_t lane = 0; lane < speed.size(); ++lane) {
    queues[speed[lane]].emplace(0.0, lane);
    total_speed += speed[lane];
  }
  const double even_lane = total_work(items) / total_speed;  // per unit of speed
  std::vector<std::vector<Item>> lanes(speed.size());
  for (const Item& item : items) {
    auto best = queues.end();
    std::pair<double, std::size_t> first_end;  // and the lane, so that ties go to the lower one
    for (auto queue = queues.begin(); queue != queues.end(); ++queue) {
      const auto& [load, lane] = queue->second.top();
      const std::pair end((load + item.work) / queue->first, lane);
      if (best == queues.end() || end < first_end) {
        best = queue;
        first_end = end;
      }
    }
    auto [load, lane] = best->second.top();
    best->second.pop();
    if (lanes[lane].empty()) load += (stages - 1) * std::max(0.0, item.work - even_lane * best->first / stages);
    lanes[lane].push_back(item);
    best->second.emplace(load + item.work, lane);
  }
  return lanes;
}

std::vector<Row> pack_rows(std::span<const Item> items, Capacity capacity, int stages) {
  if (items.empty()) return {};
  check(items.front().tokens <= capacity.tokens, "document {} of {} tokens does not fit in a row of {}", items.front().doc, items.front().tokens,
        capacity.tokens);
  const double sum = total_work(items);
  const auto time = [&](const std::vector<Row>& rows) { return sum + std::max(0, stages - 1) * heaviest(rows); };
  std::vector<std::vector<Row>> found{first_fit(items, capacity)};
  const std::size_t fewest = found.front().size();
  for (const std::size_t count : row_counts(fewest, items.size(), static_cast<std::size_t>(std::max(1, stages)))) {
    std::optional<std::vector<Row>> rows = lightest_fit(items, capacity, count);
    if (!rows) continue;
    if (count == fewest && heaviest(*rows) <= heaviest(found.front())) found.clear();
    found.push_back(std::move(*rows));
  }
  double best = time(found.front());
  for (const std::vector<Row>& rows : found) best = std::min(best, time(rows));
  const auto chosen =
      std::find_if(found.begin(), found.end(), [&](const std::vector<Row>& rows) { return time(rows) <= best * kWorthwhile; });
  std::stable_sort(chosen->begin(), chosen->end(), [](const Row& a, const Row& b) { return a.work > b.work; });
  return std::move(*chosen);
}

}  // namespace switchyard::batch
