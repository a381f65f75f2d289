// Index of a schedule's items: where each one is, and which items it waits for.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "schedule/schedule.hpp"

namespace switchyard::schedule {

/// Place of an item: its stage, and its index in the stage's order.
struct Place {
  int stage = 0, index = 0;
  bool operator==(const Place&) const = default;
};

/// Memory is proportional to the number of items, however large their micro-batch and chunk numbers are. Keeps a
/// reference to the schedule.
class ItemIndex {
 public:
  /// InternalError, with stage and item, if an item is unknown, repeated, out of range or missing.
  explicit ItemIndex(const Schedule& schedule);

  const Schedule& schedule() const { return schedule_; }
  const Item& at(Place place) const;
  int position(Place place) const;

  /// What the item at `place` waits for besides its predecessor on the stage.
  std::vector<Place> waits_for(Place place) const;

 private:
  std::uint64_t key(Pass pass, int position, int mb) const;
  void add(Place place);
  void check_complete() const;
  Place find(Pass pass, int position, int mb) const;

  const Schedule& schedule_;
  std::unordered_map<std::uint64_t, Place> places_;
};

/// Visits all items, each after its predecessors on the stage and after the items that it waits for. If the stages wait
/// for each other in a cycle, InternalError prints it.
void run_in_order(const ItemIndex& index, const std::function<void(Place)>& visit);

}  // namespace switchyard::schedule
