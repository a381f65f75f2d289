#include "runtime/working_parameters.hpp"

#include "base/errors.hpp"
#include "runtime/flat_memory.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {

WorkingParameters::WorkingParameters(const compiler::Plans& plans, const compiler::Holdings& holdings, const Home& home,
                                     at::Device device)
    : plans_(plans), holdings_(holdings), home_(home), device_(device) {}

void WorkingParameters::allocate(PhaseKey phase, PhaseKey previous, int unit) {
  using Source = compiler::WorkingGroup::Source;
  Unit made;
  for (const compiler::WorkingGroup& group : holdings_.working(phase.strategy, previous.strategy, unit)) {
    at::Tensor flat;
    if (group.source == Source::own) flat = empty({group.elements}, plans_.graph().precision().compute, device_);
    FlatMemory memory(flat);
    for (const int p : group.params) {
      const layout::Box& box = *holdings_.used(phase.strategy, p);
      if (group.source == Source::home) made[p] = home_.shard(p, box).compute_copy;
      if (group.source == Source::previous) made[p] = param(previous, p);
      if (group.source != Source::own) continue;
      made[p] = memory.take(box);
      copy_held(made[p], p, box, previous);
    }
  }
  const std::lock_guard lock(mutex_);
  params_[{phase.phase, unit}] = std::move(made);
}

// Pieces that this rank has, each from one place.
void WorkingParameters::copy_held(at::Tensor& target, int p, const layout::Box& box, PhaseKey previous) const {
  const auto copy = [&](const at::Tensor& tensor, const layout::Box& held) {
    const layout::Box common = layout::intersect(held, box);
    if (!common.empty()) copy_view(view_of(target, box, common), view_of(tensor, held, common));
  };
  const layout::Box* before = previous.strategy >= 0 ? holdings_.used(previous.strategy, p) : nullptr;
  if (before) copy(param(previous, p), *before);
  for (const HomeShard& shard : home_.shards_with(p))
    if (shard.param == p && !(before && before->contains(layout::intersect(shard.box, box))))
      copy(shard.compute_copy, shard.box);
}

at::Tensor WorkingParameters::param(PhaseKey phase, int param) const {
  const std::lock_guard lock(mutex_);
  const auto unit = params_.find({phase.phase, unit_of(param)});
  check(unit != params_.end(), "rank {}: phase {} has no parameters of unit {}", holdings_.rank(), phase.phase,
        unit_of(param));
  return unit->second.at(param);
}

void WorkingParameters::drop(PhaseKey phase, int unit) {
  const std::lock_guard lock(mutex_);
  params_.erase({phase.phase, unit});
}

at::Tensor WorkingParameters::gradient(PhaseKey phase, int param) {
  const std::lock_guard lock(mutex_);
  Unit& unit = gradients_[{phase.phase, unit_of(param)}];
  if (const auto it = unit.find(param); it != unit.end()) return it->second;
  // A group's accumulators are adjacent, so that one matrix product writes them all.
  const std::vector<int>& group = holdings_.group_of(param);
  FlatMemory memory(
      zeros({holdings_.gradient_elements(phase.strategy, group)}, plans_.graph().precision().state, device_));
  for (const int p : group)
    if (const layout::Box* box = holdings_.grad(phase.strategy, p)) unit[p] = memory.take(*box);
  return unit.at(param);
}

bool WorkingParameters::has_gradient(PhaseKey phase, int param) const {
  const std::lock_guard lock(mutex_);
  const auto unit = gradients_.find({phase.phase, unit_of(param)});
  return unit != gradients_.end() && unit->second.contains(param);
}

void WorkingParameters::drop_gradients(PhaseKey phase, int unit) {
  const std::lock_guard lock(mutex_);
  gradients_.erase({phase.phase, unit});
}

at::Tensor WorkingParameters::source(PhaseKey phase, PhaseKey previous, int p, const layout::Box& box) const {
  if (previous.strategy >= 0)
    if (const layout::Box* held = holdings_.used(previous.strategy, p); held && held->contains(box))
      return view_of(param(previous, p), *held, box);
  if (const HomeShard* shard = home_.find(p, box)) return view_of(shard->compute_copy, shard->box, box);
  const layout::Box* held = holdings_.used(phase.strategy, p);
  check(held && held->contains(box), "rank {} has no {} of {}", holdings_.rank(), box, plans_.graph().param(p).name);
  return view_of(param(phase, p), *held, box);
}

}  // namespace switchyard::runtime
