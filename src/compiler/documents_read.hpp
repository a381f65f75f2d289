// Which documents of a step a rank reads.
#pragma once

#include <vector>

#include "compiler/assemble.hpp"

namespace switchyard::compiler {

/// Whether a stage has inputs that depend on tokens: the first one embeds them, the last one has the labels.
bool reads_tokens(const ir::StageCode& stage, const ir::Graph& graph);

/// For each of `documents` documents of the plan whether a run of this rank reads its tokens: only those of which its
/// replicas' micro-batches have parts on its ring rank, and only in stages that read tokens.
std::vector<bool> documents_read(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans, int rank,
                                 size_t documents);

}  // namespace switchyard::compiler
