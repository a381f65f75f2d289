#include "compiler/documents_read.hpp"

#include <algorithm>

namespace switchyard::compiler {

bool reads_tokens(const ir::StageCode& stage, const ir::Graph& graph) {
  return std::ranges::any_of(stage.buffers, [&](const ir::Buffer& buffer) {
    const ir::Feed feed = graph.value(buffer.value).feed;
    return buffer.kind == ir::ValueKind::feed && feed != ir::Feed::positions;
  });
}

std::vector<bool> documents_read(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans, int rank,
                                 size_t documents) {
  std::vector<bool> read(documents, false);
  for (const int id : program.of_rank[static_cast<size_t>(rank)]) {
    const ir::Task& task = program.tasks[static_cast<size_t>(id)];
    if (task.kind() != ir::TaskKind::run) continue;
    const batch::PhasePlan& phase = plan.phases[static_cast<size_t>(task.phase)];
    const ir::StageCode& stage = plans.strategies()[static_cast<size_t>(phase.strategy)]
                                     .groups[static_cast<size_t>(task.group())]
                                     .stages[static_cast<size_t>(task.stage())];
    if (!reads_tokens(stage, plans.graph())) continue;
    const auto& shards =
        phase.replica[static_cast<size_t>(task.replica())][static_cast<size_t>(task.micro_batch())].shard;
    const int ring =
        plans.strategies()[static_cast<size_t>(phase.strategy)].place_of(task.replica(), task.stage(), rank).ring;
    for (const batch::Piece& piece : shards[static_cast<size_t>(ring)])
      if (piece.doc >= 0) read.at(static_cast<size_t>(piece.doc)) = true;
  }
  return read;
}

}  // namespace switchyard::compiler
