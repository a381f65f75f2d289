#include "runtime/store.hpp"

#include "base/errors.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {
namespace {

std::vector<i64> sizes_of(const layout::Box& box) {
  std::vector<i64> sizes;
  for (int d = 0; d < box.dims; ++d) sizes.push_back(box.size(d));
  return sizes;
}

// Cuts a flat tensor into shards, in order; groups are aligned, members of a group adjoin.
class Carver {
 public:
  at::Tensor take(const at::Tensor& flat, const layout::Box& box) {
    const i64 n = box.elements();
    at::Tensor piece = flat.narrow(0, at_, n).view(sizes_of(box));
    at_ += n;
    return piece;
  }
  void next_group() { at_ = compiler::aligned(at_); }

 private:
  i64 at_ = 0;
};

}  // namespace

Store::Store(const compiler::Plans& plans, int rank, at::Device device) : plans_(plans), holdings_(plans, rank), device_(device) {
  const Precision precision = plans.graph().precision();
  for (int unit = 0; unit < static_cast<int>(plans.units().size()); ++unit) {
    const std::vector<i64> n = {holdings_.home_elements(unit)};
    HomeUnit home;
    for (at::Tensor* flat : {&home.master, &home.m, &home.v, &home.grad}) *flat = zeros(n, precision.state, device);
    home.image = precision.compute == precision.state ? home.master : zeros(n, precision.compute, device);
    Carver master, m, v, grad, image;
    for (const auto& group : holdings_.groups(unit)) {
      for (const int p : group)
        for (const layout::Box* box : holdings_.home(p))
          home.shards.push_back({p, *box, master.take(home.master, *box), m.take(home.m, *box), v.take(home.v, *box),
                                 grad.take(home.grad, *box), image.take(home.image, *box)});
      for (Carver* carver : {&master, &m, &v, &grad, &image}) carver->next_group();
    }
    home.owned = owned_gradients(home);
    home_.push_back(std::move(home));
  }
}

std::vector<at::Tensor> Store::owned_gradients(const HomeUnit& home) const {
  if (plans_.spread().units.empty()) return {home.grad};
  std::vector<at::Tensor> owned;
  for (const HomeShard& shard : home.shards)
    for (const layout::Box* box : holdings_.owned(shard.param))
      if (shard.box.contains(*box)) owned.push_back(view_of(shard.grad, shard.box, *box));
  return owned;
}

void Store::initialize(const Initial& initial) {
  for (HomeUnit& unit : home_) {
    for (HomeShard& shard : unit.shards) {
      at::Tensor values = empty(sizes_of(shard.box), plans_.graph().precision().state, at::kCPU);
      initial(shard.param, shard.box, values);
      shard.master.copy_(values);
      if (!shard.image.is_same(shard.master)) shard.image.copy_(shard.master);
    }
    unit.m.zero_();
    unit.v.zero_();
    unit.grad.zero_();
  }
}

void Store::prepare(PhaseKey phase, PhaseKey previous, int unit) {
  using Source = compiler::BankGroup::Source;
  Bank made;
  for (const compiler::BankGroup& group : holdings_.bank(phase.strategy, previous.strategy, unit)) {
    at::Tensor flat;
    if (group.source == Source::own) flat = empty({group.elements}, plans_.graph().precision().compute, device_);
    Carver carver;
    for (const int p : group.params) {
      const layout::Box& box = *holdings_.used(phase.strategy, p);
      if (group.source == Source::home) made.params[p] = home_shard(p, box).image;
      if (group.source == Source::previous) made.params[p] = param(previous, p);
      if (group.source != Source::own) continue;
      made.params[p] = carver.take(flat, box);
      copy_held(made.params[p], p, box, previous);
    }
  }
  const std::lock_guard lock(mutex_);
  banks_[{phase.phase, unit}] = std::move(made);
}

// Pieces that this rank has, each from one place; moves bring the others.
void Store::copy_held(at::Tensor& target, int p, const layout::Box& box, PhaseKey previous) const {
  const auto copy = [&](const at::Tensor& tensor, const layout::Box& held) {
    const layout::Box common = layout::intersect(held, box);
    if (!common.empty()) copy_view(view_of(target, box, common), view_of(tensor, held, common));
  };
  const layout::Box* before = previous.strategy >= 0 ? holdings_.used(previous.strategy, p) : nullptr;
  if (before) copy(param(previous, p), *before);
  for (const HomeShard& shard : home_[static_cast<size_t>(unit_of(p))].shards)
    if (shard.param == p && !(before && before->contains(layout::intersect(shard.box, box)))) copy(shard.image, shard.box);
}

