#include "report/runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/median.hpp"
#include "base/units.hpp"
#include "batch/validate.hpp"
#include "report/memory_curves.hpp"
#include "report/step_facts.hpp"
#include "report/step_parts.hpp"

namespace switchyard::report {
namespace {

constexpr size_t kMostCurves = 12, kLongestTasks = 10;

using Pairs = std::vector<std::pair<std::string, std::string>>;

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string rate(double tokens_per_second) {
  if (tokens_per_second >= 1e6) return fmt::format("{:.2f} M tokens/s", tokens_per_second / 1e6);
  if (tokens_per_second >= 1e4) return fmt::format("{:.1f} k tokens/s", tokens_per_second / 1e3);
  return fmt::format("{:.0f} tokens/s", tokens_per_second);
}

std::string big(i64 number) {
  const double value = static_cast<double>(number);
  return number >= 1'000'000'000 ? fmt::format("{:.3g} billion", 1e-9 * value)
         : number >= 1'000'000   ? fmt::format("{:.3g} million", 1e-6 * value)
                                 : std::to_string(number);
}

double mean(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Pairs facts_of(const config::Job& job) {
  const config::ModelConfig& model = job.model.config;
  Pairs facts;
  if (model.layers > 0)
    facts.emplace_back("model", fmt::format("{} layers, hidden size {}, {} parameters", model.layers, model.hidden_size,
                                            big(config::parameter_count(model))));
  facts.emplace_back("ranks", std::to_string(job.run.ranks));
  facts.emplace_back("precision", std::string(name_of(compiler::precision_of(job.run))));
  facts.emplace_back("batch", job.batch.tokens > 0 ? fmt::format("{} tokens", job.batch.tokens)
                                                   : fmt::format("{} documents", job.batch.sequences));
  std::string strategies;
  for (const config::Bucket& bucket : job.buckets)
    strategies +=
        fmt::format("{}{} up to {} tokens", strategies.empty() ? "" : "; ", bucket.strategy.name, bucket.max_length);
  facts.emplace_back("strategies (dp,tp,pp)", strategies);
  facts.emplace_back("memory budget", job.run.memory_budget.count > 0 ? format_bytes(job.run.memory_budget) : "none");
  return facts;
}

std::string peak_text(const std::vector<i64>& peaks, i64 limit) {
  const i64 highest = *std::max_element(peaks.begin(), peaks.end());
  std::string text = format_bytes(Bytes{highest});
  if (limit > 0) text += fmt::format(" of {}", format_bytes(Bytes{limit}));
  return text;
}

i64 tokens_of(const PlannedView& step) { return std::accumulate(step.lengths->begin(), step.lengths->end(), i64{0}); }

// Start times of tasks: predicted ones, else measured ones by name. A task without a span starts with the one before.
TaskStart task_start(const PlannedView& step, const Timeline* measured) {
  if (step.simulation)
    return [&simulation = *step.simulation](int, int id) { return simulation.tasks[static_cast<size_t>(id)].begin; };
  std::map<std::pair<int, std::string>, double> begins;
  for (const Track& track : measured->tracks)
    for (const Span& span : track.spans)
      if (span.kind != Kind::waiting)
        begins.try_emplace({track.shown, measured->names[static_cast<size_t>(span.name)]}, span.begin);
  return [begins = std::move(begins), &program = *step.program](int rank, int id) {
    const auto found = begins.find({rank, ir::name_of(program.tasks[static_cast<size_t>(id)])});
    return found == begins.end() ? 0.0 : found->second;
  };
}

// start: null if the start times of tasks are unknown; then memory over time is missing.
void add_plan(Run& run, const PlannedView& step, const TaskStart* start) {
  run.buckets = bucket_rows(*step.job, *step.plan, *step.plans, *step.lengths);
  run.documents = documents_of(*step.job, *step.plan, *step.plans, *step.lengths);
  run.links = link_uses(*step.program, *step.plan, *step.plans);
  run.matrices = switch_matrices(*step.program, *step.plan, *step.plans);
  if (start) run.memory = memory_of(*step.program, *step.plan, *step.plans, *start, kMostCurves);
  if (step.simulation) run.shares = time_shares(*step.simulation);
}

void set_limit(Memory& memory, const config::Job& job, const cluster::Hardware* hardware) {
  memory.budget = job.run.memory_budget.count;
  memory.limit_name = "run.memory_budget";
  if (memory.budget > 0 || !hardware) return;
  memory.budget = hardware->device.usable().count;
  memory.limit_name =
      "memory of " + hardware->device.name + (hardware->device.reserve.count > 0 ? " less its reserve" : "");
}

Timeline folded(Timeline timeline) {
  fold_equal(timeline);
  fold_similar(timeline, kMostTracks);
  return timeline;
}

void add_traffic_tiles(Run& run) {
  LinkUse all;
  for (const LinkUse& use : run.links) {
    all.intra += use.intra;
    all.inter += use.inter;
  }
  run.tiles.emplace_back("sent inside hosts, per step", format_bytes(Bytes{all.intra}));
  run.tiles.emplace_back("sent between hosts, per step", format_bytes(Bytes{all.inter}));
}

void add_log_tiles(Run& run, const RunLog& log) {
  const auto values = [&](const char* name) { return values_of(log.steps, name); };
  if (const auto loss = values("loss"); !loss.empty())
    run.tiles.emplace_back(loss.size() > 1 ? "loss, first to last step" : "loss",
                           loss.size() > 1 ? fmt::format("{:.4f} \u2192 {:.4f}", loss.front(), loss.back())
                                           : fmt::format("{:.4f}", loss[0]));
  if (const auto rates = values("tokens_per_second"); !rates.empty())
    run.tiles.emplace_back("throughput, median", rate(median(rates)));
  if (const auto seconds = values("seconds"); !seconds.empty())
    run.tiles.emplace_back("step, median", format_duration(Seconds{median(seconds)}));
  if (const auto shares = values("bubble_share"); !shares.empty())
    run.tiles.emplace_back("waiting time of compute streams, mean", percent(mean(shares)));
  if (const auto ranks = values("slowest_rank"); !ranks.empty()) {
    std::map<i64, size_t> steps;  // by rank
    for (const double rank : ranks) ++steps[std::llround(rank)];
    const auto& [rank, most] = *std::ranges::max_element(steps, {}, [](const auto& entry) { return entry.second; });
    run.tiles.emplace_back("slowest rank, most often", fmt::format("{} ({} of {} steps)", rank, most, ranks.size()));
  }
  if (const auto shares = values("hidden_share"); !shares.empty())
    run.tiles.emplace_back("communication hidden, mean", percent(mean(shares)));
  if (const auto shares = values("padding_share"); !shares.empty())
    run.tiles.emplace_back("padding, mean", percent(mean(shares)));
  if (const auto shares = values("switch_share"); !shares.empty())
    run.tiles.emplace_back("waiting time for parameters, mean", percent(mean(shares)));
  if (const auto bytes = values("intra_bytes"); !bytes.empty())
    run.tiles.emplace_back("sent inside hosts, per step", format_bytes(Bytes{static_cast<i64>(mean(bytes))}));
  if (const auto bytes = values("inter_bytes"); !bytes.empty())
    run.tiles.emplace_back("sent between hosts, per step", format_bytes(Bytes{static_cast<i64>(mean(bytes))}));
}

}  // namespace

Run simulated_run(const std::string& name, const PlannedView& step) {
  Run run{.name = name, .simulated = true, .facts = facts_of(*step.job)};
  run.facts.emplace_back("cluster", fmt::format("{}: {} x {} {}", step.hardware->name, step.hardware->hosts,
                                                step.hardware->devices_per_host, step.hardware->device.name));
  const TaskStart start = task_start(step, nullptr);
  add_plan(run, step, &start);
  set_limit(*run.memory, *step.job, step.hardware);
  Timeline timeline = predicted_timeline(*step.program, *step.simulation);
  timeline.phases = phase_labels(*step.plan, *step.plans);
  add_times(run.buckets, *step.plan, timeline);
  timeline.step = step.plan->step + 1;
  run.parts.push_back(parts_of(timeline, false));
  run.longest = longest_tasks(timeline, false, kLongestTasks);
  timeline = folded(std::move(timeline));
  merge_short(timeline, kMostSpans);
  run.timelines.push_back(std::move(timeline));

  const double seconds = step.simulation->step_seconds;
  run.tiles.emplace_back("predicted step", format_duration(Seconds{seconds}));
  run.tiles.emplace_back("predicted throughput", rate(static_cast<double>(tokens_of(step)) / seconds));
  double idle = 0;
  for (const simulator::RankTime& rank : step.simulation->ranks)
    idle += rank.idle / (seconds * static_cast<double>(step.simulation->ranks.size()));
  run.tiles.emplace_back("idle, mean of ranks", percent(std::max(idle, 0.0)));  // rounding may leave it below zero
  run.tiles.emplace_back("padding", percent(batch::padding_share(*step.plan)));
  run.tiles.emplace_back("highest predicted peak of any rank",
                         peak_text(run.memory->predicted_peak, run.memory->budget));
  add_traffic_tiles(run);
  return run;
}

Run measured_run(const std::string& name, const config::Job& job, const RunLog& log,
                 std::optional<MeasuredStep> measured, const PlannedView* planned) {
  Run run{.name = name,
          .simulated = false,
          .emulated = measured ? measured->emulated : job.run.emulate,
          .facts = facts_of(job),
          .steps = log.steps};
  if (!run.emulated.empty()) run.facts.emplace_back("emulated on", run.emulated);
  add_log_tiles(run, log);
  const bool predicted = planned && planned->simulation;
  if (planned) {
    const bool timed = predicted || measured.has_value();
    const TaskStart start = timed ? task_start(*planned, measured ? &measured->timeline : nullptr) : TaskStart{};
    add_plan(run, *planned, timed ? &start : nullptr);
  }
  if (!run.memory) run.memory.emplace();
  if (!log.predicted_peak.empty())
    run.memory->predicted_peak = log.predicted_peak;  // over all steps, like the measured ones
  run.memory->measured_peak = log.measured_peak;
  set_limit(*run.memory, job, planned ? planned->hardware : nullptr);
  if (!log.measured_peak.empty())
    run.tiles.emplace_back("highest measured peak of any rank", peak_text(log.measured_peak, run.memory->budget));

  if (measured) {
    run.parts.push_back(parts_of(measured->timeline, true));
    run.longest = longest_tasks(measured->timeline, true, kLongestTasks);
    if (planned && planned->plan->step + 1 == measured->timeline.step)
      add_times(run.buckets, *planned->plan, measured->timeline);
    run.timelines.push_back(std::move(measured->timeline));
  }
  if (predicted) {
    Timeline timeline = predicted_timeline(*planned->program, *planned->simulation);
    timeline.step = planned->plan->step + 1;
    add_times(run.buckets, *planned->plan, timeline);
    run.parts.insert(run.parts.begin(), parts_of(timeline, false));
    if (!measured) run.longest = longest_tasks(timeline, false, kLongestTasks);
    timeline = folded(std::move(timeline));
    run.facts.emplace_back("predicted for", planned->hardware->name);
    run.tiles.emplace_back(fmt::format("predicted step {}", timeline.step),
                           format_duration(Seconds{planned->simulation->step_seconds}));
    const auto same = std::find_if(run.timelines.begin(), run.timelines.end(),
                                   [&](const Timeline& t) { return t.step == timeline.step; });
    if (same != run.timelines.end() && same->tracks.size() > kMostTracks) fold_as(*same, timeline);
    if (same != run.timelines.end())
      *same = side_by_side(std::move(timeline), std::move(*same));
    else
      run.timelines.insert(run.timelines.begin(), std::move(timeline));
  }
  for (Timeline& timeline : run.timelines) {
    if (planned && planned->plan->step + 1 == timeline.step)
      timeline.phases = phase_labels(*planned->plan, *planned->plans);
    if (!timeline.predicted_seconds) fold_similar(timeline, kMostTracks);
    merge_short(timeline, kMostSpans);
  }
  return run;
}

}  // namespace switchyard::report
