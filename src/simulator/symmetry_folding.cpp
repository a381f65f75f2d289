#include "simulator/symmetry_folding.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <unordered_map>

#include "base/errors.hpp"
#include "base/random.hpp"

namespace switchyard::simulator {
namespace {

using Colour = std::uint64_t;

constexpr double kWorthwhile = 0.6;  // classes per task, above which folding is not worth it

Colour mixed(Colour a, Colour b) { return mix(a * kGoldenRatio + b); }

Colour of_share(double share) { return mixed(std::bit_cast<Colour>(share), 3) | 1; }

// Numbers the colours from 0 in order of first appearance.
template <class Number>
std::vector<Number> numbered(const std::vector<Colour>& colours, size_t* count = nullptr) {
  std::unordered_map<Colour, Number> known;
  known.reserve(colours.size() / 8);
  std::vector<Number> numbers;
  numbers.reserve(colours.size());
  for (const Colour colour : colours)
    numbers.push_back(known.try_emplace(colour, static_cast<Number>(known.size())).first->second);
  if (count) *count = known.size();
  return numbers;
}

}  // namespace

int TaskGraph::list(const std::vector<Claim>* claims) {
  claims_.push_back(claims);
  return static_cast<int>(claims_.size()) - 1;
}

void TaskGraph::add_task(std::uint64_t work, std::span<const int> lists) {
  tasks_.push_back({work, waits_.size(), lists_.size()});
  lists_.insert(lists_.end(), lists.begin(), lists.end());
}

void TaskGraph::wait(int id, int why) {
  check(id >= 0 && id + 1 < static_cast<int>(tasks_.size()), "task {} waits for task {}", tasks_.size() - 1, id);
  waits_.push_back({id, why});
}

std::uint64_t TaskGraph::work_of(std::span<const std::uint64_t> parts) {
  return std::accumulate(parts.begin(), parts.end(), Colour{1},
                         [](Colour all, Colour part) { return mixed(all, part); });
}

SymmetryFolding::SymmetryFolding(const TaskGraph& graph) {
  const size_t tasks = graph.tasks_.size(), resources = graph.kind_.size(), lists = graph.claims_.size();
  const auto end_of = [&](size_t id, size_t TaskGraph::Task::*first, size_t last) {
    return id + 1 < tasks ? graph.tasks_[id + 1].*first : last;
  };
  std::vector<Colour> id(tasks, 1), resource(resources), of_list(lists), takers(lists), taken(resources);
  for (size_t i = 0; i < resources; ++i) resource[i] = mixed(static_cast<Colour>(graph.kind_[i]), 7);
  size_t classes = 0, resource_classes = 0;
  for (;;) {
    for (size_t list = 0; list < lists; ++list) {
      of_list[list] = 0;
      for (const Claim& claim : *graph.claims_[list])
        of_list[list] += of_share(claim.share) * mixed(resource[static_cast<size_t>(claim.resource)], 5);
    }
    std::ranges::fill(takers, 0);
    for (size_t r = 0; r < tasks; ++r) {
      Colour colour = mixed(id[r], graph.tasks_[r].work);
      for (size_t w = graph.tasks_[r].first_wait; w < end_of(r, &TaskGraph::Task::first_wait, graph.waits_.size()); ++w)
        colour += mixed(id[static_cast<size_t>(graph.waits_[w].task)], static_cast<Colour>(graph.waits_[w].why));
      const size_t end = end_of(r, &TaskGraph::Task::first_list, graph.lists_.size());
      for (size_t l = graph.tasks_[r].first_list; l < end; ++l)
        colour = mixed(colour, of_list[static_cast<size_t>(graph.lists_[l])]);
      id[r] = mix(colour);
      for (size_t l = graph.tasks_[r].first_list; l < end; ++l)
        takers[static_cast<size_t>(graph.lists_[l])] += mixed(id[r], l - graph.tasks_[r].first_list);
    }
    std::ranges::fill(taken, 0);
    for (size_t list = 0; list < lists; ++list)
      for (const Claim& claim : *graph.claims_[list])
        taken[static_cast<size_t>(claim.resource)] += of_share(claim.share) * takers[list];
    for (size_t i = 0; i < resources; ++i) resource[i] = mixed(resource[i], taken[i]);
    const size_t before = classes, resources_before = resource_classes;
    first_ = numbered<int>(id, &classes);
    class_of_resource_ = numbered<int>(resource, &resource_classes);
    const bool settled = classes == before && resource_classes == resources_before;
    if (settled || static_cast<double>(classes) > kWorthwhile * static_cast<double>(tasks)) {
      if (!settled) {  // every task and resource is a class of its own
        std::iota(first_.begin(), first_.end(), 0);
        std::iota(class_of_resource_.begin(), class_of_resource_.end(), 0);
        classes = tasks;
        resource_classes = resources;
      }
      break;
    }
  }
  std::vector<int> first_of(classes, -1);
  size_.assign(tasks, 0);
  for (size_t r = 0; r < tasks; ++r) {
    int& first = first_of[static_cast<size_t>(first_[r])];
    if (first < 0) first = static_cast<int>(r);
    first_[r] = first;
    ++size_[static_cast<size_t>(first)];
  }
  resource_size_.assign(resource_classes, 0);
  for (const int c : class_of_resource_) ++resource_size_[static_cast<size_t>(c)];
}

std::vector<Claim> SymmetryFolding::claims(int id, const std::vector<Claim>& of_task) const {
  std::vector<Claim> claims;
  for (const Claim& claim : of_task) {
    const int of_class = resource(claim.resource);
    const auto known = std::ranges::find(claims, of_class, &Claim::resource);
    (known != claims.end() ? *known : claims.emplace_back(Claim{of_class, 0})).share += claim.share;
  }
  for (Claim& claim : claims)
    claim.share = claim.share * static_cast<double>(size(id)) /
                  static_cast<double>(resource_size_[static_cast<size_t>(claim.resource)]);
  return claims;
}

}  // namespace switchyard::simulator
