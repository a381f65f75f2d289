// The collective that a reshard is, by how many parts its buffers are cut into. Layouts of a compiled stage have no
// other changes.
#pragma once

#include "ir/code.hpp"

namespace switchyard {

enum class Collective { slice, all_gather, reduce_scatter, all_reduce, all_to_all };

inline int parts(const layout::Mesh& mesh, const layout::Layout& layout) {
  int result = 1;
  for (const auto& axes : layout.split)
    for (const int axis : axes) result *= mesh.axes[static_cast<size_t>(axis)].size;
  return result;
}

inline Collective collective_of(const ir::StageCode& stage, const ir::Instr& reshard) {
  const layout::Layout &from = stage.buffers[static_cast<size_t>(reshard.in[0])].layout,
                       &to = stage.buffers[static_cast<size_t>(reshard.out[0])].layout;
  const int before = parts(stage.replica, from), after = parts(stage.replica, to);
  if (from.partial != to.partial) return before == after ? Collective::all_reduce : Collective::reduce_scatter;
  if (before == after) return Collective::all_to_all;
  return before > after ? Collective::all_gather : Collective::slice;
}

}  // namespace switchyard
