// Reports of a step: figures of all ranks, the log, and a timeline.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "batch/planner.hpp"
#include "comm/joint_work.hpp"
#include "config/job.hpp"
#include "data/sources.hpp"
#include "kernels/memory.hpp"
#include "train/emulation.hpp"
#include "train/rank.hpp"
#include "train/run_log.hpp"

namespace switchyard::train {

/// A step that is done, as the loop knows it. checkpoint_copy: bytes of the copy that was kept for a checkpoint as the
/// step began. saving: a checkpoint is still being written. checkpoint_time: that training stood still for the one
/// before the step.
struct DoneStep {
  const data::Batch& batch;
  const batch::StepPlan& plan;
  double learning_rate = 0;
  const runtime::StepResult& result;
  i64 checkpoint_copy = 0;
  bool saving = false;
  std::optional<Seconds> checkpoint_time = {};
};

/// Facts that all ranks know after a step. stop_signal: the signal by which a rank's process was asked to stop
/// (StopSignals), of several the one with the largest number; 0: none was. saving: a rank still writes a checkpoint.
struct AfterStep {
  int stop_signal = 0;
  bool saving = false;
};

/// Collective: every rank calls the same functions in the same order; their values come together on rank 0.
class StepRecorder {
 public:
  /// sources: of the job. files: for joint work with the disk. memory: what the rank allocates from. work: flops of a
  /// document's forward pass. emulated: cluster on whose devices steps are to be timed (docs/architecture.md,
  /// Emulation), on metered fabrics; null: steps take what this machine takes.
  StepRecorder(const config::Job& job, const std::vector<data::Source>& sources, comm::Fabric& fabric,
               comm::JointWork& files, kernels::RankMemory& memory, batch::WorkModel work,
               const cluster::Hardware* emulated = nullptr);

  /// Before the first step: measures how quickly all ranks together multiply matrices of `type`, each as `settings`
  /// says, and opens the run's log.
  void open(const RankSettings& settings, at::ScalarType type, const std::string& plan_json, i64 first_step);

  /// The step's time counts from here.
  void begin(i64 step);
  /// Does what is no part of the step: its time doesn't count.
  void aside(const std::function<void()>& work);
  /// Memory and messages count from here. What the step is to measure.
  runtime::Probe planned();
  /// The step's line in the log; its timeline if run.trace_step is its number.
  AfterStep record(const DoneStep& step, const Rank& rank);
  /// A validation after the step that was recorded last.
  void add(ValidationRecord record);
  /// A text of its own on rank 0's terminal. indent: of its lines after the first.
  void say(const std::string& text, size_t indent = 0);
  /// Activity between two steps, for the status line on rank 0's terminal; empty: none any more.
  void now(const std::string& what);
  /// After the last step: what all steps did, on rank 0's terminal.
  void summarize();

 private:
  // Message of each rank to rank 0.
  struct Figures {
    i64 peak = 0, predicted_peak = 0, peak_bound = 0, intra = 0, inter = 0;  // bytes
    double waiting = 0, switching = 0, communication = 0, hidden = 0;        // seconds
    double planning = 0;  // processor time outside of tasks, where steps are emulated
    int stop_signal = 0;
    bool saving = false;
  };
  std::vector<PartRecord> sources_of(const DoneStep& step) const;
  static StepRecord record_of(const std::vector<Figures>& all, double seconds);
  bool traced() const { return step_ == job_.run.trace_step; }
  template <class Part>
  std::vector<std::vector<Part>> everyones(const char* what, const std::vector<Part>& mine);
  std::vector<std::vector<simulator::TracedSpan>> measured_spans(const DoneStep& step, const ir::Program& program);
  void write_timeline(const std::vector<std::vector<simulator::TracedSpan>>& spans, const ir::Program& program);

  const config::Job& job_;
  const std::vector<data::Source>& sources_;
  comm::Fabric& fabric_;
  comm::JointWork& files_;
  kernels::RankMemory& memory_;
  at::Device device_{at::kCPU};
  batch::WorkModel work_;
  std::optional<Emulation> emulation_;
  double matmul_rate_ = 0;     // flops per second, all ranks
  std::optional<RunLog> log_;  // rank 0 has it
  i64 step_ = 0;
  Clock::time_point began_;
  double planning_ = 0;  // by computing_seconds, from which the planning of the step counts
  comm::Traffic before_{};
};

}  // namespace switchyard::train
