// The loss. T tokens, H hidden, V vocabulary.
#pragma once

#include "ir/operator.hpp"

namespace switchyard::ir {

/// Linear and cross-entropy over the vocabulary: loss[t] = weight[t] * -log softmax(x w^T)[label[t]], from the logits
/// of one chunk of tokens at a time. In training its forward pass computes nothing: HeadLoss computes loss and
/// gradients together. inputs x (T, H), w (V, H), labels, weights; output loss (T). It is composite as HeadLoss.
class Head final : public Operator {
 public:
  Head() : Operator("head") {}
  std::vector<Type> shape(std::span<const Type> in) const override;
  layout::Role reads_as() const override { return layout::Role::head; }
  LayoutRule layout(const LayoutQuery& query) const override;
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;
  i64 workspace(std::span<const Type> in, std::span<const Type> out, const CallSize& size) const override;
  std::optional<size_t> loss_output() const override { return 0; }
  std::optional<StatisticSums> statistic_sums(bool on_device) const override;
  std::vector<int> input_gradient(Graph&, const Call&, const std::vector<int>& dy,
                                  std::vector<int>& existing) const override;
};

/// inputs x, w, labels, weights; outputs loss (T), dx (T, H), accumulator dw. The operator is composite: its kernel
/// also does the small all-reduces of softmax statistics over the axes that cut the vocabulary.
class HeadLoss final : public Operator {
 public:
  HeadLoss() : Operator("head_loss") {}
  /// Number of tokens whose logits exist at a time. On devices each chunk reads and writes the whole gradient of the
  /// weight, which takes as long as the products of some 400 tokens there.
  static constexpr i64 kChunk = 512, kDeviceChunk = 4096;
  static i64 chunk(bool on_device) { return on_device ? kDeviceChunk : kChunk; }
  std::vector<Type> shape(std::span<const Type> in) const override;
  layout::Role reads_as() const override { return layout::Role::head; }
  LayoutRule layout(const LayoutQuery& query) const override;
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;
  i64 workspace(std::span<const Type> in, std::span<const Type> out, const CallSize& size) const override;
  Halves halves() const override;
  std::optional<size_t> loss_output() const override { return 0; }
  std::optional<StatisticSums> statistic_sums(bool on_device) const override;
};

/// HeadLoss without the weight's gradient, for schedules that compute it later. The inputs are the same; outputs loss
/// (T), dx (T, H) and the gradient of the logits (T, V), which is kept until then: computing the logits again would
/// take a product and the passes of the softmax, more than the weight's gradient itself.
class HeadLossDx final : public Operator {
 public:
  HeadLossDx() : Operator("head_loss_dx") {}
  std::vector<Type> shape(std::span<const Type> in) const override;
  layout::Role reads_as() const override { return layout::Role::head; }
  LayoutRule layout(const LayoutQuery& query) const override;
  Cost cost(std::span<const Type> in, std::span<const Type> out) const override;
  i64 workspace(std::span<const Type> in, std::span<const Type> out, const CallSize& size) const override;
  const std::string& measured_as() const override;
  std::optional<size_t> loss_output() const override { return 0; }
  std::optional<StatisticSums> statistic_sums(bool on_device) const override;
};

}  // namespace switchyard::ir
