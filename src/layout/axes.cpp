#include "layout/axes.hpp"

#include <algorithm>

#include "base/errors.hpp"

namespace switchyard::layout {
namespace {

using enum StageAxis;

constexpr std::array<StageAxisInfo, kStageAxes> kInfo{{{data, "data", false},
                                                       {depth, "depth"},
                                                       {ring, "ring"},
                                                       {ulysses, "ulysses"},
                                                       {outer, "outer"},
                                                       {inner, "inner"}}};

constexpr std::array kOutsideCode{data, depth, ring};
constexpr std::span kReplicas(kOutsideCode.data(), 2);
constexpr std::array kOuter{outer};
constexpr std::array kInner{inner};
constexpr std::array kWeights{outer, inner};
constexpr std::array kTokens{ulysses};                   // tokens, where attention doesn't need them together
constexpr std::array kStream{ulysses, outer, inner};     // its tokens where nothing else is cut
constexpr std::array kAttention{outer, inner, ulysses};  // heads

}  // namespace

std::span<const StageAxisInfo, kStageAxes> stage_axes() { return kInfo; }

std::span<const StageAxis> replica_axes() { return kReplicas; }

std::span<const StageAxis> axes_outside_code() { return kOutsideCode; }

const StageAxisInfo& info_of(StageAxis axis) { return kInfo[static_cast<size_t>(axis)]; }

StageMesh::StageMesh(std::initializer_list<std::pair<StageAxis, int>> sizes) : StageMesh() {
  for (const auto& [axis, size] : sizes) (*this)[axis] = size;
}

i64 StageMesh::ranks() const {
  i64 count = 1;
  for (const int size : sizes_) count *= size;
  return count;
}

i64 StageMesh::parts(std::span<const StageAxis> axes) const {
  i64 count = 1;
  for (const StageAxis axis : axes) count *= (*this)[axis];
  return count;
}

int StageMesh::replicas() const { return static_cast<int>(parts(kReplicas)); }

// All axes but those that cut weights: row_cuts has them all at stage 3.
i64 StageMesh::copies() const { return ranks() / parts(kWeights); }

std::string to_string(const StageMesh& mesh) {
  std::string text;
  for (const StageAxisInfo& info : kInfo)
    if (mesh[info.axis] != 1) text += fmt::format("{}{}={}", text.empty() ? "" : " ", info.name, mesh[info.axis]);
  return text;
}

std::span<const StageAxis> cuts_of(DimRole role, bool sequence_parallel) {
  switch (role) {
    case DimRole::heads:
    case DimRole::ffn:
      return kOuter;
    case DimRole::hidden:
      return kInner;
    case DimRole::norm:
      return cuts_of(Role::residual, sequence_parallel).features;
    case DimRole::vocabulary:
      return kWeights;
    case DimRole::none:
      return {};
  }
  throw InternalError("cuts_of: unknown role of a dim");
}

std::span<const StageAxis> weight_axes() { return kWeights; }

RowCuts row_cuts(const StageMesh& mesh, int zero) {
  std::vector<StageAxis> always, copies;
  for (const StageAxisInfo& info : kInfo)
    if (mesh[info.axis] > 1 && std::ranges::find(kWeights, info.axis) == kWeights.end())
      (info.axis == depth ? always : copies).push_back(info.axis);
  std::vector<StageAxis> all = always;
  all.insert(all.end(), copies.begin(), copies.end());
  return {zero >= 3 ? all : always, zero >= 2 ? all : always};
}

RoleCuts cuts_of(Role role, bool sequence_parallel) {
  switch (role) {
    case Role::residual:
      return sequence_parallel ? RoleCuts{kStream, {}} : RoleCuts{kTokens, kInner};
    case Role::boundary:
      return {kStream, {}};
    case Role::block:
      return {kTokens, kWeights};
    case Role::attention:
      return {{}, kAttention};
    case Role::head:
      return {kTokens, {}};
    case Role::none:
      break;
  }
  throw InternalError("cuts_of: a value without a role");
}

std::optional<std::vector<int>> leading_factors(const StageMesh& mesh, std::span<const StageAxis> axes, i64 pieces) {
  std::vector<int> factors;
  const bool all = mesh.parts(axes) <= pieces;
  for (const StageAxis axis : axes) {
    const int size = mesh[axis];
    if (all || pieces % size == 0) {
      factors.push_back(size);
      pieces /= all ? 1 : size;
    } else if (size % pieces == 0) {
      factors.push_back(static_cast<int>(pieces));
      pieces = 1;
    } else {
      return std::nullopt;
    }
  }
  return factors;
}

std::vector<int> factors_of(const Mesh& replica, StageAxis axis) {
  const std::string_view name = info_of(axis).name;
  std::vector<int> factors;
  for (size_t a = 0; a < replica.axes.size(); ++a) {
    const std::string_view own = replica.axes[a].name;
    if (own.starts_with(name) && (own.size() == name.size() || own[name.size()] == '/'))
      factors.push_back(static_cast<int>(a));
  }
  return factors;
}

std::vector<int> factors_of(const Mesh& replica, std::span<const StageAxis> axes) {
  std::vector<int> factors;
  for (const StageAxis axis : axes)
    for (const int factor : factors_of(replica, axis)) factors.push_back(factor);
  return factors;
}

std::vector<int> leading_axes(const Mesh& replica, const std::vector<int>& axes, i64 pieces) {
  std::vector<int> leading;
  i64 parts = 1;
  for (const int axis : axes) {
    parts *= replica.axes[static_cast<size_t>(axis)].size;
    if (parts > pieces) break;
    leading.push_back(axis);
  }
  return leading;
}

}  // namespace switchyard::layout
