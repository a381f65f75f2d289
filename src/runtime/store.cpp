#include "runtime/store.hpp"

#include <algorithm>

#include "base/errors.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {
namespace {

constexpr i64 kAlign = 16;  // elements; groups start on their own cache lines

i64 aligned(i64 elements) { return (elements + kAlign - 1) / kAlign * kAlign; }

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
  void next_group() { at_ = aligned(at_); }

 private:
  i64 at_ = 0;
};

std::vector<const layout::Box*> boxes_of(const std::vector<layout::ShardMap>& maps, int rank) {
  std::vector<const layout::Box*> boxes(maps.size(), nullptr);
  for (size_t p = 0; p < maps.size(); ++p)
    for (const layout::Shard& shard : maps[p].shards)
      if (shard.rank == rank) boxes[p] = &shard.box;
  return boxes;
}

std::vector<layout::Box> home_boxes(const compiler::Plans& plans, int rank, int param) {
  std::vector<layout::Box> boxes;
  for (const layout::Shard& shard : plans.home()[static_cast<size_t>(param)].shards)
    if (shard.rank == rank) boxes.push_back(shard.box);
  return boxes;
}

i64 home_elements(const compiler::Plans& plans, int rank, const std::vector<std::vector<int>>& groups) {
  i64 total = 0;
  for (const auto& group : groups) {
    for (const int p : group)
      for (const layout::Box& box : home_boxes(plans, rank, p)) total += box.elements();
    total = aligned(total);
  }
  return total;
}

}  // namespace

std::vector<std::vector<int>> grouped(const ir::Graph& graph, const std::vector<int>& params) {
  std::vector<std::vector<int>> groups;
  std::map<std::string, size_t> place;
  for (const int p : params) {
    const std::string& name = graph.param(p).group;
    if (const auto it = name.empty() ? place.end() : place.find(name); it != place.end()) {
      groups[it->second].push_back(p);
      continue;
    }
    if (!name.empty()) place[name] = groups.size();
    groups.push_back({p});
  }
  return groups;
}

i64 Store::home_bytes(const compiler::Plans& plans, int rank) {
  const Precision precision = plans.graph().precision();
  const i64 per_element = 4 * size_of(precision.state) + (precision.compute == precision.state ? 0 : size_of(precision.compute));
  i64 total = 0;
  for (const auto& unit : plans.units()) total += per_element * home_elements(plans, rank, grouped(plans.graph(), unit.tensors));
  return total;
}

