// Symmetry folding: finds tasks and resources that must behave identically, before the simulation starts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "simulator/shared_resources.hpp"

namespace switchyard::simulator {

/// Tasks in an order in which none waits for a later one, their waits, and the lists of claims that they use.
class TaskGraph {
 public:
  /// kind: of each resource; resources of one kind are in the same initial class.
  explicit TaskGraph(std::vector<int> kind) : kind_(std::move(kind)) {}
  /// Returns the number of a list of claims. Lists are identified by their address.
  int list(const std::vector<Claim>* claims);
  /// work: tasks with different values are in different classes. lists: in the order in which the task uses them.
  void add_task(std::uint64_t work, std::span<const int> lists);
  /// The task added last waits for task `id`; waits with different `why` differ.
  void wait(int id, int why);
  /// A hash of the parts.
  static std::uint64_t work_of(std::span<const std::uint64_t> parts);

 private:
  friend class SymmetryFolding;
  struct Task {
    std::uint64_t work = 0;
    size_t first_wait = 0, first_list = 0;
  };
  struct Wait {
    int task = 0, why = 0;
  };
  std::vector<int> kind_;
  std::vector<const std::vector<Claim>*> claims_;
  std::vector<Task> tasks_;
  std::vector<Wait> waits_;
  std::vector<int> lists_;
};

/// Equivalence classes of tasks that begin and end together, and of resources that are used in the same way: the
/// coarsest partition in which tasks of a class do the same work, wait for equally many tasks of every class, and claim
/// equal shares of equally many resources of every class, and in which resources of a class are claimed in equal shares
/// by equally many tasks of every class (colour refinement; colours are 64-bit hashes). What holds at the start then
/// holds at every event, so one task and one resource of each class represent all others.
class SymmetryFolding {
 public:
  explicit SymmetryFolding(const TaskGraph& graph);
  /// The first task of its class.
  int of(int id) const { return first_[static_cast<size_t>(id)]; }
  bool stands(int id) const { return of(id) == id; }
  int resources() const { return static_cast<int>(resource_size_.size()); }
  int resource(int of) const { return class_of_resource_[static_cast<size_t>(of)]; }
  /// Claims of a task that represents its class, on classes of resources: for each resource class the sum over all
  /// tasks of the task's class, per resource.
  std::vector<Claim> claims(int id, const std::vector<Claim>& of_task) const;
  i64 size(int id) const { return size_[static_cast<size_t>(id)]; }

 private:
  std::vector<int> first_, class_of_resource_;
  std::vector<i64> size_, resource_size_;  // size_: valid at tasks that represent a class
};

}  // namespace switchyard::simulator
