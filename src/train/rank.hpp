// A rank's side of training: its store, its executor, and the step.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "cluster/hardware.hpp"
#include "compiler/memory.hpp"
#include "config/job.hpp"
#include "kernels/device_memory.hpp"
#include "kernels/memory.hpp"
#include "runtime/executor.hpp"

namespace switchyard::train {

/// memory_budget: bytes a step may take on any rank, 0: no limit. emulated: the cluster whose devices have that memory,
/// as run.emulate names it; empty: it is the job's own budget. memory: what the rank allocates from. forward: what
/// messages call a program without a backward pass.
struct RankSettings {
  int threads = 1;
  i64 memory_budget = 0;
  std::string emulated{};
  at::Device device{at::kCPU};
  bool prefetch = true;
  std::uint64_t seed = 0;  // seed of dropout
  kernels::RankMemory* memory = nullptr;
  std::string forward = "validation";
};
/// What the job says, with a budget within the memory of the cluster that it emulates, if any; the rest is the host's.
RankSettings rank_settings_of(const config::Job& job, const std::optional<cluster::Hardware>& emulated = {});

/// Bytes that a rank of the job may take: its budget, or the machine's memory.
i64 memory_of(const config::Job& job);
/// UserError if a rank may need more than the budget for a step that was planned, at the worst pace.
void require_room(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans,
                  const RankSettings& settings);
/// A rank without room waits so long for its other queues to release some: on slow links they may be late.
inline constexpr std::chrono::seconds kMemoryPatience(10);

class Rank {
 public:
  Rank(const compiler::Plans& plans, const config::ModelConfig& model, comm::Fabric& fabric, RankSettings settings);

  /// The Program of the batch plan, agreed on by all ranks. Of the next strategy's units as many are prefetched as the
  /// budget allows. UserError on all ranks where even without prefetch one rank's peak may be above it.
  void assemble(const batch::StepPlan& plan) { assemble(plan, plans_); }
  /// The same with other plans, which must outlive their use: of a graph of the same model, under the same strategies.
  /// One without a backward pass is evaluated.
  void assemble(const batch::StepPlan& plan, const compiler::Plans& plans);
  /// Begins with what comes next beside what the rank does until then: a thread makes the plan's first Program, and
  /// predicts its memory as after the one that is assembled now.
  void assemble_ahead(const batch::StepPlan& plan);
  /// For each of so many documents of the plan that was assembled whether this rank reads its tokens.
  std::vector<bool> documents_read(const batch::StepPlan& plan, size_t documents) const;
  /// Runs what was assembled of this plan to its end. `update` gets the gradients' norm; an evaluation has none.
  /// Documents that this rank doesn't read may be empty.
  runtime::StepResult run(const batch::StepPlan& plan, const runtime::Documents& documents,
                          const std::function<runtime::UpdateSettings(double)>& update,
                          const runtime::Probe& probe = {}, const runtime::Labels& labels = {});
  /// Both.
  runtime::StepResult step(const batch::StepPlan& plan, const runtime::Documents& documents,
                           const std::function<runtime::UpdateSettings(double)>& update,
                           const runtime::Probe& probe = {});
  /// Forward only, for Plans of a graph that ends in logits.
  std::vector<runtime::Logits> evaluate(const batch::StepPlan& plan, const runtime::Documents& documents);

  /// All ranks must hold the same number, or ClusterError names the ranks that differ from rank 0 and `what`, and ends
  /// with the remedy.
  void agree_on(std::uint64_t number, const std::string& what, std::string_view remedy = kSameStart);
  static constexpr std::string_view kSameFiles = "Give every host the same files, by their full paths.";
  static constexpr std::string_view kSameStart = "Start all ranks with the same job file and program.";

  runtime::Store& store() { return store_; }
  const compiler::Plans& plans() const { return plans_; }
  const ir::Program& program() const { return program_; }
  /// Predicted for the last program, of this rank: at the expected pace, and the most at any.
  const compiler::MemoryPeak& predicted() const { return predicted_; }
  const compiler::MemoryPeak& bound() const { return bound_; }
  void set_prefetch(bool on) { settings_.prefetch = on; }

 private:
  // The peak memory of a program on this rank.
  struct Peaks {
    compiler::MemoryPeak predicted, bound;
  };
  struct Draft {
    ir::Program program;
    Peaks peaks;
  };
  Peaks peaks_of(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans) const;
  // Everybody's value. The only user of its channel, so that tasks rise.
  template <class T>
  std::vector<T> everyones(const std::string& what, const T& mine);

  const compiler::Plans& plans_;
  comm::Fabric& fabric_;
  RankSettings settings_;
  std::optional<kernels::DeviceBudget> budget_;  // from the first step on
  runtime::Store store_;
  runtime::Executor executor_;
  const compiler::Plans* assembled_ = &plans_;  // whose program it is
  ir::Program program_;
  compiler::MemoryPeak predicted_, bound_;
  i64 agreements_ = 0;
  i64 step_ahead_ = -1;
  std::future<Draft> ahead_;  // draft of that step; last: its thread uses what others have
};

}  // namespace switchyard::train
