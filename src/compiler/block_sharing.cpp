#include "compiler/block_sharing.hpp"

namespace switchyard::compiler {

std::vector<int> BlockSharing::begin_copy(const Block& block, int unit, int items) {
  int number = numbers_;
  if (!block.unit_by_unit) number = number_of_block_.try_emplace(block, numbers_).first->second;
  if (number == numbers_) ++numbers_;
  std::vector<int> done;
  std::erase_if(copies_, [&](const auto& entry) {
    const Copy& copy = entry.second;
    if (copy.items > 0 || copy.number + 2 > number) return false;
    for (const auto& [member, task] : copy.last_readers) done.push_back(task);
    return true;
  });
  copies_[{block, unit}] = {number, items};
  return done;
}

void BlockSharing::gathered(const Block& block, int unit, std::vector<int> gathers) {
  copies_.at({block, unit}).gathers = std::move(gathers);
}

std::vector<int> BlockSharing::awaited_gathers(const Block& block, int unit, int member) {
  Copy& copy = copies_.at({block, unit});
  return copy.waiting.insert(member).second ? copy.gathers : std::vector<int>();
}

void BlockSharing::read(const Block& block, int unit, int member, int task) {
  copies_.at({block, unit}).last_readers[member] = task;
}

std::vector<int> BlockSharing::awaited_reductions(int member, size_t end) {
  std::vector<int> tasks;
  for (size_t& next = awaited_[member]; next < end; ++next)
    tasks.insert(tasks.end(), reductions_[next].begin(), reductions_[next].end());
  return tasks;
}

std::vector<int> BlockSharing::complete(const Block& block, int unit) {
  std::vector<int> tasks;
  const auto writers = writers_.extract({block, unit});
  if (writers)
    for (const auto& [member, task] : writers.mapped()) tasks.push_back(task);
  return tasks;
}

}  // namespace switchyard::compiler
