#include "train/emulation.hpp"

#include <algorithm>
#include <utility>

#include "base/errors.hpp"
#include "simulator/measured_step.hpp"

namespace switchyard::train {
namespace {

// Seconds in which a task stands still, as a run does that waits for parameters. Spans of computing and communication
// may overlap.
double paused(const simulator::TaskTime& time) {
  double worked = 0, until = time.begin;
  for (const simulator::Span& span : time.spans) {
    worked += std::max(0.0, span.end - std::max(until, span.begin));
    until = std::max(until, span.end);
  }
  return std::max(0.0, time.end - time.begin - worked);
}

// Seconds in which a rank's compute queue waits, counted as its stream's are where it runs (runtime::StepTimes): before
// a task and within it, but not where the task itself transfers.
struct Waiting {
  double all = 0, parameters = 0;
};

Waiting waiting_of(const simulator::Simulation& step, const ir::Program& program, const std::vector<int>& tasks) {
  Waiting waiting;
  double free = 0;
  for (const int id : tasks) {
    if (program.tasks[static_cast<size_t>(id)].queue != ir::Queue::compute) continue;
    const simulator::TaskTime& time = step.tasks[static_cast<size_t>(id)];
    const double within = paused(time);
    waiting.all += std::max(0.0, time.begin - free) + within;
    waiting.parameters += within;
    free = std::max(free, time.end);
  }
  return waiting;
}

}  // namespace

void require_emulation(const config::Job& job, const cluster::Hardware& emulated, const comm::Launch& launch) {
  if (launch.distributed)
    user_error(
        "run.emulate = \"{}\" emulates a cluster within one process, but {} were launched. Start one process, or leave "
        "run.emulate out.",
        job.run.emulate, launch.size);
  if (job.run.ranks != emulated.ranks())
    user_error("run.ranks = {}, but the emulated cluster {} has {} devices. Set run.ranks = {}, or leave it out.",
               job.run.ranks, emulated.name, emulated.ranks(), emulated.ranks());
  if (job.run.threads > 1)
    user_error(
        "run.threads = {}, but each emulated device is one core: the processor time of a rank is that of one thread. "
        "Leave run.threads out.",
        job.run.threads);
  if (job.run.device == cluster::DeviceType::cuda)
    user_error("run.device = \"{}\", but devices are emulated by cores. Leave run.device out.",
               name_of(job.run.device));
}

simulator::Simulation Emulation::step(const Rank& rank, const batch::StepPlan& plan,
                                      std::vector<std::vector<ir::ComputedTime>> computed) {
  const simulator::MeasuredStep measured(rank.program(), std::move(computed));
  return simulator::simulate(rank.program(), plan, rank.plans(), hardware_, known_, &measured);
}

void set_times(StepRecord& record, const simulator::Simulation& step, Seconds planning, const ir::Program& program) {
  record.time = Seconds{step.step_seconds} + planning;
  double communication = 0, overlap = 0;
  for (const simulator::RankTime& rank : step.ranks) {
    communication += rank.communication;
    overlap += rank.overlap;
  }
  record.hidden_share.reset();
  if (step.ranks.size() > 1 && communication > 0) record.hidden_share = overlap / communication;
  std::vector<double> waiting;
  record.switch_time = {};
  for (const std::vector<int>& tasks : program.of_rank) {
    const Waiting of_rank = waiting_of(step, program, tasks);
    waiting.push_back(of_rank.all);
    record.switch_time.count = std::max(record.switch_time.count, of_rank.parameters);
  }
  set_waiting(record, waiting);
}

std::vector<std::vector<simulator::TracedSpan>> spans_of(const simulator::Simulation& step,
                                                         const ir::Program& program) {
  std::vector<std::vector<simulator::TracedSpan>> spans(program.of_rank.size());
  for (size_t rank = 0; rank < spans.size(); ++rank)
    for (const int id : program.of_rank[rank])
      for (const simulator::Span& span : step.tasks[static_cast<size_t>(id)].spans) spans[rank].push_back({id, span});
  for (std::vector<simulator::TracedSpan>& of_rank : spans)
    std::ranges::stable_sort(of_rank, {}, [](const simulator::TracedSpan& one) { return one.span.begin; });
  return spans;
}

}  // namespace switchyard::train
