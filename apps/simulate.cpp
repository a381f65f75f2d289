#include "simulator/simulate.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>

#include "base/status_line.hpp"
#include "base/units.hpp"
#include "candidates.hpp"
#include "commands.hpp"
#include "compiler/memory.hpp"
#include "config/hardware.hpp"
#include "count_of.hpp"
#include "files/disk.hpp"
#include "first_step.hpp"
#include "job_options.hpp"
#include "open_job.hpp"
#include "report/html.hpp"
#include "report/runs.hpp"
#include "simulator/trace.hpp"

namespace switchyard::apps {
namespace {

constexpr int kDoesNotFit = 2;  // exit status

struct Options {
  JobOptions job;
  std::string cluster, trace, report;
  std::vector<std::string> against;
  int steps = 1;
  bool json = false;
};

/// Means over the steps; peaks are the highest.
struct Figures {
  double step_seconds = 0, utilization = 0, tokens = 0;
  simulator::RankTime mean;
  std::vector<double> steps;           // seconds of each step
  std::vector<std::vector<int>> used;  // buckets of each step
  std::vector<i64> peak, activations;  // bytes per rank; activations: those kept for the backward pass
  i64 highest() const { return std::ranges::max(peak); }
};

simulator::RankTime mean_of(const std::vector<simulator::RankTime>& ranks) {
  simulator::RankTime mean;
  const double share = 1 / static_cast<double>(ranks.size());
  for (const simulator::RankTime& rank : ranks) {
    mean.compute += share * rank.compute;
    mean.communication += share * rank.communication;
    mean.overlap += share * rank.overlap;
    mean.idle += share * rank.idle;
  }
  mean.idle = std::max(mean.idle, 0.0);  // a difference of sums, which rounding may leave below zero
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
}

void write_report(const Options& options, const config::Job& job, const compiler::Plans& plans,
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
  files::make_folder(options.report);
  files::write_text(options.report + "/report.html",
                    report::html_of({name + " on " + hardware.name + ", simulated", {std::move(run)}}));
  simulator::write_trace(options.report + "/trace.json", step.program, simulated);
  fmt::print("{}/report.html, and trace.json for Perfetto\n", options.report);
}

// The memory budget is limited to the devices' memory, so that steps prefetch no more than fits.
config::Job within(config::Job job, const cluster::Hardware& hardware) {
  Bytes& budget = job.run.memory_budget;
  if (budget.count == 0 || budget > hardware.device.usable()) budget = hardware.device.usable();
  return job;
}

// "79.25 GiB, of which 4.00 GiB are reserved".
std::string room_of(const cluster::Device& device) {
  std::string text = format_bytes(device.memory);
  if (device.reserve.count > 0) text += fmt::format(", of which {} are reserved", format_bytes(device.reserve));
  return text;
}

bool fits(const Figures& f, const cluster::Device& device) { return f.highest() <= device.usable().count; }

// The first line: whether the job fits, and how quick it is or would be.
std::string verdict(const Figures& f, const cluster::Device& device) {
  const std::string step = step_words(f.step_seconds, f.tokens, f.utilization), peak = format_bytes(Bytes{f.highest()}),
                    usable = format_bytes(device.usable());
  if (fits(f, device)) return fmt::format("{}; fits: {} of {}", step, peak, usable);
  return fmt::format("Does NOT fit: {} on {}, {} too much. {} if it did", peak, usable,
                     format_bytes(Bytes{f.highest() - device.usable().count}), step);
}

Figures simulate_job(const Options& options, const config::Job& job, const compiler::Plans& plans,
                     const cluster::Hardware& hardware, StatusLine& status) {
  Figures figures;
  status.now("assembling the steps");
  const std::vector<PlannedStep> steps = first_steps(within(job, hardware), plans, hardware, options.steps);
  const double share = 1 / static_cast<double>(steps.size());
  for (const PlannedStep& step : steps) {
    status.now(fmt::format("simulating step {} of {}", &step - steps.data() + 1, steps.size()));
    std::future<void> memory = std::async(
        std::launch::async, [&] { add_memory(figures, step, plans); });  // writes no field that the simulation writes
    const simulator::Simulation simulated = simulator::simulate(step.program, step.plan, plans, hardware);
    if (!options.trace.empty() && &step == &steps.front())
      simulator::write_trace(options.trace, step.program, simulated);
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
    figures.utilization += share * matmul_share(job, step.lengths, simulated.step_seconds, hardware);
    figures.tokens += share * std::accumulate(step.lengths.begin(), step.lengths.end(), 0.0);
    memory.get();
  }
  return figures;
}

void print(const Figures& f, const cluster::Hardware& hardware) {
  const auto line = [&](const char* what, double seconds) {
    fmt::print("  {:<16}{:>10}{:>8.1f}%\n", what, format_duration(Seconds{seconds}), 100 * seconds / f.step_seconds);
  };
  fmt::print("{}\n{}: {} of {}\n", verdict(f, hardware.device), hardware.name, count_of(hardware.hosts, "host"),
             count_of(hardware.devices_per_host, "device"));
  line("compute", f.mean.compute);
  line("communication", f.mean.communication);
  line("- hidden", f.mean.overlap);
  line("idle", f.mean.idle);
  const auto highest = std::max_element(f.peak.begin(), f.peak.end());
  fmt::print("  highest peak memory on rank {}: {}, activations {}, of {}\n", highest - f.peak.begin(),
             format_bytes(Bytes{*highest}),
             format_bytes(Bytes{f.activations[static_cast<size_t>(highest - f.peak.begin())]}),
             room_of(hardware.device));
}

int run(const Options& options) {
  config::Errors errors;
  const config::Job job = open_job(draft_of(options.job, JobKind::given, errors), errors);
  const cluster::Hardware hardware = config::load_hardware(options.cluster, job.run.ranks);
  std::optional<StatusLine> status(std::in_place, "simulate", "planning switches and reductions");
  const compiler::Plans plans = compiler::plans_of(job, hardware.placement());
  const Figures f = simulate_job(options, job, plans, hardware, *status);
  status.reset();
  print(f, hardware);
  if (job.run.choose_buckets) fmt::print("  buckets that steps chose: {}\n", fmt::join(f.used, " "));
  const i64 copy = checkpoint_copy(job, plans);
  fmt::print("{}", checkpoint_copy_line(copy));
  if (options.json) {
    const nlohmann::json object = {{"step_seconds", f.step_seconds},
                                   {"seconds_of_steps", f.steps},
                                   {"buckets_of_steps", f.used},
                                   {"compute_seconds", f.mean.compute},
                                   {"communication_seconds", f.mean.communication},
                                   {"overlap_seconds", f.mean.overlap},
                                   {"idle_seconds", f.mean.idle},
                                   {"peak_bytes", f.peak},
                                   {"activation_bytes", f.activations},
                                   {"checkpoint_copy_bytes", copy},
                                   {"usable_bytes", hardware.device.usable().count},
                                   {"fits", fits(f, hardware.device)},
                                   {"model_flops_utilization", f.utilization}};
    fmt::print("{}\n", object.dump());
  }
  return fits(f, hardware.device) ? 0 : kDoesNotFit;
}

}  // namespace

void add_simulate(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
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
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace switchyard::apps
