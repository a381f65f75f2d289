// Compiled stages of one layer, and how long their segments take, which models of several threads share.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "cluster/hardware.hpp"
#include "compiler/assemble.hpp"
#include "config/model.hpp"
#include "config/strategy.hpp"
#include "ir/code.hpp"
#include "planner/segment_memory.hpp"
#include "planner/space.hpp"
#include "simulator/segment_times.hpp"

namespace switchyard::planner {

/// Where in the pipeline: with the embedding, without both, with the head, with both.
enum class StageKind { first, middle, last, whole };
inline constexpr int kStageKinds = 4;
StageKind kind_of(int stage, int stages);
/// The kinds that a pipeline of so many stages may have.
std::span<const StageKind> kinds_of(int stages);

/// Seconds of a segment on its slowest replica, for one micro-batch. per_pair: of a query and a key that it sees,
/// computing. Between ring ranks: exchanges of keys and values, and of their gradients; the least seconds of a key that
/// comes from another ring rank of its host, in all of them.
struct Spent {
  double compute = 0, communication = 0, per_pair = 0, per_key = 0;
  int values = 0, gradients = 0;
  double total(double attention_pairs) const { return compute + communication + per_pair * attention_pairs; }
  Spent& operator+=(const Spent& other) {
    compute += other.compute;
    communication += other.communication;
    per_pair += other.per_pair;
    per_key += other.per_key;
    values += other.values;
    gradients += other.gradients;
    return *this;
  }
  friend Spent operator*(int times, const Spent& one) {
    return {.compute = times * one.compute,
            .communication = times * one.communication,
            .per_pair = times * one.per_pair,
            .per_key = times * one.per_key,
            .values = times * one.values,
            .gradients = times * one.gradients};
  }
};

/// The least seconds of a byte that a device receives, where the share of the bandwidth is the largest of the curve.
double least_seconds_of_byte(const cluster::LinkClass& link);

/// Times of a segment by tokens, found where they are asked for: at two sizes an octave, linear between them, for fewer
/// tokens than the least size as for that. Any thread; each size is measured once.
class TimeTable {
 public:
  TimeTable() = default;
  TimeTable(std::function<Spent(i64 T)> measure, i64 multiple);
  Spent at(i64 T) const;
  /// No more than any micro-batches of at most `capacity` tokens take: seconds a token (compute), and seconds a pair
  /// (per_pair); what depends on no tokens as it is. falling: the time of a token is known to fall with the tokens of a
  /// micro-batch, but for micro-batches that aren't a power of two.
  Spent least(i64 capacity, bool falling) const;

 private:
  static constexpr int kSizes = 64;
  i64 size(int index) const { return points_->size[static_cast<size_t>(index)]; }
  const Spent& point(int index) const;

  struct Points {
    std::mutex measuring;
    std::array<i64, kSizes> size;
    std::array<Spent, kSizes> spent;
    std::array<std::atomic<bool>, kSizes> known{};
  };
  std::function<Spent(i64)> measure_;
  std::unique_ptr<Points> points_;
};

/// Stages of one layer of a model on a cluster, compiled where they are asked for, each once. Any thread. What it gives
/// lives as long as it does.
class LayerCodes {
 public:
  /// allowed: codecs that strategies may have.
  LayerCodes(const config::ModelConfig& model, Precision precision, const cluster::Hardware& hardware,
             const compiler::CodeOptions& how, const config::Compression& allowed);

  struct Code {
    ir::StageCode stage, two_layers;
    struct Tables {
      TimeTable forward, backward, weight;
      const TimeTable& of(Pass pass) const { return pass == Pass::F ? forward : pass == Pass::W ? weight : backward; }
    };
    Tables alone, further;  // further: of what a second layer adds; this and two_layers: in the middle where joins()
    std::unique_ptr<StageMemory> memory;
    compiler::StageCost cost;
    ir::KeyBytes keys;  // keys of a token, all exchanges together
  };
  /// split: gradients of weights come apart from those of inputs.
  const Code& of(StageKind kind, const StageMesh& mesh, config::Recompute recompute, bool split) const;
  /// Whether layers take other times together than one by one: computing goes on from a layer's last collective to the
  /// next layer's first one, and by how much ranks that wait for one another slow it depends on how long it takes.
  bool joins() const { return !hardware_.device.lockstep_curve.points.empty(); }
  /// The model with one layer.
  const ir::Graph& one_layer() const { return one_layer_; }

  const config::ModelConfig& model() const { return model_; }
  Precision precision() const { return precision_; }
  const cluster::Hardware& hardware() const { return hardware_; }
  const compiler::CodeOptions& how() const { return how_; }
  /// The codecs that all strategies have: the allowed ones that gain.
  const config::Compression& compression() const { return compression_; }

 private:
  void compile(Code& code, StageKind kind, const StageMesh& mesh, config::Recompute recompute, bool split) const;
  TimeTable table(Code& code, const ir::Segment& segment, const StageMesh& mesh) const;
  TimeTable further(const ir::StageCode& two_layers, const ir::Segment& segment, const TimeTable& alone,
                    const StageMesh& mesh) const;
  /// Timers of a segment, one for each placement of the stage's ranks on hosts that takes different times.
  std::vector<simulator::SegmentTimer> timers(const ir::StageCode& stage, const ir::Segment& segment) const;
  Spent slowest(const std::vector<simulator::SegmentTimer>& timers, i64 T, bool rings) const;

  config::ModelConfig model_;
  Precision precision_;
  cluster::Hardware hardware_;
  cluster::Cluster placement_;
  compiler::CodeOptions how_;
  config::Compression compression_;
  ir::Graph one_layer_, three_layers_, four_layers_;
  struct Slot {
    std::once_flag made;
    Code code;
  };
  mutable std::mutex mutex_;  // guards slots_
  mutable std::unordered_map<std::tuple<std::uint64_t, StageKind, config::Recompute, bool>, Slot, TupleHash> slots_;
};

}  // namespace switchyard::planner
