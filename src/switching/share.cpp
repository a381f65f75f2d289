#include "switching/share.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/errors.hpp"

namespace switchyard::switching {
namespace {

class Sharing {
 public:
  explicit Sharing(const std::vector<Demand>& demands) {
    i64 total = 0;
    std::set<int> candidates;
    for (const Demand& demand : demands) {
      check(!demand.candidates.empty(), "{} elements have no candidate", demand.elements);
      total += demand.elements;
      candidates.insert(demand.candidates.begin(), demand.candidates.end());
    }
    const i64 ranks = std::max<i64>(1, static_cast<i64>(candidates.size()));
    mean_ = (total + ranks - 1) / ranks;
    slack_ = mean_ / 8;
    load_.resize(candidates.empty() ? 0 : static_cast<size_t>(*candidates.rbegin()) + 1);
  }

  std::vector<Part> serve(const Demand& demand) {
    parts_.clear();
    const i64 count = static_cast<i64>(demand.candidates.size());
    if (demand.elements == 0) return {};
    if (count == 1) {
      give(demand, demand.candidates[0], demand.elements);
    } else if (demand.evenly && fits_evenly(demand)) {
      for (i64 i = 0; i < count; ++i) {
        give(demand, demand.candidates[static_cast<size_t>(i)],
             demand.elements * (i + 1) / count - demand.elements * i / count);
      }
    } else if (const int rank = known_partner(demand); rank >= 0) {
      give(demand, rank, demand.elements);
    } else {
      fill(demand);
    }
    return parts_;
  }

 private:
  i64 load(int rank) const { return load_[static_cast<size_t>(rank)]; }
  i64 served() const { return parts_.empty() ? 0 : parts_.back().end; }

  void give(const Demand& demand, int rank, i64 elements) {
    if (elements <= 0) return;
    if (!parts_.empty() && parts_.back().rank == rank) {
      parts_.back().end += elements;
    } else {
      parts_.push_back({rank, served(), served() + elements});
    }
    load_[static_cast<size_t>(rank)] += elements;
    last_ = rank;
    if (demand.partner >= 0) pairs_.insert({demand.partner, rank});
  }

  bool fits_evenly(const Demand& demand) const {
    const i64 each = demand.elements / static_cast<i64>(demand.candidates.size());
    return std::all_of(demand.candidates.begin(), demand.candidates.end(),
                       [&](int rank) { return load(rank) + each <= mean_ + slack_; });
  }

  int known_partner(const Demand& demand) const {
    if (demand.partner < 0) return -1;
    for (const int rank : demand.candidates) {
      if (pairs_.contains({demand.partner, rank}) && load(rank) + demand.elements <= mean_ + slack_) return rank;
    }
    return -1;
  }

  /// Fills ranks up to the mean. Without a preferred partner it continues with the rank that was filled last, else with
  /// the least loaded one; parts below the slack are avoided where possible.
  void fill(const Demand& demand) {
    const bool last_may = demand.partner < 0 && std::find(demand.candidates.begin(), demand.candidates.end(), last_) !=
                                                    demand.candidates.end();
    if (last_may && demand.elements <= mean_ - load(last_)) return give(demand, last_, demand.elements);
    while (served() < demand.elements) {
      const i64 left = demand.elements - served();
      const int rank = *std::min_element(demand.candidates.begin(), demand.candidates.end(),
                                         [&](int a, int b) { return load(a) < load(b); });
      const i64 room = mean_ - load(rank);
      if (left <= room + slack_) return give(demand, rank, left);
      if (room <= slack_) return level(demand, left);
      give(demand, rank, room);
    }
  }

  /// Raises the loads of the least loaded candidates to one level.
  void level(const Demand& demand, i64 left) {
    std::vector<int> order = demand.candidates;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return load(a) < load(b); });
    i64 count = 1, sum = load(order[0]);
    while (count < static_cast<i64>(order.size()) && load(order[static_cast<size_t>(count)]) * count - sum < left) {
      sum += load(order[static_cast<size_t>(count++)]);
    }
    const i64 height = (sum + left + count - 1) / count;
    for (i64 i = 0; i < count; ++i) {
      const int rank = order[static_cast<size_t>(i)];
      give(demand, rank, std::min(height - load(rank), demand.elements - served()));
    }
  }

  i64 mean_ = 0, slack_ = 0;
  int last_ = -1;
  std::vector<i64> load_;
  std::set<std::pair<int, int>> pairs_;
  std::vector<Part> parts_;  // parts of the current demand
};

}  // namespace

std::vector<std::vector<Part>> share(const std::vector<Demand>& demands) {
  Sharing sharing(demands);
  std::vector<size_t> order(demands.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return demands[a].candidates.size() < demands[b].candidates.size(); });
  std::vector<std::vector<Part>> parts(demands.size());
  for (const size_t d : order) parts[d] = sharing.serve(demands[d]);
  return parts;
}

}  // namespace switchyard::switching
