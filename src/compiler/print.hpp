// The printer: models, plans and programs as text, for people and for golden tests. Strategies are called A, B, ... in
// their order.
#pragma once

#include <span>
#include <string>

#include "batch/planner.hpp"
#include "compiler/assemble.hpp"

namespace switchyard::compiler {

/// A table of the units with their parameters and bytes, and the flops of a token in a document as long as the context;
/// then the parameters of each unit: name, shape, elements, alignments, group. Consecutive equal layers are printed
/// once. No line is longer than 100 columns for names and shapes as usual.
std::string print_model(const ir::Graph& graph, const batch::WorkModel& work, i64 context);

/// Meshes of all stages; for every parameter and strategy its layout, the boxes of the ranks, the axes over which its
/// gradient is partial, and its home; then the bytes that each rank holds. Consecutive equal layers are printed once,
/// and of more than 32 boxes only the first ones.
std::string print_plan(const Plans& plans);

/// Predicted memory at the peak of a training step, by class and rank; ranks with equal figures share a column. Where
/// their numbers are too long for its head, columns are numbered, and lines at the end list the ranks.
std::string print_memory(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans);

/// The micro-batches of a step: pipeline, tokens and documents.
std::string print_batch(const batch::StepPlan& plan);

/// The places of a step's documents (batch::document_places): for each phase a table of its replicas, with tokens,
/// query-key pairs and work or time as a part of an even share, the distance from the bound, then the documents of
/// every micro-batch, of each ring rank with the keys that come to it. lengths: of the documents; names: of the
/// strategies. No line is longer than 100 columns, unless a strategy's name is.
std::string print_documents(const batch::StepPlan& plan, std::span<const i64> lengths,
                            std::span<const batch::BucketSpec> buckets, const batch::WorkModel& work,
                            std::span<const std::string> names);

/// The tasks of a step. A column per rank, with the letter of the queue that runs the task there: s switching, c
/// compute, p point to point, b bulk, g gather, x collective. `12`: waits for task 12; `u1:6`: for task 6 at the first
/// use of unit 1; `27.u3`: for the last write of unit 3's gradient in task 27; waits that follow from the order within
/// queues are left out. Last: source>destination and bytes; pairs with equal bytes stand together, of more than 16 only
/// the count. Tasks that only allocate working parameters are left out, unless they alone bring it what it lacks. rank:
/// only the tasks of that rank; -1: all. From 65 ranks on a task lists its ranks instead of columns.
std::string print_program(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans, int rank = -1);

/// "A", "B", ... "Z", "S26", ...
std::string letter_of(int strategy);
/// Ascending ranks as ranges: "0..3,8,9".
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace switchyard::compiler
