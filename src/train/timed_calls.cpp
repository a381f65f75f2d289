#include "train/timed_calls.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <ranges>
#include <tuple>
#include <utility>

#include "base/errors.hpp"
#include "base/median.hpp"

namespace switchyard::train {
namespace {

constexpr double kLengthsApart =
    3.5;  // minimum ratio of document lengths, to separate the time of attention pairs from that of rows
constexpr double kShortestCall = 1e-6;  // seconds
constexpr int kCallLengths = 14;        // half an order of magnitude each

// seconds = a x + b y with the smallest relative error, a and b not below 0.
std::pair<double, double> slopes(const std::vector<std::array<double, 3>>& points) {
  double xx = 0, xy = 0, yy = 0, x = 0, y = 0;
  for (const auto& [seconds, px, py] : points) {
    const double u = px / seconds, v = py / seconds;
    xx += u * u;
    xy += u * v;
    yy += v * v;
    x += u;
    y += v;
  }
  const double determinant = xx * yy - xy * xy;
  const double a = determinant > 0 ? (yy * x - xy * y) / determinant : -1,
               b = determinant > 0 ? (xx * y - xy * x) / determinant : -1;
  if (a >= 0 && b >= 0) return {a, b};
  if (yy == 0 || (b < 0 && xx > 0)) return {x / xx, 0};
  return {0, y / yy};
}

}  // namespace

double shortest(std::span<const double> seconds) {
  double least = std::numeric_limits<double>::infinity();
  for (const double some : seconds)
    if (some > 0) least = std::min(least, some);
  if (least == std::numeric_limits<double>::infinity())
    user_error(
        "all {} repetitions of a call took 0 s: the clock of this machine is too coarse for a profile; measure on a "
        "machine with a finer one",
        seconds.size());
  return least;
}

std::vector<double> least_of(const CallsOfSteps& steps) {
  std::vector<double> least, times;
  for (const Call& call : std::views::join(steps)) {
    times = call.rounds;
    times.push_back(call.seconds);
    least.push_back(shortest(times));
  }
  return least;
}

std::vector<CallsOfLength> calls_by_length(const CallsOfSteps& steps) {
  std::vector<CallsOfLength> by_length(kCallLengths);
  for (const Call& call : std::views::join(steps)) {
    const int length = std::clamp(static_cast<int>(2 * std::log10(call.seconds / kShortestCall)), 0, kCallLengths - 1);
    CallsOfLength& sums = by_length[static_cast<size_t>(length)];
    sums.quiet += call.seconds;
    sums.taken += std::reduce(call.rounds.begin(), call.rounds.end()) / static_cast<double>(call.rounds.size());
  }
  return by_length;
}

cluster::EfficiencyCurve kept_speed(const std::vector<CallsOfLength>& by_length) {
  cluster::EfficiencyCurve curve;
  for (size_t length = 0; length < by_length.size(); ++length) {
    const auto& [quiet, taken] = by_length[length];
    if (quiet > 0)
      curve.add(kShortestCall * std::pow(10, (static_cast<double>(length) + 0.5) / 2), std::min(1.0, quiet / taken));
  }
  return curve;
}

std::map<std::string, cluster::OperatorTable> tables_of(const CallsOfSteps& steps) {
  std::map<std::tuple<std::string, double, double, double>, std::vector<double>> repeats;
  std::map<std::tuple<std::string, double, double, bool>, std::vector<std::array<double, 3>>>
      by_documents;  // name, columns, head_dim, whether the time depends on attention pairs
  for (const Call& call : std::views::join(steps)) {
    if (call.by_documents())
      by_documents[{call.name, call.columns, call.head_dim, call.attention_pairs > 0}].push_back(
          {call.seconds, call.rows, call.attention_pairs > 0 ? call.attention_pairs : call.squared_lengths});
    else
      repeats[{call.name, call.rows, call.columns, call.work}].push_back(call.seconds);
  }
  std::map<std::string, cluster::OperatorTable> tables;
  for (const auto& [key, seconds] : repeats) {
    const auto& [name, rows, columns, work] = key;
    tables[name].calls.push_back({.rows = rows, .columns = columns, .work = work, .seconds = median(seconds)});
  }
  for (const auto& [key, points] : by_documents) {
    const auto [least, most] = std::ranges::minmax(points, {}, [](const auto& point) { return point[2] / point[1]; });
    if (most[2] / most[1] < kLengthsApart * least[2] / least[1]) continue;
    const auto& [name, columns, head_dim, by_attention_pairs] = key;
    const auto [row, other] = slopes(points);
    tables[name].attention.push_back({.columns = columns,
                                      .head_dim = head_dim,
                                      .per_row = row,
                                      .per_pair = by_attention_pairs ? other : 0,
                                      .per_square = by_attention_pairs ? 0 : other});
  }
  return tables;
}

}  // namespace switchyard::train
