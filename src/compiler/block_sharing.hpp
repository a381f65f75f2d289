// The state that runs of a block of micro-batches share while a program is made: copies of gathered parameters, and
// gradients until they are reduced.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/pass.hpp"

namespace switchyard::compiler {

/// Runs of a pass at a position of the pipeline over a block of micro-batches (ir::StageCode::every), of which `first`
/// is the first one. unit_by_unit: each unit's copy and gradients come and go by themselves, as a block of one
/// micro-batch needs no more than two units at a time; otherwise a block has those of all its units together.
struct Block {
  int position = 0;
  Pass pass = Pass::F;
  int first = 0;
  bool unit_by_unit = true;
  auto operator<=>(const Block&) const = default;
};

/// The copies and gradients on the ranks of a schedule's stage, and the tasks that have to end before further ones
/// come, so that where blocks follow one another only two lie beside each other. Tasks are numbers; members are the
/// replicas that share transfers.
class BlockSharing {
 public:
  /// Whether no copy was begun so far.
  bool has_no_copies() const { return numbers_ == 0; }
  bool has_copy(const Block& block, int unit) const { return copies_.contains({block, unit}); }
  /// Begins a copy that so many items will read. The tasks that make room for it: the last readers of all copies before
  /// the one in use that are done.
  std::vector<int> begin_copy(const Block& block, int unit, int items);
  void gathered(const Block& block, int unit, std::vector<int> gathers);
  /// The gathers that a member's reader of a copy waits for: all, if it is the member's first one.
  std::vector<int> awaited_gathers(const Block& block, int unit, int member);
  /// A member's task reads the copy for the last time in an item.
  void read(const Block& block, int unit, int member, int task);
  /// An item has read the copy for the last time.
  void item_read(const Block& block, int unit) { --copies_.at({block, unit}).items; }

  /// Number of reductions of units that have been started.
  size_t reductions() const { return reductions_.size(); }
  /// The tasks of the first `end` reductions that no task of the member has waited for yet, for one that does now. So
  /// the memory of their gradients is freed at a place in the order of computing.
  std::vector<int> awaited_reductions(int member, size_t end);
  /// A member's task adds to the gradients of a block for the last time in an item.
  void wrote(const Block& block, int unit, int member, int task) { writers_[{block, unit}][member] = task; }
  /// The last tasks of all members that added to a block's gradients, which are complete.
  std::vector<int> complete(const Block& block, int unit);
  void reduced(const std::vector<int>& tasks) { reductions_.push_back(tasks); }

 private:
  using OfUnit = std::pair<Block, int>;
  // items: to come that read it. last_readers: by member.
  struct Copy {
    int number = 0, items = 0;
    std::vector<int> gathers{};
    std::set<int> waiting{};  // members
    std::map<int, int> last_readers{};
  };

  int numbers_ = 0;
  std::map<Block, int> number_of_block_;
  std::map<OfUnit, Copy> copies_;  // that no other has waited for
  std::map<OfUnit, std::map<int, int>> writers_;
  std::vector<std::vector<int>> reductions_;  // one list for each unit
  std::map<int, size_t> awaited_;             // so many of them, by member
};

}  // namespace switchyard::compiler
