#include "train/emulation.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/errors.hpp"
#include "base/median.hpp"
#include "simulator/measured_step.hpp"

namespace switchyard::train {
namespace {

// Seconds in which a run stands still because it waits for parameters. Spans of computing and communication may
// overlap.
double waited(const simulator::TaskTime& time) {
  double worked = 0, until = time.begin;
  for (const simulator::Span& span : time.spans) {
    worked += std::max(0.0, span.end - std::max(until, span.begin));
    until = std::max(until, span.end);
  }
  return std::max(0.0, time.end - time.begin - worked);
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
  if (job.run.device != config::Device::cpu)
    user_error("run.device = \"{}\", but devices are emulated by cores. Leave run.device out.",
               config::name_of(job.run.device));
}

simulator::Simulation Emulation::step(const Rank& rank, const batch::StepPlan& plan,
                                      std::vector<std::vector<ir::ComputedTime>> computed) {
  const simulator::MeasuredStep measured(rank.program(), std::move(computed));
  return simulator::simulate(rank.program(), plan, rank.plans(), hardware_, known_, &measured);
}

void set_times(StepRecord& record, const simulator::Simulation& step, Seconds planning, const ir::Program& program) {
  record.time = Seconds{step.step_seconds} + planning;
  const auto ranks = static_cast<double>(step.ranks.size());
  double idle = 0, communication = 0, overlap = 0;
  for (const simulator::RankTime& rank : step.ranks) {
    idle += rank.idle;
    communication += rank.communication;
    overlap += rank.overlap;
  }
  record.bubble_share = record.time.count > 0 ? idle / (ranks * record.time.count) : 0;
  record.hidden_share.reset();
  if (communication > 0) record.hidden_share = overlap / communication;
  if (record.slowest_rank) {
    const auto slowest = std::ranges::min_element(step.ranks, {}, &simulator::RankTime::idle);
    record.slowest_rank = static_cast<int>(slowest - step.ranks.begin());
    record.slowest_rank_time = Seconds{step.step_seconds - slowest->idle};
    std::vector<double> idles;
    std::ranges::transform(step.ranks, std::back_inserter(idles), &simulator::RankTime::idle);
    record.median_rank_time = Seconds{step.step_seconds - median(idles)};
  }
  std::vector<double> waiting(step.ranks.size(), 0);
  for (size_t id = 0; id < program.tasks.size(); ++id)
    if (program.tasks[id].kind() == ir::TaskKind::run)
      for (const int rank : program.tasks[id].ranks) waiting[static_cast<size_t>(rank)] += waited(step.tasks[id]);
  record.switch_time = {std::ranges::max(waiting)};
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
