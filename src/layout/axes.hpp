// The axes on which the ranks of a pipeline stage lie, and what each of them cuts. A new axis is a row of these
// tables; docs/adding-an-axis.md lists the other edits.
#pragma once

#include <array>
#include <compare>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "layout/layout.hpp"

namespace switchyard::layout {

/// Outermost first: the ranks of a stage are numbered in this order.
/// data: replicas, each with its own micro-batches.
/// depth: replicas, too, each of which stores a part of the weights between runs. Source: arXiv 2502.08145.
/// ring: parts of a micro-batch's documents, each with a number of tokens of its own; keys and values go from part to
/// part inside attention. Source: arXiv 2310.01889.
/// Code is compiled for the other axes, which know nothing of these three.
/// ulysses: parts of a micro-batch's tokens, and of the heads inside attention. Source: arXiv 2309.14509.
/// outer: rows of the first product of a block and columns of the second one. Source: arXiv 1909.08053.
/// inner: columns of the first product of a block and rows of the second one. Source: arXiv 2502.08145.
enum class StageAxis { data, depth, ring, ulysses, outer, inner };
inline constexpr size_t kStageAxes = 6;
struct StageAxisInfo {
  StageAxis axis;
  std::string_view name;  // in meshes and JSON
  bool searched = true;   // whether the planner tries its sizes; otherwise its size is what the others leave
};
std::span<const StageAxisInfo, kStageAxes> stage_axes();
const StageAxisInfo& info_of(StageAxis axis);

/// The axes whose places are replicas of a pipeline, outermost first; they come before all others.
std::span<const StageAxis> replica_axes();
/// These and ring, in their order: the axes whose places run the same code, each on tokens of its own.
std::span<const StageAxis> axes_outside_code();

/// Sizes of a stage's axes.
class StageMesh {
 public:
  StageMesh() { sizes_.fill(1); }
  StageMesh(std::initializer_list<std::pair<StageAxis, int>> sizes);
  int operator[](StageAxis axis) const { return sizes_[static_cast<size_t>(axis)]; }
  int& operator[](StageAxis axis) { return sizes_[static_cast<size_t>(axis)]; }
  i64 ranks() const;
  /// Places on the axes of replicas.
  int replicas() const;
  /// Ranks that run the code of a replica together, or of one of its ring ranks.
  i64 positions() const { return ranks() / parts(axes_outside_code()); }
  /// Parts into which the given axes cut together.
  i64 parts(std::span<const StageAxis> axes) const;
  /// Ranks that use copies of the same weights: the parts into which depth and ZeRO-3 cut these.
  i64 copies() const;
  auto operator<=>(const StageMesh&) const = default;

 private:
  std::array<int, kStageAxes> sizes_{};
};
/// Axes of other sizes than 1: "data=2 outer=4".
std::string to_string(const StageMesh& mesh);

/// What a dim of a parameter counts. heads: features of attention heads; ffn: of the feed-forward block; hidden: of the
/// residual stream, in products; norm: the same in norms of the stream, whose weights are cut as its features are.
enum class DimRole { none, heads, ffn, hidden, norm, vocabulary };
/// The axes that cut such a dim, outermost cut first. A dim of heads has at most as many parts as heads: the leading
/// axes cut it, and the others hold copies.
std::span<const StageAxis> cuts_of(DimRole role, bool sequence_parallel);
/// The axes that cut parameters: those that a strategy's own cuts use up in this order.
std::span<const StageAxis> weight_axes();

/// The axes that cut what ranks with copies of the same weights hold of them, by rows, outermost cut first. stored:
/// parameters between runs; grad: gradients as they add up. depth cuts both, and inside its cuts those of the other
/// axes that cut no parameter come: of grad with ZeRO-2, of both with ZeRO-3. Axes of size 1 are left out.
struct RowCuts {
  std::vector<StageAxis> stored, grad;
  bool operator==(const RowCuts&) const = default;
};
RowCuts row_cuts(const StageMesh& mesh, int zero);

/// Which value of a model an activation (T, features) is; its gradient has the same role.
/// residual: the stream between blocks, and what they add to it. boundary: the same between pipeline stages.
/// block: inside a block, outside of attention (queries, keys, values, attention's result; gate, up, their product).
/// attention: what attention computes with. head: the input of the output head, and the loss of each token.
enum class Role { none, residual, boundary, block, attention, head };
struct RoleCuts {
  std::span<const StageAxis> tokens, features;
};
/// The axes that cut such a value, outermost cut first. sequence_parallel: whether the ranks that share a layer's
/// weights divide the residual stream's tokens; otherwise inner divides its features.
RoleCuts cuts_of(Role role, bool sequence_parallel);

/// The leading parts of some axes, outermost first, that cut `pieces` indivisible pieces: all axes where they make at
/// most `pieces` parts, otherwise leading factors whose product is `pieces`. Nothing where there are none: parts[i]
/// would not divide axis i.
std::optional<std::vector<int>> leading_factors(const StageMesh& mesh, std::span<const StageAxis> axes, i64 pieces);

/// The axes of a replica's mesh that are factors of a stage's axis, outermost first.
std::vector<int> factors_of(const Mesh& replica, StageAxis axis);
std::vector<int> factors_of(const Mesh& replica, std::span<const StageAxis> axes);

/// The leading ones of some axes of a replica's mesh that make at most `pieces` parts together.
std::vector<int> leading_axes(const Mesh& replica, const std::vector<int>& axes, i64 pieces);

}  // namespace switchyard::layout
