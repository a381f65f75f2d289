// Shard maps of LLaMA models under strategies, as the planner gets them.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "switching/plan.hpp"

namespace switchyard::switching {

/// A parameter: its shape, the dim that tensor parallelism cuts (-1: copies), and the layer it belongs to.
struct Tensor {
  layout::Shape shape;
  int cut = -1;
  int layer = 0;  // -1: embedding, with the first layer; the number of layers: norm and head, with the last
};

struct Model {
  int layers = 0;
  std::vector<Tensor> tensors;
  std::vector<UnitMaps> units;  // by layer, embedding and head included if the model has them
};

inline void add_unit(Model& model, int layer, const std::vector<std::pair<layout::Shape, int>>& tensors) {
  UnitMaps unit;
  for (const auto& [shape, cut] : tensors) {
    unit.tensors.push_back(static_cast<int>(model.tensors.size()));
    model.tensors.push_back({shape, cut, layer});
  }
  model.units.push_back(unit);
}

/// `vocabulary` 0: the layers alone.
inline Model llama(int layers, i64 h, i64 heads, i64 kv_heads, i64 f, i64 vocabulary) {
  const i64 d = h / heads, kv = kv_heads * d;
  const layout::Shape q{{h, h}, {{d * heads / kv_heads, d}, {}}}, k{{kv, h}, {{d, 1}, {}}},
      o{{h, h}, {{}, {d * heads / kv_heads, d}}};
  const layout::Shape up{{f, h}, {{8}, {}}}, down{{h, f}, {{}, {8}}}, norm = layout::plain({h}),
                                                                      table{{vocabulary, h}, {{8}, {}}};
  Model model{layers, {}, {}};
  if (vocabulary > 0) add_unit(model, -1, {{table, 0}});
  for (int layer = 0; layer < layers; ++layer) {
    add_unit(model, layer, {{norm, -1}, {q, 0}, {k, 0}, {k, 0}, {o, 1}, {norm, -1}, {up, 0}, {up, 0}, {down, 1}});
  }
  if (vocabulary > 0) add_unit(model, layers, {{norm, -1}, {table, 0}});
  return model;
}

inline Model llama_7b() { return llama(32, 4096, 32, 32, 11008, 0); }
inline Model llama_32b() { return llama(60, 6656, 64, 64, 17920, 0); }

inline i64 layer_elements(const Model& model) {
  i64 elements = 0;
  for (const Tensor& tensor : model.tensors) elements += tensor.layer == 0 ? tensor.shape.elements() : 0;
  return elements;
}

/// A stage: dp * tp ranks, tensor fastest, with the layers [first, end).
struct StageSpec {
  std::vector<int> ranks;
  int dp = 1, tp = 1, first = 0, end = 0;
};
/// Stages of all pipelines; several pipelines are lists one after another.
using StrategySpec = std::vector<StageSpec>;

/// Tensor fastest, then data, then pipeline; layers split evenly.
inline StrategySpec strategy(int dp, int tp, int pp, int layers, int first_rank = 0) {
  StrategySpec stages;
  for (int p = 0; p < pp; ++p) {
    StageSpec stage{std::vector<int>(static_cast<size_t>(dp * tp)), dp, tp, layers * p / pp, layers * (p + 1) / pp};
    std::iota(stage.ranks.begin(), stage.ranks.end(), first_rank + p * dp * tp);
    stages.push_back(stage);
  }
  return stages;
}

inline bool has_layer(const StageSpec& stage, const Tensor& tensor, int layers) {
  const int layer = std::clamp(tensor.layer, 0, layers - 1);
  return stage.first <= layer && layer < stage.end;
}

inline layout::ShardMap stage_map(const StageSpec& stage, const Tensor& tensor, bool gradient) {
  const layout::Mesh mesh{{{"dp", stage.dp}, {"tp", stage.tp}}, stage.ranks};
  layout::Layout layout = layout::replicated(tensor.shape.dims());
  if (tensor.cut >= 0) layout.split[static_cast<size_t>(tensor.cut)] = {1};
  if (gradient)
    layout.partial = tensor.cut >= 0 ? std::vector<int>{0} : std::vector<int>{0, 1};  // norms see a part of the tokens
  return layout::expand(mesh, layout, tensor.shape);
}

/// Parameters as stored: copies over dp and over pipelines.
inline std::vector<layout::ShardMap> stored(const Model& model, const StrategySpec& stages) {
  std::vector<layout::ShardMap> maps;
  for (const Tensor& tensor : model.tensors) {
    std::vector<layout::ShardMap> copies;
    for (const StageSpec& stage : stages) {
      if (has_layer(stage, tensor, model.layers)) copies.push_back(stage_map(stage, tensor, false));
    }
    maps.push_back(layout::as_copies(copies));
  }
  return maps;
}

/// Gradients: partials over dp and pipelines, and over tp where the weight is copied.
inline std::vector<layout::ShardMap> gradients(const Model& model, const StrategySpec& stages) {
  std::vector<layout::ShardMap> maps;
  for (const Tensor& tensor : model.tensors) {
    std::vector<layout::ShardMap> partials;
    for (const StageSpec& stage : stages) {
      if (has_layer(stage, tensor, model.layers)) partials.push_back(stage_map(stage, tensor, true));
    }
    maps.push_back(layout::as_partials(partials));
  }
  return maps;
}

/// Master weights anchored on a strategy.
inline std::vector<layout::ShardMap> home(const Model& model, const StrategySpec& stages) {
  std::vector<layout::ShardMap> maps = stored(model, stages);
  for (auto& map : maps) map = layout::one_owner(map);
  return maps;
}

/// "0>1 46208; 2>3 128": bytes between different ranks in one round, by source and destination.
inline std::string pairs(const std::vector<layout::Msg>& round, i64 element_size) {
  std::vector<std::pair<std::pair<int, int>, i64>> sums;
  for (const layout::Msg& msg : round) {
    if (msg.src == msg.dst) continue;
    const std::pair<int, int> pair{msg.src, msg.dst};
    if (sums.empty() || sums.back().first != pair) sums.push_back({pair, 0});
    sums.back().second += msg.box.elements() * element_size;
  }
  std::string text;
  for (const auto& [pair, bytes] : sums) {
    if (!text.empty()) text += "; ";
    text += std::to_string(pair.first) + ">" + std::to_string(pair.second) + " " + std::to_string(bytes);
  }
  return text;
}

}  // namespace switchyard::switching
