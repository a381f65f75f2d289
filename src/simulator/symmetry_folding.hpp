// Tasks and resources that are bound to fare alike, found before any time passes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "simulator/shared_resources.hpp"

namespace switchyard::simulator {

/// Tasks in an order in which none waits for a later one, what they wait for, and the lists of claims that they take.
class TaskGraph {
 public:
  /// kind: of each resource; those of one kind start alike.
  explicit TaskGraph(std::vector<int> kind) : kind_(std::move(kind)) {}
  /// Lists are reported apart by where they lie.
  int list(const std::vector<Claim>* claims);
  /// work: tasks that differ here differ. lists: in the order in which the task takes them.
  void add_task(std::uint64_t work, std::span<const int> lists);
  /// The task added last waits for `task`; why: waits that differ here differ.
  void wait(int id, int why);
  /// A number that differs where any of the parts does.
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

/// Classes of tasks that begin and end together, and of resources that are taken alike: the coarsest partition in which
/// tasks of a class do the same work, wait for as many tasks of every class, and take as much of as many resources of
/// every class, and in which resources of a class are taken as much by as many tasks of every class (colour refinement;
/// colours are 64 bits of hash). What holds at the start then holds at every event, so one task of a class and one
/// resource of a class stand for all.
class SymmetryFolding {
 public:
  explicit SymmetryFolding(const TaskGraph& graph);
  /// The first task of its class.
  int of(int id) const { return first_[static_cast<size_t>(id)]; }
  bool stands(int id) const { return of(id) == id; }
  int resources() const { return static_cast<int>(resource_size_.size()); }
  int resource(int of) const { return class_of_resource_[static_cast<size_t>(of)]; }
  /// What a task that stands for its class takes of the classes: as much of each resource as all tasks of the class
  /// together.
  std::vector<Claim> claims(int id, const std::vector<Claim>& of_task) const;
  i64 size(int id) const { return size_[static_cast<size_t>(id)]; }

 private:
  std::vector<int> first_, class_of_resource_;
  std::vector<i64> size_, resource_size_;  // size_: at tasks that stand for a class
};

}  // namespace switchyard::simulator
