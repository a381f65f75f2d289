// Small planning problems, drawn at random: a model, a cluster, documents, and what strategies may be.
#pragma once

#include <algorithm>
#include <random>
#include <utility>

#include "../cases.hpp"
#include "planner/search.hpp"
#include "planner/workload.hpp"

namespace switchyard::planner {

/// So many ranks on the axis of Megatron's tensor parallelism.
inline StageMesh outer(int ranks) { return {{layout::StageAxis::outer, ranks}}; }

/// So many pipelines that share their weights, of so many ranks of Megatron's tensor parallelism.
inline StageMesh depth(int pipelines, int ranks) {
  return {{layout::StageAxis::depth, pipelines}, {layout::StageAxis::outer, ranks}};
}

inline StageMesh mesh(int ulysses, int outer, int inner) {
  return {{layout::StageAxis::ulysses, ulysses}, {layout::StageAxis::outer, outer}, {layout::StageAxis::inner, inner}};
}

inline config::ModelConfig model_of(i64 layers, i64 hidden, i64 vocabulary) {
  config::ModelConfig model = config::family_defaults(config::Family::llama);
  model.layers = layers;
  model.hidden_size = hidden;
  model.heads = model.kv_heads = 8;
  model.head_dim = hidden / 8;
  model.ffn_size = 3 * hidden;
  model.vocab_size = vocabulary;
  model.max_positions = 1 << 20;
  return model;
}

/// Links, launches and memory count, efficiency rises with size.
inline cluster::Hardware hardware_of(int hosts, int devices, double launch, double intra, double inter) {
  cluster::Hardware hardware;
  hardware.name = "test";
  hardware.hosts = hosts;
  hardware.devices_per_host = devices;
  const cluster::EfficiencyCurve curve{{{1e6, 0.2}, {1e8, 0.6}, {1e10, 0.9}}};
  for (const DType type : {DType::f32, DType::bf16}) hardware.device.rates[type] = {{1e13}, {1e12}, curve};
  hardware.device.launch = {launch};
  hardware.device.width_curve = {{{16, 0.3}, {256, 1.0}}};
  hardware.intra_host = {{2e-6}, {intra}, 1, {{{1e4, 0.5}, {1e7, 0.9}}}};
  hardware.inter_host = cluster::LinkClass{{1e-5}, {inter}, 2, {}};
  hardware.overlap_slowdown = 1.2;
  return hardware;
}

/// In every sixth problem devices slow each other down.
inline cluster::Hardware some_shared(cluster::Hardware hardware, unsigned seed) {
  if (seed % 6 == 5) hardware.device.alone_speedup = 1.7;
  return hardware;
}

/// In every fourth problem links between hosts reach a part of their bandwidth, and sums less.
inline cluster::Hardware some_curves(cluster::Hardware hardware, unsigned seed) {
  if (seed % 4 != 2) return hardware;
  hardware.inter_host->curve = {{{1e3, 0.2}, {1e6, 0.7}}};
  hardware.intra_host.sum_share = hardware.inter_host->sum_share = 0.7;
  return hardware;
}

/// In every third problem strategies may have codecs, on all links or between hosts.
inline config::Compression some_codecs(unsigned seed) {
  using codecs::Codec;
  if (seed % 3 != 2) return {};
  return {.gradients = seed % 2 == 0 ? Codec::int8 : Codec::top_32,
          .pipeline = Codec::fp8,
          .activations = Codec::int8,
          .ulysses = Codec::int8,
          .gathers = Codec::int8,
          .links = seed % 4 == 1 ? config::CompressedLinks::hosts : config::CompressedLinks::all};
}

/// The shape with the least stage of ZeRO with which it fits beside the home that takes least; the last one if none
/// does.
inline Shape cut_to_fit(const CostModel& model, Shape shape, i64 capacity, Range range, i64 memory) {
  const bool home = range.hi == static_cast<int>(model.bounds().size());
  const i64 room = memory - (home ? model.home_bytes({shape.placement}) : model.least_home_bytes());
  while (memory > 0 && model.need(shape, capacity, range).total() > room) {
    const std::optional<Placement> cut = cut_further(shape.placement);
    if (!cut) break;
    shape.placement = *cut;
  }
  return shape;
}

/// Few axes where there are few problems.
inline std::vector<layout::StageAxis> axes_of_problems() {
  return cases(2, 1) > 1 ? stage_axes() : std::vector{layout::StageAxis::outer};
}

struct SmallProblem {
  explicit SmallProblem(unsigned seed)
      : random(seed),
        hardware(some_curves(some_shared(hardware_of(pick({1, 2}), pick({2, 4}), 1e-6 * pick({1, 5, 40}),
                                                     1e9 * pick({5, 50, 200}), 1e9 * pick({1, 10})),
                                         seed),
                             seed)),
        units(model_of(pick({2, 3, 4}), 64 * pick({1, 4, 8}), pick({100, 4000})),
              precision_from(seed % 4 < 3 ? "bf16" : "fp32"), hardware, {}, some_codecs(seed)),
        transfers(units),
        model(units, transfers, workload_of(documents(), 4096, 512)) {
    // Comparisons with every plan there is take long, so most problems have two axes at most.
    limits.axes = stage_axes();
    for (int axes = pick({1, 2, 2, 2, 3}); std::cmp_greater(limits.axes.size(), axes);)
      limits.axes.erase(limits.axes.begin() + static_cast<std::ptrdiff_t>(random() % limits.axes.size()));
    limits.both_orders = pick({0, 1}) == 1;
    limits.most_head_layers = pick({0, 1});
    const std::vector<config::Recompute> all = limits.recompute;
    limits.recompute = {all[static_cast<size_t>(pick({0, 1, 2}))], all[3]};
    if (pick({0, 1}) == 1) limits.schedules.resize(static_cast<size_t>(pick({1, 2})));
    shapes = planner::shapes(units.model(), hardware.ranks(), limits);
    if (pick({0, 1}) == 1) settings.memory = memory(seed % 4 == 1);
  }

