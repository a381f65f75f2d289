#include "compiler/compile.hpp"

#include <set>

#include "base/errors.hpp"
#include "compiler/recompute.hpp"
#include "compiler/stage_builder.hpp"

namespace switchyard::compiler {

ir::StageCode compile_stage(const ir::Graph& graph, const config::Strategy& strategy, int tp, int first_unit, int end_unit) {
  std::set<int> gathered;
  ir::StageCode stage;
  for (bool built = false; !built;) {
    StageBuilder builder(graph, strategy, tp, first_unit, end_unit, gathered);
    stage = builder.build();
    built = builder.misfits().empty();
    gathered.insert(builder.misfits().begin(), builder.misfits().end());
  }
  recompute(stage, strategy.recompute);
  if (strategy.splits_gradients()) split_gradients(stage);
  annotate_lifetimes(graph, stage);
  return stage;
}

std::vector<ir::GroupCode> compile(const ir::Graph& graph, const config::Strategy& strategy) {
  std::vector<ir::GroupCode> groups;
  for (const config::Group& group : strategy.groups) {
    ir::GroupCode code{group.dp, {}};
    for (size_t s = 0; s < group.stages.size(); ++s) {
      const config::Stage& stage = group.stages[s];
      // Unit 0 is the embedding, units 1 .. layers the layers, the last one final norm and head.
      const int first = s == 0 ? 0 : stage.first_layer + 1;
      const int end = s + 1 == group.stages.size() ? graph.units() : stage.end_layer + 1;
      code.stages.push_back(compile_stage(graph, strategy, stage.tp, first, end));
    }
    groups.push_back(std::move(code));
  }
  return groups;
}

}  // namespace switchyard::compiler
