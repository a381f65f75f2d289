#include "compiler/replica_schedule.hpp"

#include <algorithm>

#include "base/errors.hpp"
#include "schedule/interleaved.hpp"
#include "schedule/zero_bubble.hpp"
#include "schedule/zeropp.hpp"

namespace switchyard::compiler {
namespace {

// Estimated seconds of each position.
schedule::Costs costs_of(const std::vector<StageCost>& stages, double T, double pairs) {
  schedule::Costs costs;
  for (const StageCost& stage : stages) {
    const NominalDevice device = nominal_device(stage.compute);
    const auto waited = [&](const SegmentCost& cost) {
      return Seconds{cost.bytes_waited_per_token * T / device.inside};
    };
    const auto seconds = [&](const SegmentCost& cost) { return device.seconds(cost, T, pairs) + waited(cost); };
    schedule::ItemTimes& times = costs.at.emplace_back(
        schedule::ItemTimes{seconds(stage.forward), seconds(stage.backward), seconds(stage.weight)});
    if (stage.joins())
      times.saved = std::clamp(waited(stage.backward) + waited(stage.weight) - waited(stage.joined), Seconds{},
                               times.weight_gradient);
  }
  return costs;
}

// Costs on three kinds of device: products and memory set the pace; the start of small kernels does, which lengthens
// each pass by as much; communication lengthens F and B, and sends are slow. With products and memory alone, orders
// came out that take 1.7 times as long as 1F1B on a device of the second kind. On the third one BW hides the same share
// of what communication adds to B, as far as W lasts.
std::vector<schedule::Costs> on_devices(const std::vector<StageCost>& stages, double T, double pairs) {
  struct Extra {
    double path, weights, send;  // multiples of the mean F: in F and B, in W, and between stages
  };
  const schedule::Costs least = costs_of(stages, T, pairs);
  Seconds forward;
  for (const schedule::ItemTimes& times : least.at) forward += times.forward;
  forward = forward * (1.0 / static_cast<double>(stages.size()));
  std::vector<schedule::Costs> made;
  for (const Extra& extra : {Extra{0, 0, 0}, Extra{3, 3, 0.1}, Extra{1, 0, 0.3}}) {
    schedule::Costs& costs = made.emplace_back(least);
    for (size_t at = 0; at < costs.at.size(); ++at) {
      schedule::ItemTimes& times = costs.at[at];
      const double waited = stages[at].backward.bytes_waited_per_token + stages[at].weight.bytes_waited_per_token;
      if (extra.path > extra.weights && times.saved.count > 0) {
        const double hidden = 1 - stages[at].joined.bytes_waited_per_token / waited;
        times.saved = std::min(times.weight_gradient, times.saved + hidden * extra.path * forward);
      }
      times.forward += extra.path * forward;
      times.input_gradient += extra.path * forward;
      times.weight_gradient += extra.weights * forward;
    }
    costs.send = extra.send * forward;
  }
  return made;
}

// Forward passes of all chunks, one position after the other.
schedule::Schedule forwards(int stages, int mbs, int chunks, schedule::Placement placement) {
  schedule::Schedule made{
      .order = schedule::Order(static_cast<size_t>(stages)), .mbs = mbs, .chunks = chunks, .placement = placement};
  for (std::vector<schedule::Item>& items : made.order)
    for (const Pass pass : {Pass::F, Pass::BW})
      for (int i = 0; i < chunks; ++i)
        for (int mb = 0; mb < mbs; ++mb) items.push_back({pass, pass == Pass::F ? i : chunks - 1 - i, mb});
  return made;
}

schedule::Schedule by_hand(const config::Strategy& strategy, int mbs) {
  schedule::Schedule made = strategy.order;
  if (made.mbs < mbs)
    user_error(
        "strategy \"{}\": its schedule has {} micro-batches, but a step has {} on one replica. Give it more, or make "
        "the batch smaller.",
        strategy.name, made.mbs, mbs);
  made.mbs = mbs;
  for (std::vector<schedule::Item>& items : made.order)
    std::erase_if(items, [&](const schedule::Item& item) { return item.mb >= mbs; });
  return made;
}

}  // namespace

// bf16 products have hardware of their own: A100 312e12 flops/s, 2.0e12 bytes/s of memory, 300e9 of NVLink each way,
// one port of 25e9 between hosts (NVIDIA's data sheets). Other types run on CPUs, or on units whose speed is close to
// that of memory.
NominalDevice nominal_device(DType compute) {
  constexpr double kMemory = 1e10;
  return compute == DType::bf16
             ? NominalDevice{.flops = 150 * kMemory, .memory = kMemory, .inside = kMemory / 7, .across = kMemory / 80}
             : NominalDevice{.flops = 5 * kMemory, .memory = kMemory, .inside = kMemory / 2, .across = kMemory / 10};
}

schedule::Schedule schedule_of(const CompiledStrategy& s, int group, int mbs,
                               const std::vector<batch::MicroBatch>& micro_batches, bool train) {
  const config::Strategy& strategy = s.strategy;
  const std::vector<StageCost>& costs = s.cost[static_cast<size_t>(group)];
  const int chunks = strategy.chunk_count(), stages = static_cast<int>(costs.size()) / chunks;
  if (!train) return forwards(stages, mbs, chunks, strategy.placement());
  if (!strategy.order.order.empty()) return by_hand(strategy, mbs);
  double T = 0, pairs = 0;
  for (const batch::MicroBatch& mb : micro_batches) {
    const double parts = static_cast<double>(micro_batches.size() * mb.T.size());
    T += static_cast<double>(batch::tokens(mb)) / parts;
    pairs += batch::attention_pairs(mb) / parts;
  }
  return schedule_of(strategy.schedule, chunks, strategy.activation_cap, strategy.every, costs, mbs, T, pairs);
}

schedule::Schedule schedule_of(config::ScheduleKind kind, int chunks, int cap, int every,
                               const std::vector<StageCost>& costs, int mbs, double T, double pairs) {
  using config::ScheduleKind;
  const int stages = static_cast<int>(costs.size()) / chunks;
  switch (kind) {
    case ScheduleKind::gpipe:
      return schedule::gpipe(stages, mbs);
    case ScheduleKind::one_f_one_b:
      return schedule::one_f_one_b(stages, mbs);
    case ScheduleKind::interleaved:
      return schedule::interleaved(stages, mbs, chunks);
    case ScheduleKind::zero_bubble:
      return schedule::zero_bubble(stages, mbs, cap > 0 ? cap : stages, on_devices(costs, T, pairs));
    case ScheduleKind::zb_v:
      return schedule::zero_bubble_v(stages, mbs, cap > 0 ? cap : 2 * stages, on_devices(costs, T, pairs));
    case ScheduleKind::zeropp:
      return schedule::zeropp(stages, mbs, chunks, every, costs_of(costs, T, pairs));
  }
  throw InternalError("schedule_of: unknown schedule");
}

}  // namespace switchyard::compiler
