#include "compiler/likeness.hpp"

#include <algorithm>

namespace switchyard::compiler {

std::vector<i64> Likeness::of(const Holdings& holdings) {
  rank_ = holdings.rank();
  key_.clear();
  add_holdings(holdings);
  const std::vector<int>& rows = program_.of_rank[static_cast<size_t>(rank_)];
  for (const int row : rows) {
    const ir::Task& t = program_.rows[static_cast<size_t>(row)];
    add({static_cast<int>(t.kind), static_cast<int>(t.queue), t.phase, t.group, t.stage, t.micro_batch, static_cast<int>(t.pass), t.unit, t.round});
    for (const ir::Wait& wait : t.after)
      if (const auto own = std::ranges::lower_bound(rows, wait.row); own != rows.end() && *own == wait.row) add({own - rows.begin(), wait.unit});
    for (const StateKey& state : states_of(t, rank_)) add_state(t, state);
    const bool sends = std::ranges::any_of(t.messages, [&](const layout::Msg& m) { return m.src == rank_; });
    if (t.kind == ir::TaskKind::move) add({sends});
  }
  return key_;
}

void Likeness::add_holdings(const Holdings& holdings) {
  for (int unit = 0; unit < static_cast<int>(plans_.units().size()); ++unit) add({holdings.home_elements(unit)});
  int previous = -1;
  for (const batch::PhasePlan& phase : plan_.phases) {
    for (int unit = 0; unit < static_cast<int>(plans_.units().size()); ++unit) {
      for (const BankGroup& group : holdings.bank(phase.strategy, previous, unit)) {
        add({static_cast<int>(group.source), group.elements});
        for (const int p : group.params) add({p});
      }
      for (const std::vector<int>& group : holdings.groups(unit)) add({holdings.gradient_elements(phase.strategy, group)});
    }
    previous = phase.strategy;
  }
}

void Likeness::add_state(const ir::Task& t, const StateKey& state) {
  const int strategy = plan_.phases[static_cast<size_t>(t.phase)].strategy;
  const CompiledStrategy& s = plans_.strategies()[static_cast<size_t>(strategy)];
  const std::vector<int> ranks = s.lane_ranks(t.lane, state.stage);
  const int position = static_cast<int>(std::ranges::find(ranks, rank_) - ranks.begin());
  const batch::MicroBatch& mb = plan_.phases[static_cast<size_t>(t.phase)].lane[static_cast<size_t>(t.lane)][static_cast<size_t>(t.micro_batch)];
  add({state.stage, shapes_of(strategy, t.group, state.stage, s)[static_cast<size_t>(position)], mb.T, batch::squares(mb), batch::longest(mb)});
}

// Numbers the positions of a stage: those with local tensors of equal sizes have the same.
const std::vector<int>& Likeness::shapes_of(int strategy, int group, int stage, const CompiledStrategy& s) {
  std::vector<int>& shapes = shapes_[{strategy, group, stage}];
  if (!shapes.empty()) return shapes;
  const ir::StageCode& code = s.groups[static_cast<size_t>(group)].stages[static_cast<size_t>(stage)];
  std::map<std::vector<i64>, int> numbers;
  for (int position = 0; position < code.lane.size(); ++position) {
    std::vector<i64> sizes;
    for (const ir::Buffer& buffer : code.buffers)
      for (int d = 0; d < buffer.box[static_cast<size_t>(position)].dims; ++d) sizes.push_back(buffer.box[static_cast<size_t>(position)].size(d));
    shapes.push_back(numbers.try_emplace(sizes, static_cast<int>(numbers.size())).first->second);
  }
  return shapes;
}

}  // namespace switchyard::compiler
