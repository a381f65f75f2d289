#include "simulator/simulate.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>

#include "base/count_of.hpp"
#include "base/status_line.hpp"
#include "base/units.hpp"
#include "candidates.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "compiler/memory.hpp"
#include "config/hardware.hpp"
#include "files/disk.hpp"
#include "first_step.hpp"
#include "job_options.hpp"
#include "open_job.hpp"
#include "plan_job.hpp"
#include "report/html.hpp"
#include "report/runs.hpp"
#include "simulator/trace.hpp"

namespace switchyard::apps {
namespace {

struct SimulateOptions {
  JobOptions job;
  std::string cluster, trace, report;
  std::vector<std::string> against;
  int steps = 1;
  bool json = false;
};

/// Means over the steps; peaks are the highest. limit: bytes that a rank may use; bound: what a rank needs at the worst
/// pace, as training compares it with the limit; checkpoint_copy: bytes of the largest copy for a checkpoint.
struct Figures {
  double step_seconds = 0, utilization = 0, tokens = 0;
  simulator::RankTime mean;
  std::vector<double> steps;           // seconds of each step
  std::vector<std::vector<int>> used;  // buckets of each step
  std::vector<i64> peak, activations;  // bytes per rank; activations: those kept for the backward pass
  i64 limit = 0, bound = 0, checkpoint_copy = 0;
  bool fits() const { return bound <= limit; }
};

// A share of the step up to which idle time is rounding: segments are timed to a billionth of theirs.
constexpr double kRounding = 1e-8;

simulator::RankTime mean_of(const std::vector<simulator::RankTime>& ranks) {
  simulator::RankTime mean;
  const double share = 1 / static_cast<double>(ranks.size());
  for (const simulator::RankTime& rank : ranks) {
    mean.compute += share * rank.compute;
    mean.communication += share * rank.communication;
    mean.overlap += share * rank.overlap;
    mean.idle += share * rank.idle;
  }
  if (mean.idle < kRounding * (mean.compute + mean.communication - mean.overlap)) mean.idle = 0;
  return mean;
}

void add_memory(Figures& figures, const PlannedStep& step, const compiler::Plans& plans) {
  const size_t ranks = static_cast<size_t>(plans.cluster().ranks());
  figures.peak.resize(ranks);
  figures.activations.resize(ranks);
  const std::vector<compiler::MemoryPeak> peaks = compiler::predict_all(step.program, step.plan, plans);
  for (size_t rank = 0; rank < ranks; ++rank) {
    figures.peak[rank] = std::max(figures.peak[rank], peaks[rank].total);
    figures.activations[rank] = std::max(figures.activations[rank], peaks[rank].kept);
  }
  figures.bound = std::max(figures.bound, step.peak.value());
}

void write_trace(const std::string& path, const ir::Program& program, const simulator::Simulation& simulation) {
  files::write_text(path, simulator::trace_of(program, simulation) + "\n");
}

void write_report(const SimulateOptions& options, const config::Job& job, const compiler::Plans& plans,
                  const cluster::Hardware& hardware, const PlannedStep& step, const simulator::Simulation& simulated) {
  const std::string name = options.job.name();
  report::Run run = report::simulated_run(name, {.job = &job,
                                                 .plans = &plans,
                                                 .plan = &step.plan,
                                                 .program = &step.program,
                                                 .lengths = &step.lengths,
                                                 .simulation = &simulated,
                                                 .hardware = &hardware});
  if (!options.against.empty())
    run.candidates = candidates(job, plans, hardware, step, options.against, run.memory->budget);
  files::write_text(options.report + "/report.html",
                    report::html_of({name + " on " + hardware.name + ", simulated", {std::move(run)}}));
  write_trace(options.report + "/trace.json", step.program, simulated);
}

// "79.25 GiB, of which 4.00 GiB are reserved", or what the job may use of it.
std::string room_of(const cluster::Device& device, i64 limit) {
  if (limit < device.memory.count - device.reserve.count)
    return fmt::format("the job's {}", format_bytes(Bytes{limit}));
  std::string text = format_bytes(device.memory);
  if (device.reserve.count > 0) text += fmt::format(", of which {} are reserved", format_bytes(device.reserve));
  return text;
}

// The first line: whether the job fits, and how quick it is or would be.
std::string step_verdict(const Figures& f) {
  const std::string step = step_words(f.step_seconds, f.tokens, f.utilization), bound = format_bytes(Bytes{f.bound}),
                    limit = format_bytes(Bytes{f.limit});
  if (f.fits()) return fmt::format("{}; fits: {} of {}", step, bound, limit);
  return fmt::format("Does NOT fit: {} on {}, {} too much. {} if it did", bound, limit,
                     format_bytes(Bytes{f.bound - f.limit}), step);
}

Figures simulate_job(const SimulateOptions& options, const config::Job& job, const compiler::Plans& plans,
                     const cluster::Hardware& hardware, const Progress& progress) {
  const config::Job limited = within_memory(job, hardware);  // so that steps prefetch no more than fits
  Figures figures;
  figures.limit = limited.run.memory_budget.count;
  progress.print(synthetic_line(job));
  progress.now("assembling the steps");
  const std::vector<PlannedStep> steps = first_steps(limited, plans, hardware, options.steps, progress);
  const double share = 1 / static_cast<double>(steps.size());
  for (const PlannedStep& step : steps) {
    progress.now(fmt::format("simulating step {} of {}", &step - steps.data() + 1, steps.size()));
    std::future<void> memory = std::async(
        std::launch::async, [&] { add_memory(figures, step, plans); });  // writes no field that the simulation writes
    const simulator::Simulation simulated = simulator::simulate(step.program, step.plan, plans, hardware);
    if (!options.trace.empty() && &step == &steps.front()) write_trace(options.trace, step.program, simulated);
    if (!options.report.empty() && &step == &steps.front())
      write_report(options, job, plans, hardware, step, simulated);
    const simulator::RankTime mean = mean_of(simulated.ranks);
    figures.step_seconds += share * simulated.step_seconds;
    figures.steps.push_back(simulated.step_seconds);
    std::vector<int>& used = figures.used.emplace_back();
    for (const batch::PhasePlan& phase : step.plan.phases) used.push_back(phase.strategy);
    figures.mean.compute += share * mean.compute;
    figures.mean.communication += share * mean.communication;
    figures.mean.overlap += share * mean.overlap;
    figures.mean.idle += share * mean.idle;
    figures.utilization += simulated.step_seconds * matmul_share(job, step.lengths, simulated.step_seconds, hardware);
    figures.tokens += share * std::accumulate(step.lengths.begin(), step.lengths.end(), 0.0);
    memory.get();
  }
  figures.utilization /= std::accumulate(figures.steps.begin(), figures.steps.end(), 0.0);  // weighted like tokens/s
  figures.checkpoint_copy = checkpoint_copy(job, plans);
  return figures;
}

struct Simulated {
  config::Job job;
  cluster::Hardware hardware;
  Figures figures;
};

Simulated simulated_job(const SimulateOptions& options, const Progress& progress) {
  config::require_cluster(options.cluster);
  if (!options.trace.empty()) check_output("--trace", options.trace);
  config::Errors errors;
  config::Job job = open_job(draft_of(options.job, JobKind::given, errors, options.cluster), errors);
  cluster::Hardware hardware = config::load_hardware(options.cluster, job.run.ranks);
  config::resolve_device(job, hardware.device.type);
  if (!options.report.empty()) files::make_folder(options.report);
  progress.now("planning transfers");
  const compiler::Plans plans = compiler::plans_of(job, hardware.placement());
  Figures figures = simulate_job(options, job, plans, hardware, progress);
  return {std::move(job), std::move(hardware), std::move(figures)};
}

void print_figures(const Figures& f, const cluster::Hardware& hardware) {
  const auto line = [&](const char* what, double seconds) {
    fmt::print("  {:<16}{:>10}{:>8.1f}%\n", what, format_duration(Seconds{seconds}), 100 * seconds / f.step_seconds);
  };
  fmt::print("{}\n{}: {} of {}\n", step_verdict(f), hardware.name, count_of(hardware.hosts, "host"),
             count_of(hardware.devices_per_host, "device"));
  line("compute", f.mean.compute);
  line("communication", f.mean.communication);
  line("- hidden", f.mean.overlap);
  line("idle", f.mean.idle);
  const auto highest = std::max_element(f.peak.begin(), f.peak.end());
  fmt::print("  highest peak memory on rank {}: {}, activations {}, of {}\n", highest - f.peak.begin(),
             format_bytes(Bytes{*highest}),
             format_bytes(Bytes{f.activations[static_cast<size_t>(highest - f.peak.begin())]}),
             room_of(hardware.device, f.limit));
}

nlohmann::json figures_json(const Figures& f) {
  return {{"step_seconds", f.step_seconds},
          {"seconds_of_steps", f.steps},
          {"buckets_of_steps", f.used},
          {"compute_seconds", f.mean.compute},
          {"communication_seconds", f.mean.communication},
          {"overlap_seconds", f.mean.overlap},
          {"idle_seconds", f.mean.idle},
          {"peak_bytes", f.peak},
          {"peak_bound_bytes", f.bound},
          {"activation_bytes", f.activations},
          {"checkpoint_copy_bytes", f.checkpoint_copy},
          {"usable_bytes", f.limit},
          {"fits", f.fits()},
          {"model_flops_utilization", f.utilization}};
}

int run_simulate(const SimulateOptions& options) {
  std::optional<StatusLine> status(std::in_place, "simulate", "reading the job", lines_of(options.json));
  const Simulated result = simulated_job(options, shown_on(*status));
  status.reset();
  const Figures& f = result.figures;
  if (!options.report.empty()) fmt::print("{}/report.html, and trace.json for Perfetto\n", options.report);
  print_figures(f, result.hardware);
  if (result.job.run.choose_buckets) fmt::print("  buckets that steps chose: {}\n", fmt::join(f.used, " "));
  fmt::print("{}", checkpoint_copy_line(f.checkpoint_copy));
  if (options.json) fmt::print("{}\n", figures_json(f).dump());
  return f.fits() ? 0 : kDoesNotFit;
}

}  // namespace

void add_simulate(CLI::App& app, Action& action) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* command =
      app.add_subcommand("simulate", "Predicts time and memory of a job's steps on a cluster that you don't have");
  add_job_options(*command, options->job, JobKind::given);
  add_cluster_option(*command, options->cluster);
  command
      ->add_option("--steps", options->steps,
                   "Number of steps to simulate, from the first on; figures are means over them")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));  // all are planned before the first is simulated
  command->add_option("--trace", options->trace, "Writes the first step's timeline for Perfetto")
      ->type_name("FILE.json");
  command
      ->add_option("--report", options->report,
                   "Writes report.html, a page about the first step, and trace.json into this folder")
      ->type_name("DIR");
  command
      ->add_option("--against", options->against,
                   "Strategies that the report compares, each alone for the whole batch; all: every dp,tp,pp")
      ->needs("--report")
      ->type_name("DP,TP,PP|all");
  command->add_flag("--json", options->json, "One JSON object on the last line of standard output");
  command->callback([options, &action] {
    action = {
        .run = [options] { return run_simulate(*options); },
        .figures =
            [options](const Progress& progress) { return figures_json(simulated_job(*options, progress).figures); }};
  });
}

}  // namespace switchyard::apps
