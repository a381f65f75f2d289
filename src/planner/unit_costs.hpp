// What stages cost, from compiled layers: all layers of a model are equal, so that costs of any depth follow from
// stages of one layer.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/hash.hpp"
#include "planner/layer_codes.hpp"

namespace switchyard::planner {

/// The bytes of a stage of `layers` layers, from those of a stage of its kind with one layer (`one`) and those of a
/// middle stage with one layer (`middle`).
Kept deepened(Kept one, const Kept& middle, int layers);

/// How many stages of one layer make up the work of others: first, last and whole ones have embedding, head or both,
/// and every further layer is one in the middle. Whatever adds up over a stage's code is the sum of theirs.
struct Parts {
  std::array<int, kStageKinds> of{};
  int further = 0;  // layers

  /// Adds a position of a pipeline.
  void add(StageKind kind, int layers);
  /// Sum of value(kind) over them.
  template <class Value>
  auto sum(Value value) const {
    decltype(value(StageKind::middle)) total{};
    for (int k = 0; k < kStageKinds; ++k) {
      const StageKind kind = static_cast<StageKind>(k);
      if (const int count = of[static_cast<size_t>(k)] + (kind == StageKind::middle ? further : 0); count > 0)
        total += count * value(kind);
    }
    return total;
  }
  /// The same of a value for each kind.
  template <class Array>
  auto weigh(const Array& values) const {
    return sum([&](StageKind kind) { return values[static_cast<size_t>(kind)]; });
  }
  bool operator==(const Parts&) const = default;
};
Parts parts_of(StageKind kind, int layers);

/// What stages of one layer cost, of each kind.
class UnitCosts {
 public:
  explicit UnitCosts(std::shared_ptr<const LayerCodes> codes);
  UnitCosts(const config::ModelConfig& model, Precision precision, const cluster::Hardware& hardware,
            const compiler::CodeOptions& how = {}, const config::Compression& allowed = {})
      : UnitCosts(std::make_shared<LayerCodes>(model, precision, hardware, how, allowed)) {}

  /// A pass of a micro-batch. B and W: of code whose gradients are split. A mesh with a ring stands for all of its
  /// ranks whose ring ranks exchange keys in each attention; what they pass on is left to Spent::per_key.
  const TimeTable& times(StageKind kind, const StageMesh& mesh, config::Recompute recompute, Pass pass) const;
  Spent time(StageKind kind, const StageMesh& mesh, config::Recompute recompute, Pass pass, i64 T) const {
    return times(kind, mesh, recompute, pass).at(T);
  }
  /// The same of what a further layer adds to a stage in the middle, which is no more.
  const TimeTable& times_further(const StageMesh& mesh, config::Recompute recompute, Pass pass) const;
  /// The same of stages of any depth together.
  Spent time(const Parts& parts, const StageMesh& mesh, config::Recompute recompute, Pass pass, i64 T) const;
  /// Seconds a token (compute) and a pair, forward and backward, that micro-batches of at most `capacity` tokens take
  /// at least, of the middle what a further layer adds. split: of code whose gradients are split; through: without
  /// those of weights if they are, as a micro-batch passes a stage.
  const Spent& least(StageKind kind, const StageMesh& mesh, config::Recompute recompute, i64 capacity, bool split,
                     bool through = false) const;
  /// The same of one pass.
  const Spent& least_of_pass(StageKind kind, const StageMesh& mesh, config::Recompute recompute, Pass pass,
                             i64 capacity) const;
  /// Whether a call of more work surely takes no longer for its work, so that no mesh takes less for a token than a
  /// single rank does, divided by the mesh's ranks.
  bool shares_rise() const { return shares_rise_; }
  /// Whether more tokens surely take no less time. Activations that are too short to be encoded may take longer than
  /// more of them, and so may computing between two collectives that slows devices less if it is longer.
  bool times_rise() const {
    return hardware().device.operators.empty() && !compression().encodes_exchanges() && !codes_->joins();
  }
  /// The bytes that a position with so many layers keeps between its passes. split: gradients of weights are computed
  /// apart. size: tokens, the longest document, and keys that come together from several ring ranks.
  Kept kept(StageKind kind, int layers, const StageMesh& mesh, config::Recompute recompute, bool split,
            ir::CallSize size) const;
  /// Whether code whose gradients are split has them joined, too.
  bool joins(const StageMesh& mesh, config::Recompute recompute) const;
  /// The costs from which a trainer's schedule is made, for code whose gradients are split.
  const compiler::StageCost& stage_cost(StageKind kind, const StageMesh& mesh, config::Recompute recompute) const;
  /// The same without recomputation, gradients not split, with what its attention passes on between ring ranks.
  const compiler::StageCost& plain_cost(StageKind kind, const StageMesh& mesh) const;
  const ir::KeyBytes& keys(StageKind kind, const StageMesh& mesh) const;
  /// Elements of parameters on a position.
  i64 parameters(StageKind kind, const StageMesh& mesh) const;
  /// Bytes of a rank's rotary tables for documents of at most so many tokens.
  i64 table_bytes(i64 longest) const;
  /// Bytes of a micro-batch's own rotary tables for each of its tokens.
  i64 table_bytes_of_a_token() const;
  /// Elements of the embedding, of one layer and of the head on a position of the mesh.
  struct Units {
    i64 embedding = 0, layer = 0, head = 0;
  };
  Units units(const StageMesh& mesh) const;

  /// For a model of another thread.
  const std::shared_ptr<const LayerCodes>& codes() const { return codes_; }
  const config::ModelConfig& model() const { return codes_->model(); }
  Precision precision() const { return codes_->precision(); }
  const compiler::CodeOptions& how() const { return codes_->how(); }
  const cluster::Hardware& hardware() const { return codes_->hardware(); }
  /// The codecs that all strategies have: the allowed ones that gain.
  const config::Compression& compression() const { return codes_->compression(); }

 private:
  using Code = LayerCodes::Code;
  const Code& code(StageKind kind, const StageMesh& mesh, config::Recompute recompute, bool split) const;
  Spent least_of(StageKind kind, const StageMesh& mesh, config::Recompute recompute, i64 capacity, bool split,
                 bool through) const;
  const Kept& kept_of(StageKind kind, const StageMesh& mesh, config::Recompute recompute, bool split,
                      const ir::CallSize& size) const;
  /// A key made of all that a time depends on; T is below 2^40.
  using Key = std::tuple<std::uint64_t, std::uint64_t>;
  static Key key(StageKind kind, const StageMesh& mesh, config::Recompute recompute, int pass, i64 T);

  std::shared_ptr<const LayerCodes> codes_;
  bool shares_rise_;
  mutable std::unordered_map<Key, const Code*, TupleHash> known_;  // so far, without a lock
  mutable std::unordered_map<Key, Spent, TupleHash> least_, least_of_pass_;
  mutable std::map<std::pair<i64, i64>, std::unordered_map<Key, Kept, TupleHash>>
      kept_;  // by the longest document, and keys that come together
  mutable std::map<StageMesh, Units> units_;
};

}  // namespace switchyard::planner