  int pick(std::initializer_list<int> of) { return *(of.begin() + static_cast<std::ptrdiff_t>(random() % of.size())); }

  // Most documents are short, as in real corpora.
  std::vector<std::vector<i64>> documents() {
    std::vector<std::vector<i64>> steps(static_cast<size_t>(pick({1, 1, 2})));
    for (std::vector<i64>& lengths : steps)
      for (int count = 4 + pick({0, 5, 40}); count > 0; --count) {
        const double share = std::generate_canonical<double, 32>(random);
        lengths.push_back(1 + static_cast<i64>(4095 * share * share * share));
      }
    return steps;
  }

  // A budget between the needs of the candidates for the longest documents that take least and most memory; cut: one so
  // small that many fit only with ZeRO-2 or 3.
  i64 memory(bool cut) {
    const Range longest{static_cast<int>(model.bounds().size()) - 1, static_cast<int>(model.bounds().size())};
    std::vector<i64> needs;
    for (Shape shape : shapes) {
      if (cut && shape.placement.copies() > 1) shape.placement.zero = 3;
      for (const i64 documents : {1, 2})  // in a micro-batch
        needs.push_back(model.need(shape, documents * model.longest(longest), longest).total() +
                        model.home_bytes({shape.placement}));
    }
    std::ranges::sort(needs);
    return needs[needs.size() * static_cast<size_t>(pick({1, 3, 5})) / (cut ? 32 : 8)];
  }

  std::mt19937 random;
  cluster::Hardware hardware;
  UnitCosts units;
  Transfers transfers;
  CostModel model;
  SpaceLimits limits;
  std::vector<Shape> shapes;
  SearchSettings settings;
};

}  // namespace switchyard::planner
