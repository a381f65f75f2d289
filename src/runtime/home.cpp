#include "runtime/home.hpp"

#include "base/errors.hpp"
#include "runtime/flat_memory.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {

Home::Home(const compiler::Plans& plans, const compiler::Holdings& holdings, at::Device device)
    : plans_(plans), holdings_(holdings) {
  const Precision precision = plans.graph().precision();
  for (int number = 0; number < static_cast<int>(plans.units().size()); ++number) {
    const std::vector<i64> n = {holdings.home_elements(number)};
    HomeUnit unit;
    if (holdings.has_optimizer())
      for (at::Tensor* flat : {&unit.master, &unit.m, &unit.v, &unit.grad}) *flat = zeros(n, precision.state, device);
    unit.compute_copy = holdings.has_compute_copy() ? zeros(n, precision.compute, device) : unit.master;
    FlatMemory master(unit.master), m(unit.m), v(unit.v), grad(unit.grad), compute_copy(unit.compute_copy);
    for (const auto& group : holdings.groups(number)) {
      for (const int p : group)
        for (const layout::Box* box : holdings.home(p))
          unit.shards.push_back({.param = p,
                                 .box = *box,
                                 .master = master.take(*box),
                                 .m = m.take(*box),
                                 .v = v.take(*box),
                                 .grad = grad.take(*box),
                                 .compute_copy = compute_copy.take(*box)});
      for (FlatMemory* flat : {&master, &m, &v, &grad, &compute_copy}) flat->next_group();
    }
    if (holdings.has_optimizer()) unit.owned = owned_gradients(unit);
    units_.push_back(std::move(unit));
  }
}

std::vector<at::Tensor> Home::owned_gradients(const HomeUnit& unit) const {
  if (plans_.broadcast().units.empty()) return {unit.grad};
  std::vector<at::Tensor> owned;
  for (const HomeShard& shard : unit.shards)
    for (const layout::Box* box : holdings_.owned(shard.param))
      if (shard.box.contains(*box)) owned.push_back(view_of(shard.grad, shard.box, *box));
  return owned;
}

void Home::initialize(const Initial& initial) {
  const Precision precision = plans_.graph().precision();
  const bool optimizer = holdings_.has_optimizer();
  for (HomeUnit& unit : units_) {
    for (HomeShard& shard : unit.shards) {
      at::Tensor& target = optimizer ? shard.master : shard.compute_copy;
      const DType type = optimizer ? precision.state : precision.compute;
      at::Tensor values = target.is_cpu() ? target : empty(sizes_of(shard.box), type, at::kCPU);
      initial(shard.param, shard.box, values);
      target.copy_(values);
      shard.compute_copy.copy_(target);
    }
    if (!optimizer) continue;
    for (at::Tensor* flat : {&unit.m, &unit.v, &unit.grad}) flat->zero_();
  }
}

const HomeShard* Home::find(int param, const layout::Box& box) const {
  for (const HomeShard& shard : shards_with(param))
    if (shard.param == param && shard.box.contains(box)) return &shard;
  return nullptr;
}

const HomeShard& Home::shard(int param, const layout::Box& box) const {
  const HomeShard* found = find(param, box);
  check(found != nullptr, "rank {} has no home shard of {} with {}", holdings_.rank(), plans_.graph().param(param).name,
        layout::to_string(box));
  return *found;
}

void Home::update(int number, const UpdateSettings& settings) {
  HomeUnit& unit = units_[static_cast<size_t>(number)];
  for (HomeShard& shard : unit.shards) {
    kernels::AdamW adamw = settings.adamw;
    if (shard.box.dims < 2) adamw.weight_decay = 0;
    const i64 n = shard.master.numel();
    at::Tensor p = shard.master.view({n}), m = shard.m.view({n}), v = shard.v.view({n}),
               compute_copy = shard.compute_copy.view({n});
    kernels::adamw(p, m, v, compute_copy, shard.grad.view({n}), adamw, settings.clip);
  }
  unit.grad.zero_();
}

void Home::add_gradient_squares(at::Tensor& total) const {
  for (const HomeUnit& unit : units_)
    for (const at::Tensor& grad : unit.owned)
      if (grad.numel() > 0) kernels::add_sum_of_squares(total, grad.reshape({grad.numel()}));
}

void Home::zero_gradients() {
  for (HomeUnit& unit : units_) unit.grad.zero_();
}

}  // namespace switchyard::runtime