Store::Store(const compiler::Plans& plans, int rank, at::Device device) : plans_(plans), rank_(rank), device_(device) {
  for (const compiler::CompiledStrategy& s : plans.strategies()) {
    used_.push_back(boxes_of(s.maps.used, rank));
    grad_.push_back(boxes_of(s.maps.grad, rank));
  }
  const Precision precision = plans.graph().precision();
  for (const auto& unit : plans.units()) {
    const auto groups = grouped(plans.graph(), unit.tensors);
    const std::vector<i64> n = {home_elements(plans, rank, groups)};
    HomeUnit home;
    for (at::Tensor* flat : {&home.master, &home.m, &home.v, &home.grad}) *flat = zeros(n, precision.state, device);
    home.image = precision.compute == precision.state ? home.master : zeros(n, precision.compute, device);
    Carver master, m, v, grad, image;
    for (const auto& group : groups) {
      for (const int p : group)
        for (const layout::Box& box : home_boxes(plans, rank, p))
          home.shards.push_back({p, box, master.take(home.master, box), m.take(home.m, box), v.take(home.v, box), grad.take(home.grad, box),
                                 image.take(home.image, box)});
      for (Carver* carver : {&master, &m, &v, &grad, &image}) carver->next_group();
    }
    home_.push_back(std::move(home));
  }
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

const layout::Box* Store::used_box(int strategy, int param) const {
  return used_[static_cast<size_t>(strategy)][static_cast<size_t>(param)];
}
const layout::Box* Store::grad_box(int strategy, int param) const {
  return grad_[static_cast<size_t>(strategy)][static_cast<size_t>(param)];
}

// All or none of a group, so that its members stay adjacent.
bool Store::aliases_image(int strategy, const std::vector<int>& group) const {
  return std::all_of(group.begin(), group.end(), [&](int p) {
    const layout::Box* box = used_box(strategy, p);
    const auto homes = box ? home_boxes(plans_, rank_, p) : std::vector<layout::Box>{};
    return homes.size() == 1 && homes[0] == *box;
  });
}

void Store::prepare(PhaseKey phase, PhaseKey previous, int unit) {
  Bank made;
  const auto groups = grouped(plans_.graph(), plans_.units()[static_cast<size_t>(unit)].tensors);
  std::vector<std::vector<int>> own;
  i64 total = 0;
  for (const auto& group : groups) {
    std::vector<int> held;
    for (const int p : group)
      if (used_box(phase.strategy, p)) held.push_back(p);
    if (held.empty()) continue;
    const bool same = previous.strategy >= 0 && std::all_of(held.begin(), held.end(), [&](int p) {
                        const layout::Box* before = used_box(previous.strategy, p);
                        return before && *before == *used_box(phase.strategy, p);
                      });
    if (aliases_image(phase.strategy, held)) {
      for (const int p : held) made.params[p] = home_shard(p, *used_box(phase.strategy, p)).image;
    } else if (same) {
      for (const int p : held) made.params[p] = param(previous, p);
    } else {
      own.push_back(held);
      for (const int p : held) total += used_box(phase.strategy, p)->elements();
      total = aligned(total);
    }
  }
  if (total > 0) {
    made.storage = empty({total}, plans_.graph().precision().compute, device_);
    Carver carver;
    for (const auto& group : own) {
      for (const int p : group) made.params[p] = carver.take(made.storage, *used_box(phase.strategy, p));
      carver.next_group();
    }
  }
  // Pieces that this rank has are copied; moves bring the others.
  for (const auto& group : own)
    for (const int p : group) {
      const layout::Box& target = *used_box(phase.strategy, p);
      std::vector<std::pair<layout::Box, at::Tensor>> pieces;
      for (const HomeShard& shard : home_[static_cast<size_t>(unit)].shards)
        if (shard.param == p) pieces.emplace_back(shard.box, shard.image);
      if (previous.strategy >= 0 && used_box(previous.strategy, p))
        pieces.emplace_back(*used_box(previous.strategy, p), param(previous, p));
      for (const auto& [box, tensor] : pieces) {
        const layout::Box common = layout::intersect(box, target);
        if (!common.empty()) view_of(made.params[p], target, common).copy_(view_of(tensor, box, common));
      }
    }
  const std::lock_guard lock(mutex_);
  banks_[{phase.phase, unit}] = std::move(made);
}

const Bank& Store::bank(PhaseKey phase, int unit) const {
  const auto it = banks_.find({phase.phase, unit});
  check(it != banks_.end(), "rank {}: no bank of phase {} unit {}", rank_, phase.phase, unit);
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
  for (const auto& group : grouped(plans_.graph(), plans_.units()[static_cast<size_t>(unit_of(param))].tensors)) {
    if (std::find(group.begin(), group.end(), param) == group.end()) continue;
    i64 total = 0;
    for (const int p : group)
      if (grad_box(phase.strategy, p)) total += grad_box(phase.strategy, p)->elements();
    const at::Tensor flat = zeros({total}, plans_.graph().precision().state, device_);
    Carver carver;
    for (const int p : group)
      if (grad_box(phase.strategy, p)) unit[p] = carver.take(flat, *grad_box(phase.strategy, p));
  }
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
    if (const layout::Box* held = used_box(previous.strategy, p); held && held->contains(box))
      return view_of(param(previous, p), *held, box);
  for (const HomeShard& shard : home_[static_cast<size_t>(unit_of(p))].shards)
    if (shard.param == p && shard.box.contains(box)) return view_of(shard.image, shard.box, box);
  const layout::Box* held = used_box(phase.strategy, p);
  check(held && held->contains(box), "rank {} has no {} of {}", rank_, layout::to_string(box), plans_.graph().param(p).name);
  return view_of(param(phase, p), *held, box);
}

HomeShard& Store::home_shard(int param, const layout::Box& box) {
  for (HomeShard& shard : home_[static_cast<size_t>(unit_of(param))].shards)
    if (shard.param == param && shard.box.contains(box)) return shard;
  throw InternalError(fmt::format("rank {} is no home of {} {}", rank_, plans_.graph().param(param).name, layout::to_string(box)));
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
    if (unit.grad.numel() > 0) total += kernels::sum_of_squares(unit.grad);
  return total;
}

void Store::zero_gradients() {
  for (HomeUnit& unit : home_) unit.grad.zero_();
}

}  // namespace switchyard::runtime
