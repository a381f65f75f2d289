// Executor: runs a rank's tasks of a Program on streams. It chooses nothing: order, members and messages are the
// Program's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "base/clock.hpp"
#include "comm/fabric.hpp"
#include "ir/computed_time.hpp"
#include "kernels/memory.hpp"
#include "runtime/group_calls.hpp"
#include "runtime/segment_runner.hpp"
#include "runtime/store.hpp"
#include "runtime/stream.hpp"
#include "runtime/task_times.hpp"

namespace switchyard::runtime {

/// Settings of one rank.
struct ExecutorOptions {
  int threads = 1;  // threads of the compute stream
  at::Device device{at::kCPU};
  std::uint64_t seed = 0;  // seed of dropout
  double rope_theta = 10000;
  config::RopeScaling rope_scaling{};
  kernels::RankMemory* memory = nullptr;  // from which all streams allocate; null: torch's own
  std::optional<bool>
      beside{};  // whether collectives have a thread of their own; none: where the fabric moves messages by itself
};

/// An operator that ran within a step.
struct TimedCall {
  const ir::StageCode& stage;
  const ir::Instr& instr;
  int position;
  const batch::MicroBatch& micro_batch;
  Seconds time;
  Seconds issue;  // on a device: what the host took to give it the work
};

/// Measurements within a step. spans: keep when each task worked. timed: called for each operator, after the run in
/// which it is, from the compute stream; may be empty. computed: keep what computing took. Both by `clock`, or on a
/// device by its own clock; the host waits for it after each run, and collectives don't run beside what is timed.
/// head_start: called before a run whose operators are timed, from the compute stream; may be empty. Work that it gives
/// to a device keeps that busy until the host has issued some operators.
struct Probe {
  bool spans = false;
  std::function<void(const TimedCall&)> timed{};
  bool computed = false;
  SecondsClock clock = wall_seconds;
  std::function<void()> head_start{};
  bool times_operators() const { return timed || computed; }
};

/// Inputs of a step besides its Program. plans: whose program it is, null: the executor's own; others are of a graph
/// of the same model, under the same strategies.
struct StepInput {
  const batch::StepPlan* plan = nullptr;
  const Documents* documents = nullptr;
  /// Given the global norm of the gradients, before clipping: settings of the update. Not called for evaluation.
  std::function<UpdateSettings(double norm)> update{};
  Probe probe{};
  const Labels* labels = nullptr;  // null: all count, and there is one source
  const compiler::Plans* plans = nullptr;
};

struct StepResult {
  double loss = 0;  // sum of weighted token losses over all ranks: the mean over the global batch; in an evaluation
                    // over this rank's alone
  std::vector<double>
      source_loss;     // the part of each of Labels::sources, which sum up to `loss`; empty if there is one
  double norm = 0;     // norm of the gradients before clipping
  bool finite = true;  // false: the update was skipped
  StepTimes times;
  std::vector<TaskSpan> spans;             // with Probe::spans
  std::vector<ir::ComputedTime> computed;  // with Probe::computed
};

/// Logits of one micro-batch on one rank of a last stage (evaluation), T' by V': of its tokens those from first_token,
/// of the vocabulary the columns from first_column. ring_rank: whose tokens.
struct Logits {
  int phase = 0, replica = 0, micro_batch = 0, ring_rank = 0;
  i64 first_token = 0, first_column = 0;
  at::Tensor values;
};

class Executor {
 public:
  Executor(const compiler::Plans& plans, Store& store, comm::Fabric& fabric, ExecutorOptions options);
  ~Executor();
  /// Runs the rank's tasks; blocks until all are done. Throws what failed first on this rank.
  StepResult run(const ir::Program& program, const StepInput& input);
  /// Logits that the last program left on this rank (evaluation only).
  std::vector<Logits> take_logits() { return std::move(logits_); }

 private:
  struct Step;
  struct StageRunner;
  void keep_times(Step& step, const Instant& step_start);
  std::unique_ptr<Stream> new_stream(int threads);
  Stream& stream(const ir::Task& task);
  Stream& collective_stream();
  StageRunner& stage_runner(const compiler::Plans& plans, int strategy, const ir::Task& task, int stage);

  const compiler::Plans& plans_;
  Store& store_;
  comm::Fabric& fabric_;
  ExecutorOptions options_;
  int rank_;
  ServedTransfers served_;
  RopeTables rope_;
  bool flash_, padded_;  // the device has flash attention in this precision, and padded attention for its heads
  std::map<std::pair<int, int>, std::unique_ptr<Stream>> streams_;  // queue, sending stage
  std::unique_ptr<Stream> collective_stream_;
  std::map<std::tuple<const compiler::Plans*, int, int, int>, std::unique_ptr<StageRunner>>
      stage_runners_;  // plans, strategy, replica, stage
  std::vector<Logits> logits_;
  i64 steps_ = 0;
  std::vector<TaskTimes> late_;  // tasks that may not have ended
};

}  // namespace switchyard::runtime