const Bank& Store::bank(PhaseKey phase, int unit) const {
  const auto it = banks_.find({phase.phase, unit});
  check(it != banks_.end(), "rank {}: no bank of phase {} unit {}", holdings_.rank(), phase.phase, unit);
  return it->second;
}

void Store::drop_bank(PhaseKey phase, int unit) {
  const std::lock_guard lock(mutex_);
  banks_.erase({phase.phase, unit});
}

at::Tensor Store::param(PhaseKey phase, int param) const {
  const std::lock_guard lock(mutex_);
  return bank(phase, unit_of(param)).params.at(param);
}

at::Tensor Store::gradient(PhaseKey phase, int param) {
  const std::lock_guard lock(mutex_);
  auto& unit = grads_[{phase.phase, unit_of(param)}];
  if (const auto it = unit.find(param); it != unit.end()) return it->second;
  // A group's accumulators adjoin, so that one product makes them all.
  const std::vector<int>& group = holdings_.group_of(param);
  const at::Tensor flat = zeros({holdings_.gradient_elements(phase.strategy, group)}, plans_.graph().precision().state, device_);
  Carver carver;
  for (const int p : group)
    if (const layout::Box* box = holdings_.grad(phase.strategy, p)) unit[p] = carver.take(flat, *box);
  return unit.at(param);
}

bool Store::has_gradient(PhaseKey phase, int param) const {
  const std::lock_guard lock(mutex_);
  const auto it = grads_.find({phase.phase, unit_of(param)});
  return it != grads_.end() && it->second.contains(param);
}

void Store::drop_gradients(PhaseKey phase, int unit) {
  const std::lock_guard lock(mutex_);
  grads_.erase({phase.phase, unit});
}

at::Tensor Store::source(PhaseKey phase, PhaseKey previous, int p, const layout::Box& box) const {
  if (previous.strategy >= 0)
    if (const layout::Box* held = holdings_.used(previous.strategy, p); held && held->contains(box))
      return view_of(param(previous, p), *held, box);
  for (const HomeShard& shard : home_[static_cast<size_t>(unit_of(p))].shards)
    if (shard.param == p && shard.box.contains(box)) return view_of(shard.image, shard.box, box);
  const layout::Box* held = holdings_.used(phase.strategy, p);
  check(held && held->contains(box), "rank {} has no {} of {}", holdings_.rank(), box, plans_.graph().param(p).name);
  return view_of(param(phase, p), *held, box);
}

HomeShard& Store::home_shard(int param, const layout::Box& box) {
  for (HomeShard& shard : home_[static_cast<size_t>(unit_of(param))].shards)
    if (shard.param == param && shard.box.contains(box)) return shard;
  throw InternalError(fmt::format("rank {} is no home of {} {}", holdings_.rank(), plans_.graph().param(param).name, layout::to_string(box)));
}

void Store::update(int unit, const UpdateSettings& settings) {
  HomeUnit& home = home_[static_cast<size_t>(unit)];
  for (HomeShard& shard : home.shards) {
    kernels::AdamW adamw = settings.adamw;
    if (shard.box.dims < 2) adamw.weight_decay = 0;
    const i64 n = shard.master.numel();
    at::Tensor p = shard.master.view({n}), m = shard.m.view({n}), v = shard.v.view({n}), image = shard.image.view({n});
    kernels::adamw(p, m, v, image, shard.grad.view({n}), adamw, settings.clip);
  }
  home.grad.zero_();
}

double Store::gradient_squares() const {
  double total = 0;
  for (const HomeUnit& unit : home_)
    for (const at::Tensor& grad : unit.owned)
      if (grad.numel() > 0) total += kernels::sum_of_squares(grad.reshape({grad.numel()}));
  return total;
}

void Store::zero_gradients() {
  for (HomeUnit& unit : home_) unit.grad.zero_();
}

}  // namespace switchyard::runtime
