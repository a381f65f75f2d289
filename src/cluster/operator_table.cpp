#include "cluster/operator_table.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::cluster {
namespace {

constexpr size_t kNearest = 8;
constexpr double kPower = 4;        // exponent of the distance
constexpr double kRowWeight = 0.7;  // rows matter less than the other sizes: rates hardly change with them

using Place = std::array<double, 3>;

Place place_of(double rows, double columns, double work) {
  return {kRowWeight * std::log(rows), std::log(std::max(1.0, columns)), std::log(std::max(1.0, work))};
}

double distance(const Place& a, const Place& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

// Weights of the nearest of n places, which sum to 1. An exact match gets all weight.
template <class PlaceOf>
std::vector<std::pair<size_t, double>> weights(size_t n, const Place& asked, const PlaceOf& place) {
  std::vector<std::pair<size_t, double>> nearest;
  for (size_t i = 0; i < n; ++i) nearest.emplace_back(i, distance(place(i), asked));
  const size_t kept = std::min(kNearest, n);
  std::ranges::partial_sort(nearest, nearest.begin() + static_cast<std::ptrdiff_t>(kept), {},
                            &std::pair<size_t, double>::second);
  nearest.resize(kept);
  constexpr double kSame = 1e-9;
  if (nearest.front().second < kSame) std::erase_if(nearest, [](const auto& one) { return one.second >= kSame; });
  double sum = 0;
  for (auto& [index, weight] : nearest) sum += weight = std::pow(std::max(weight, kSame), -kPower);
  for (auto& [index, weight] : nearest) weight /= sum;
  return nearest;
}

}  // namespace

double OperatorTable::seconds(double rows, double columns, double work) const {
  check(!calls.empty(), "no measured calls to take a time from");
  if (rows <= 0) return 0;
  double rate = 0;  // its logarithm
  const auto place = [&](size_t i) { return place_of(calls[i].rows, calls[i].columns, calls[i].work); };
  for (const auto& [index, weight] : weights(calls.size(), place_of(rows, columns, work), place)) {
    const MeasuredCall& call = calls[index];
    rate += weight * std::log(call.rows * std::max(1.0, call.work) / call.seconds);
  }
  return rows * std::max(1.0, work) / std::exp(rate);
}

namespace {

constexpr double MeasuredAttention::*kTimes[] = {&MeasuredAttention::per_row, &MeasuredAttention::per_pair,
                                                 &MeasuredAttention::per_square};
constexpr double kLeastShare = 0.25;  // least share of what the widest heads take, whatever the heads

// Times of attention over so many columns, interpolated between measured ones with the same heads.
MeasuredAttention interpolated(const std::vector<MeasuredAttention>& measured, double columns) {
  MeasuredAttention found{.columns = columns, .head_dim = measured.front().head_dim};
  const auto place = [&](size_t i) { return place_of(1, measured[i].columns, 1); };
  for (const auto& [index, weight] : weights(measured.size(), place_of(1, columns, 1), place))
    for (const auto time : kTimes) found.*time += weight * columns / measured[index].columns * measured[index].*time;
  return found;
}

}  // namespace

MeasuredAttention OperatorTable::attention_of(double columns, double head_dim) const {
  check(!attention.empty() && head_dim > 0, "no measured attention to take a time from, or heads of {} features",
        head_dim);
  const double widest = std::ranges::max(attention, {}, &MeasuredAttention::head_dim).head_dim;
  std::vector<MeasuredAttention> base, others;
  for (const MeasuredAttention& one : attention) (one.head_dim == widest ? base : others).push_back(one);
  MeasuredAttention found = interpolated(base, columns);
  found.head_dim = head_dim;
  for (const auto time : kTimes) {
    double of_a_head = 0;
    for (const MeasuredAttention& one : others)
      of_a_head += std::max(0.0, one.*time - interpolated(base, one.columns).*time) /
                   (one.columns / one.head_dim - one.columns / widest) / static_cast<double>(others.size());
    const double further = columns / head_dim - columns / widest;
    found.*time = std::max(kLeastShare * found.*time, found.*time + of_a_head * further);
  }
  return found;
}

}  // namespace switchyard::cluster
