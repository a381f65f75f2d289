// What stages cost, from compiled layers: all layers of a model are alike, so that stages of one layer tell those of any depth.
#pragma once

#include <functional>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "cluster/hardware.hpp"
#include "config/model.hpp"
#include "config/strategy.hpp"
#include "ir/code.hpp"

namespace switchyard::planner {

/// Where in the pipeline: with the embedding, without both, with the head, with both.
enum class StageKind { first, middle, last, whole };
inline constexpr int kStageKinds = 4;
StageKind kind_of(int stage, int stages);

/// Seconds of a segment on its slowest lane, for one micro-batch. per_pair: of a query and a key that it sees, computing.
struct Spent {
  double compute = 0, communication = 0, per_pair = 0;
  double total(double pairs) const { return compute + communication + per_pair * pairs; }
};

/// Times of a segment by tokens, found where they are asked for: at two sizes an octave, linear between them, for fewer tokens than
/// the least size as for that.
class TimeTable {
 public:
  TimeTable() = default;
  TimeTable(std::function<Spent(i64 T)> measure, i64 multiple) : measure_(std::move(measure)), multiple_(multiple) {}
  Spent at(i64 T) const;
  /// No more than any rows of at most `capacity` tokens take: seconds a token (compute), and seconds a pair (per_pair). falling: the time
  /// of a token is known to fall with the tokens of a row, but for rows that aren't a power of two.
  Spent least(i64 capacity, bool falling) const;

 private:
  static constexpr int kSizes = 64;
  i64 size(int index) const;
  const Spent& point(int index) const;

  std::function<Spent(i64)> measure_;
  i64 multiple_ = 1;
  mutable std::map<int, Spent> points_;
};

/// Bytes on the fullest position. Activations: kept from forward to backward, and the most that a segment has besides those of other
/// micro-batches; of T tokens, in documents of at most `longest`.
struct Kept {
  i64 stash = 0, forward_peak = 0, backward_peak = 0;
};

/// One layer's stage of a kind and one further layer: a stage of n layers takes base + (n - 1) * layer.
class UnitCosts {
 public:
  UnitCosts(const config::ModelConfig& model, Precision precision, const cluster::Hardware& hardware);

  Spent time(StageKind kind, int layers, int tp, config::Recompute recompute, bool forward, i64 T) const;
  /// Seconds a token (compute) and a pair, forward and backward, that rows of at most `capacity` tokens take at least.
  Spent least(StageKind kind, int layers, int tp, config::Recompute recompute, i64 capacity) const;
  Kept kept(StageKind kind, int layers, int tp, config::Recompute recompute, i64 T, i64 longest) const;
  /// Elements of parameters on a position.
  i64 parameters(StageKind kind, int layers, int tp) const;
  /// Of the embedding, of a layer, of the head: elements on a position under tp.
  struct Units {
    i64 embedding = 0, layer = 0, head = 0;
  };
  Units units(int tp) const;

  const config::ModelConfig& model() const { return model_; }
  Precision precision() const { return precision_; }
  const cluster::Hardware& hardware() const { return hardware_; }

 private:
  struct Code {
    ir::StageCode stage;
    TimeTable forward, backward;
    mutable std::map<std::pair<i64, i64>, Kept> kept;  // by T and the longest document
    mutable std::map<i64, Spent> least;
  };
  const Code& code(StageKind kind, int tp, config::Recompute recompute) const;
  Spent slowest(const ir::StageCode& stage, bool forward, i64 T) const;
  const Kept& kept_of(const Code& code, i64 T, i64 longest) const;

  config::ModelConfig model_;
  Precision precision_;
  cluster::Hardware hardware_;
  cluster::Cluster placement_;
  bool shares_rise_;
  ir::Graph one_layer_, three_layers_;
  mutable std::map<std::tuple<StageKind, int, config::Recompute>, std::unique_ptr<Code>> codes_;
  mutable std::map<int, Units> of_tp_;
};

}  // namespace switchyard::planner
