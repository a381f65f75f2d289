#include "runtime/working_parameters.hpp"

#include <limits>

#include "base/errors.hpp"
#include "runtime/device_order.hpp"
#include "runtime/flat_memory.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {

using compiler::UnitUse;

WorkingParameters::WorkingParameters(const compiler::Plans& plans, const compiler::Holdings& holdings, const Home& home,
                                     at::Device device)
    : plans_(plans), holdings_(holdings), home_(home), device_(device) {}

UnitUse WorkingParameters::use_of(PhaseKey phase, int param, bool gradient) const {
  return {phase.phase, unit_of(param), gradient};
}

UnitUse WorkingParameters::use_of(const RunKey& run, int param, bool gradient) const {
  const int unit = unit_of(param);
  UnitUse use = gradient ? run.gradients : unit == run.kept.unit ? run.kept : run.copy;
  use.unit = unit;
  return use;
}

void WorkingParameters::allocate(PhaseKey phase, PhaseKey previous, int unit) {
  using Source = compiler::WorkingGroup::Source;
  Unit made;
  for (const compiler::WorkingGroup& group : holdings_.working(phase.strategy, previous.strategy, unit)) {
    at::Tensor flat;
    if (group.source == Source::own) flat = empty({group.elements}, plans_.graph().precision().compute, device_);
    FlatMemory memory(flat);
    for (const int p : group.params) {
      const layout::Box& box = *holdings_.stored(phase.strategy, p);
      if (group.source == Source::home) made[p] = home_.shard(p, box).compute_copy;
      if (group.source == Source::previous) made[p] = param(previous, p);
      if (group.source != Source::own) continue;
      made[p] = memory.take(box);
      copy_held(made[p], p, box, previous);
    }
  }
  const std::lock_guard lock(mutex_);
  held_[{phase.phase, unit, false}] = std::move(made);
}

// Pieces that this rank has, each from one place.
void WorkingParameters::copy_held(at::Tensor& target, int p, const layout::Box& box, PhaseKey previous) const {
  const auto copy = [&](const at::Tensor& tensor, const layout::Box& held) {
    const layout::Box common = layout::intersect(held, box);
    if (!common.empty()) copy_view(view_of(target, box, common), view_of(tensor, held, common));
  };
  const layout::Box* before = previous.strategy >= 0 ? holdings_.stored(previous.strategy, p) : nullptr;
  if (before) copy(param(previous, p), *before);
  for (const HomeShard& shard : home_.shards_with(p))
    if (shard.param == p && !(before && before->contains(layout::intersect(shard.box, box))))
      copy(shard.compute_copy, shard.box);
}

at::Tensor WorkingParameters::held(const UnitUse& use, int param) const {
  const std::lock_guard lock(mutex_);
  const auto unit = held_.find(use);
  check(unit != held_.end(), "rank {}: phase {} has no parameters of unit {}", holdings_.rank(), use.phase, use.unit);
  return unit->second.at(param);
}

at::Tensor WorkingParameters::param(PhaseKey phase, int param) const {
  return held(use_of(phase, param, false), param);
}

at::Tensor WorkingParameters::run_param(const RunKey& run, int p) const {
  return run.gathers ? held(use_of(run, p, false), p) : param(run.phase, p);
}

// A group's members are adjacent, so that one matrix product reads or writes them all.
template <class Elements, class Box, class Make>
at::Tensor WorkingParameters::group_member(const UnitUse& use, int param, const Elements& elements, const Box& box,
                                           const Make& make) {
  const std::lock_guard making(making_);
  {
    const std::lock_guard lock(mutex_);
    if (const auto unit = held_.find(use); unit != held_.end())
      if (const auto it = unit->second.find(param); it != unit->second.end()) return it->second;
  }
  // Where there is no room yet, this waits for what others drop.
  FlatMemory memory(make(elements(holdings_.group_of(param))));
  const std::lock_guard lock(mutex_);
  Unit& unit = held_[use];
  for (const int p : holdings_.group_of(param))
    if (const layout::Box* own = box(p)) unit[p] = memory.take(*own);
  return unit.at(param);
}

at::Tensor WorkingParameters::run_copy(const RunKey& run, int param) {
  const int strategy = run.phase.strategy;
  return group_member(
      use_of(run, param, false), param,
      [&](const std::vector<int>& group) { return holdings_.used_elements(strategy, group); },
      [&](int p) { return holdings_.used(strategy, p); },
      [&](i64 n) { return empty({n}, plans_.graph().precision().compute, device_); });
}

at::Tensor WorkingParameters::gradient(PhaseKey phase, int param) {
  return group_member(
      use_of(phase, param, true), param,
      [&](const std::vector<int>& group) { return holdings_.gradient_elements(phase.strategy, group); },
      [&](int p) { return holdings_.grad(phase.strategy, p); },
      [&](i64 n) { return zeros({n}, plans_.graph().precision().state, device_); });
}

at::Tensor WorkingParameters::run_gradient(const RunKey& run, int param) {
  if (!run.reduces) return gradient(run.phase, param);
  const int strategy = run.phase.strategy;
  const at::Tensor own = group_member(
      use_of(run, param, true), param,
      [&](const std::vector<int>& group) { return holdings_.made_elements(strategy, group); },
      [&](int p) { return holdings_.made(strategy, p); },
      [&](i64 n) { return zeros({n}, plans_.graph().precision().state, device_); });
  for (const int p : holdings_.group_of(param))
    if (holdings_.grad(strategy, p)) gradient(run.phase, p);
  return own;
}

bool WorkingParameters::has_gradient(PhaseKey phase, int param) const {
  const std::lock_guard lock(mutex_);
  const auto unit = held_.find(use_of(phase, param, true));
  return unit != held_.end() && unit->second.contains(param);
}

void WorkingParameters::record_use(const UnitUse& use) const {
  if (device_.is_cpu()) return;
  const std::lock_guard lock(mutex_);
  const auto unit = held_.find(use);
  if (unit == held_.end()) return;
  for (const auto& [param, tensor] : unit->second) runtime::record_use(tensor);
}

void WorkingParameters::drop(const UnitUse& use) {
  const std::lock_guard lock(mutex_);
  const auto unit = held_.find(use);
  if (unit == held_.end()) return;
  if (poison_ && use.of_run())
    for (auto& [param, tensor] : unit->second) tensor.fill_(std::numeric_limits<double>::quiet_NaN());
  held_.erase(unit);
}

at::Tensor WorkingParameters::source(PhaseKey phase, PhaseKey previous, int p, const layout::Box& box) const {
  if (previous.strategy >= 0)
    if (const layout::Box* held = holdings_.stored(previous.strategy, p); held && held->contains(box))
      return view_of(param(previous, p), *held, box);
  if (const HomeShard* shard = home_.find(p, box)) return view_of(shard->compute_copy, shard->box, box);
  const layout::Box* held = holdings_.stored(phase.strategy, p);
  check(held && held->contains(box), "rank {} has no {} of {}", holdings_.rank(), box, plans_.graph().param(p).name);
  return view_of(param(phase, p), *held, box);
}

at::Tensor WorkingParameters::run_source(const RunKey& run, int p, const layout::Box& box) {
  if (const layout::Box* held = holdings_.stored(run.phase.strategy, p); held && held->contains(box))
    return view_of(param(run.phase, p), *held, box);
  return view_of(run_copy(run, p), *holdings_.used(run.phase.strategy, p), box);
}

}  // namespace switchyard::runtime
