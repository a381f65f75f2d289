#include "train/step_recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <utility>

#include "batch/validate.hpp"
#include "comm/collectives.hpp"
#include "comm/metered_fabric.hpp"
#include "compiler/job_plans.hpp"
#include "files/disk.hpp"
#include "kernels/device_memory.hpp"
#include "kernels/matmul_rate.hpp"
#include "simulator/trace.hpp"
#include "train/channels.hpp"
#include "train/stop_signals.hpp"

namespace switchyard::train {

StepRecorder::StepRecorder(const config::Job& job, const std::vector<data::Source>& sources, comm::Fabric& fabric,
                           comm::JointWork& files, kernels::RankMemory& memory, batch::WorkModel work,
                           const cluster::Hardware* emulated)
    : job_(job), sources_(sources), fabric_(fabric), files_(files), memory_(memory), work_(work) {
  if (emulated) emulation_.emplace(*emulated);
}

void StepRecorder::open(const RankSettings& settings, at::ScalarType type, const std::string& plan_json,
                        i64 first_step) {
  device_ = settings.device;
  const double mine =
      kernels::matmul_rate(type, settings.device, Seconds{0.02}, emulation_ ? thread_seconds : wall_seconds).count;
  const auto all = comm::all_gather_values(fabric_, comm::everyone(fabric_, kFigureChannel), "matmul rate",
                                           kBeforeTheFirstStep, mine);
  matmul_rate_ = std::accumulate(all.begin(), all.end(), 0.0);
  files_.run("run folder", [&](const auto&) {
    if (fabric_.rank() == 0) log_.emplace(job_, plan_json, first_step);
  });
}

void StepRecorder::begin(i64 step) {
  step_ = step;
  began_ = Clock::now();
  planning_ = comm::computing_seconds();
}

void StepRecorder::aside(const std::function<void()>& work) {
  const Clock::time_point began = Clock::now();
  const double computed = comm::computing_seconds();
  work();
  began_ += Clock::now() - began;
  planning_ += comm::computing_seconds() - computed;
}

runtime::Probe StepRecorder::planned() {
  memory_.reset_peak();
  if (!device_.is_cpu()) kernels::reset_device_peak(device_);
  before_ = fabric_.traffic();
  if (emulation_) return {.computed = true, .clock = comm::computing_seconds};
  return {.spans = traced()};
}

AfterStep StepRecorder::record(const DoneStep& step, const Rank& rank) {
  const runtime::StepResult& result = step.result;
  const comm::Traffic after = fabric_.traffic();
  const auto sent = [&](cluster::Link link) {
    return after[static_cast<size_t>(link)] - before_[static_cast<size_t>(link)];
  };
  const Figures mine{.peak = kernels::rank_peak(memory_, device_),
                     .predicted_peak = rank.predicted().total + step.checkpoint_copy,
                     .peak_bound = rank.bound().total + step.checkpoint_copy,
                     .intra = sent(cluster::Link::intra_host),
                     .inter = sent(cluster::Link::inter_host),
                     .waiting = result.times.waiting,
                     .switching = result.times.parameters,
                     .communication = result.times.communication,
                     .hidden = result.times.hidden,
                     .planning = comm::computing_seconds() - planning_,
                     .stop_signal = StopSignals::received(),
                     .saving = step.saving};
  const auto all =
      comm::all_gather_values(fabric_, comm::everyone(fabric_, kFigureChannel), "step figures", step_, mine);
  std::optional<simulator::Simulation> emulated;  // on rank 0
  if (emulation_) {
    std::vector<std::vector<ir::ComputedTime>> computed = everyones("computed times", result.computed);
    if (log_) emulated = emulation_->step(rank, step.plan, std::move(computed));
  }
  if (traced()) {
    std::vector<std::vector<simulator::TracedSpan>> spans;
    if (!emulation_)
      spans = measured_spans(step, rank.program());
    else if (emulated)
      spans = spans_of(*emulated, rank.program());
    write_timeline(spans, rank.program());
  }
  const AfterStep after_step{.stop_signal = std::ranges::max(all, {}, &Figures::stop_signal).stop_signal,
                             .saving = std::ranges::any_of(all, &Figures::saving)};
  if (!log_) return after_step;
  const std::vector<i64> lengths = data::Sampler::lengths(step.batch);
  StepRecord record = record_of(all, seconds_since(began_));
  if (emulated) {
    record.emulated = job_.run.emulate;
    set_times(record, *emulated, {std::ranges::max(all, {}, &Figures::planning).planning}, rank.program());
  }
  if (job_.run.choose_buckets) {
    for (const batch::PhasePlan& phase : step.plan.phases) record.chosen_buckets.push_back(phase.strategy);
    std::ranges::sort(record.chosen_buckets);
  }
  record.step = step_;
  if (step.plan.valid_tokens > 0) record.loss = result.loss;
  record.sources = sources_of(step);
  record.learning_rate = step.learning_rate;
  record.grad_norm = result.norm;
  record.tokens = std::accumulate(lengths.begin(), lengths.end(), i64{0});
  record.padding_share = batch::padding_share(step.plan);
  record.checkpoint_time = step.checkpoint_time;
  record.skipped = !result.finite;
  record.matmul_share = compiler::step_flops(work_, lengths) / (record.time.count * matmul_rate_);
  log_->add(record);
  if (record.skipped)
    log_->say(fmt::format("step {}: loss or gradient is not finite; the update was skipped", record.step));
  return after_step;
}

void StepRecorder::add(ValidationRecord record) {
  record.step = step_;
  if (log_) log_->add(record);
}

void StepRecorder::say(const std::string& text, size_t indent) {
  if (log_) log_->say(text, indent);
}

void StepRecorder::now(const std::string& what) {
  if (log_) log_->now(what);
}

void StepRecorder::summarize() {
  if (log_) log_->summarize();
}

std::vector<PartRecord> StepRecorder::sources_of(const DoneStep& step) const {
  std::vector<PartRecord> records;
  for (size_t s = 0; s < step.result.source_loss.size(); ++s) {
    std::vector<data::Sequence> own;
    PartRecord record{.name = sources_[s].name};
    for (const data::Sequence& sequence : step.batch.sequences)
      if (sequence.source == static_cast<int>(s)) {
        own.push_back(sequence);
        record.tokens += sequence.count;
      }
    record.labels = data::labels(sources_, own);
    if (record.labels > 0)
      record.loss =
          step.result.source_loss[s] * static_cast<double>(step.plan.valid_tokens) / static_cast<double>(record.labels);
    records.push_back(std::move(record));
  }
  return records;
}

StepRecord StepRecorder::record_of(const std::vector<Figures>& all, double seconds) {
  StepRecord record;
  record.time = Seconds{seconds};
  std::vector<double> waiting;
  double communication = 0, hidden = 0;
  for (const Figures& figures : all) {
    record.peak_memory.push_back(Bytes{figures.peak});
    record.predicted_peak_memory.push_back(Bytes{figures.predicted_peak});
    record.peak_memory_bound.push_back(Bytes{figures.peak_bound});
    record.intra_host_traffic.count += figures.intra;
    record.inter_host_traffic.count += figures.inter;
    record.switch_time.count = std::max(record.switch_time.count, figures.switching);
    waiting.push_back(figures.waiting);
    communication += figures.communication;
    hidden += figures.hidden;
  }
  set_waiting(record, waiting);
  if (all.size() > 1 && communication > 0) record.hidden_share = hidden / communication;
  return record;
}

// Ranks have different numbers of parts.
template <class Part>
std::vector<std::vector<Part>> StepRecorder::everyones(const char* what, const std::vector<Part>& mine) {
  std::vector<std::vector<Part>> all;
  for (const std::vector<std::byte>& blob : comm::all_gather_blobs(fabric_, comm::everyone(fabric_, kTimelineChannel),
                                                                   what, step_, std::as_bytes(std::span(mine)))) {
    std::vector<Part>& parts = all.emplace_back(blob.size() / sizeof(Part));
    std::memcpy(parts.data(), blob.data(), blob.size());
  }
  return all;
}

std::vector<std::vector<simulator::TracedSpan>> StepRecorder::measured_spans(const DoneStep& step,
                                                                             const ir::Program& program) {
  std::vector<std::vector<simulator::TracedSpan>> spans;
  for (const std::vector<runtime::TaskSpan>& of_rank : everyones("timeline", step.result.spans)) {
    std::vector<simulator::TracedSpan>& traced = spans.emplace_back();
    for (const runtime::TaskSpan& span : of_rank)
      traced.push_back({span.task, {span.begin, span.end, span.communication}});
  }
  simulator::start_when_last_rank_is_ready(program, spans);
  return spans;
}

void StepRecorder::write_timeline(const std::vector<std::vector<simulator::TracedSpan>>& spans,
                                  const ir::Program& program) {
  files_.run("timeline", [&](const auto&) {
    if (!log_ || job_.run.out.empty()) return;
    nlohmann::json about{{"step", step_},
                         {"hosts", fabric_.cluster().host},
                         {"overlap_collectives", fabric_.cluster().overlaps_collectives},
                         {"job", fmt::format("{:016x}", config::trained_fingerprint(job_))}};
    if (emulation_) about["emulated"] = job_.run.emulate;
    files::write_text(job_.run.out + "/timeline.json", simulator::trace_of(program, spans, about) + "\n");
  });
}

}  // namespace switchyard::train
