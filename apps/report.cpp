#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/count_of.hpp"
#include "base/errors.hpp"
#include "base/status_line.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "config/hardware.hpp"
#include "data/sources.hpp"
#include "files/disk.hpp"
#include "files/run_lock.hpp"
#include "first_step.hpp"
#include "open_job.hpp"
#include "progress.hpp"
#include "report/html.hpp"
#include "report/plan_file.hpp"
#include "report/run_log.hpp"
#include "report/runs.hpp"

namespace switchyard::apps {
namespace {

namespace fs = std::filesystem;

struct ReportOptions {
  std::vector<std::string> folders;
  std::string out, cluster;
  bool live = false;
};

cluster::Cluster placement_of(const config::Job& job, const std::optional<cluster::Hardware>& hardware,
                              const std::optional<report::MeasuredStep>& measured) {
  if (hardware) return hardware->placement();
  if (measured && measured->cluster.ranks() == job.run.ranks) return measured->cluster;
  return cluster::uniform(1, job.run.ranks);
}

// The documents of a logged step are found by going through all steps before it, so it must be one of the run.
void check_steps(const config::Job& job, const report::RunLog& log, const fs::path& folder) {
  if (const i64 last = log.steps.step.back(); last > job.run.steps)
    user_error("{} has step {}, but the run has {} steps (run.steps in job.toml). Remove lines of other runs.",
               (folder / "log.jsonl").string(), last, job.run.steps);
}

std::vector<int> chosen_buckets(const report::RunLog& log, i64 step) {
  const auto found = log.chosen_buckets.find(step);
  return found == log.chosen_buckets.end() ? std::vector<int>() : found->second;
}

// Why the plan of a step can't be made again from job.toml, which is that of the resumed run; "" if it can.
std::string without_plan(const config::Job& job, const report::RunLog& log,
                         const std::optional<report::MeasuredStep>& measured, i64 step,
                         const std::vector<i64>& lengths) {
  if (measured && !measured->job.empty() && measured->job != fmt::format("{:016x}", config::trained_fingerprint(job)))
    return fmt::format("Step {} was traced before the run was resumed with another job", step);
  for (const int bucket : chosen_buckets(log, step))
    if (std::cmp_greater_equal(bucket, job.buckets.size()))
      return fmt::format("Step {} chose bucket {}, but job.toml has {}: the run was resumed with another job", step,
                         bucket, count_of(static_cast<i64>(job.buckets.size()), "bucket"));
  const std::optional<double> tokens = report::value_at(log.steps, "tokens", step);
  const i64 drawn = std::accumulate(lengths.begin(), lengths.end(), i64{0});
  if (!tokens || *tokens == static_cast<double>(drawn)) return "";
  return fmt::format("Step {} had {:.0f} tokens, but {} by job.toml: the run was resumed with another job", step,
                     *tokens, drawn);
}

report::Run measured_run(const fs::path& folder, config::Job job, const std::string& cluster) {
  job.batch.lengths.clear();  // it trained on its data, whatever lengths it is planned for
  const fs::path log_path = folder / "log.jsonl", trace_path = folder / "timeline.json";
  report::RunLog log = report::read_log(files::read_text(log_path), log_path.string());
  if (const fs::path validations = folder / "validation.jsonl"; fs::exists(validations))
    report::add_validations(log, files::read_text(validations), validations.string());
  std::optional<report::MeasuredStep> measured;
  if (fs::exists(trace_path)) measured = report::measured_timeline(files::read_text(trace_path), trace_path.string());
  check_steps(job, log, folder);
  std::vector<std::string> notes;
  if (measured && !std::ranges::binary_search(log.steps.step, measured->timeline.step)) {
    notes.push_back(fmt::format("timeline.json shows step {}, which the run left by going back to an earlier one.",
                                measured->timeline.step));
    measured.reset();
  }
  if (log.emulated.size() > 1) {
    std::vector<std::string> machines;
    for (const std::string& emulated : log.emulated)
      machines.push_back(emulated.empty() ? "the one it ran on" : emulated);
    notes.push_back(fmt::format("Steps have times of different machines: {}.", fmt::join(machines, ", ")));
  }
  std::optional<cluster::Hardware> hardware;
  if (!cluster.empty()) hardware = config::load_hardware(cluster, job.run.ranks);

  const std::string name = fs::absolute(folder).lexically_normal().filename().string();
  const auto run_of = [&](const report::PlannedView* planned) {
    report::Run run = report::measured_run(name, job, log, std::move(measured), planned);
    run.notes = std::move(notes);
    return run;
  };
  const auto run_without_plan = [&](const std::string& why) {
    notes.push_back(why + ", so buckets, links, switches and the prediction are missing.");
    return run_of(nullptr);
  };
  if (const auto missing = data::missing_data(job))
    return run_without_plan(fmt::format("The data \"{}\" was not found", *missing));
  const i64 number = measured ? measured->timeline.step : log.steps.step.front();
  std::vector<i64> lengths = lengths_of_step(job, number - 1);
  if (const std::string why = without_plan(job, log, measured, number, lengths); !why.empty())
    return run_without_plan(why);
  const compiler::Plans plans = compiler::plans_of(job, placement_of(job, hardware, measured));
  if (plans.cluster().hosts() == 1 && report::value_at(log.steps, "inter_bytes", number).value_or(0) > 0)
    notes.emplace_back(
        "The run was on several hosts, but only a timeline (run.trace_step) says which ranks were on which: links and "
        "switches are shown as of one host.");
  const PlannedStep step = planned_step(job, plans, number - 1, std::move(lengths), chosen_buckets(log, number));
  report::PlannedView view{
      .job = &job, .plans = &plans, .plan = &step.plan, .program = &step.program, .lengths = &step.lengths};
  std::optional<simulator::Simulation> simulation;
  if (hardware) {
    simulation = simulator::simulate(step.program, step.plan, plans, *hardware);
    view.simulation = &*simulation;
    view.hardware = &*hardware;
  }
  return run_of(&view);
}

report::Run run_of(const fs::path& folder, const std::string& cluster) {
  for (const char* file : {"job.toml", "log.jsonl"})
    if (!fs::exists(folder / file))
      user_error("{} has no {}, so it is not a run folder. Name a folder that `switchyard train --out` wrote.",
                 folder.string(), file);
  const config::Job job = open_run(folder);
  report::Run run = measured_run(folder, job, cluster);
  const fs::path path = folder / "plan.json";
  if (!fs::exists(path)) return run;
  const std::string text = files::read_text(path);
  std::vector<report::Candidate> candidates = report::read_plan(text, path.string());
  if (report::is_plan_of(text, job, path.string()))
    run.candidates = std::move(candidates);
  else
    run.notes.emplace_back("plan.json has plans for other batches or buckets than the run has now: they are left out.");
  return run;
}

std::string page_path(const ReportOptions& options) {
  return options.out.empty() ? (fs::path(options.folders.front()) / "report.html").string() : options.out;
}

// The last `parts` names of a path.
std::string end_of(const fs::path& path, int parts) {
  std::string text = path.filename().string();
  for (fs::path rest = path.parent_path(); parts > 1 && rest.has_filename(); --parts, rest = rest.parent_path())
    text = rest.filename().string() + "/" + text;
  return text;
}

// Names of runs are the ends of their folders' paths in which they differ; of one folder, they have numbers.
void tell_apart(std::vector<report::Run>& runs, const std::vector<std::string>& folders) {
  std::vector<fs::path> paths;
  for (const std::string& folder : folders)  // without a slash at the end
    paths.push_back(fs::absolute(fs::path(folder) / "").lexically_normal().parent_path());
  std::map<std::string, int> seen;
  for (size_t r = 0; r < runs.size(); ++r) {
    const auto shared = [&](int parts) {
      return std::ranges::any_of(paths, [&](const fs::path& path) {
        return path != paths[r] && end_of(path, parts) == end_of(paths[r], parts);
      });
    };
    int parts = 1;
    while (shared(parts)) ++parts;
    runs[r].name = end_of(paths[r], parts);
    if (const int before = seen[runs[r].name]++; before > 0) runs[r].name += fmt::format(" ({})", before + 1);
  }
}

void write_page(const ReportOptions& options, double reload_seconds) {
  report::Page page;
  for (const std::string& folder : options.folders) page.runs.push_back(run_of(folder, options.cluster));
  tell_apart(page.runs, options.folders);
  for (const report::Run& run : page.runs) page.title += (page.title.empty() ? "" : ", ") + run.name;
  files::write_text(page_path(options), report::html_of(page, reload_seconds));
}

// The sizes of what runs add to; -1 where a file is missing.
std::vector<i64> sizes(const std::vector<std::string>& folders) {
  std::vector<i64> sizes;
  for (const std::string& folder : folders)
    for (const char* file : {"log.jsonl", "validation.jsonl", "timeline.json", "plan.json"}) {
      std::error_code missing;
      const auto size = fs::file_size(fs::path(folder) / file, missing);
      sizes.push_back(missing ? -1 : static_cast<i64>(size));
    }
  return sizes;
}

// Writes the page again when a run has logged more, until all runs have ended; the last page doesn't reload. A tenth of
// the time goes into that at most.
void follow(const ReportOptions& options) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::duration<double> kShortest{2};
  std::chrono::duration<double> pause = kShortest;
  std::vector<i64> written;
  while (std::ranges::any_of(options.folders, files::in_use)) {
    if (const std::vector<i64> now = sizes(options.folders); now != written) {
      const Clock::time_point begin = Clock::now();
      try {
        write_page(options, pause.count());
        if (written.empty()) fmt::print("{}, until the run ends\n", page_path(options));
        std::fflush(stdout);
        written = now;
      } catch (const UserError&) {  // nothing logged yet, or the run is writing just now
      }
      pause = std::max<std::chrono::duration<double>>(kShortest, 9 * (Clock::now() - begin));
    }
    std::this_thread::sleep_for(pause);
  }
}

int run_report(const ReportOptions& options) {
  if (!options.out.empty()) check_output("--out", options.out);
  if (options.live) follow(options);
  {
    const StatusLine status("report", options.cluster.empty() ? "reading the run" : "simulating a step of the run",
                            lines_of(false));
    write_page(options, 0);
  }
  fmt::print("{}\n", page_path(options));
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* command = app.add_subcommand("report", "Writes an HTML page about a run, or about several side by side");
  command->add_option("run", options->folders, "Run folders")->required()->type_name("RUN_DIR...");
  command->add_option("--out", options->out, "File to write (default: report.html in the first folder)")
      ->type_name("FILE.html");
  command
      ->add_option("--cluster", options->cluster,
                   "Cluster file, or the name of a shipped one, to show a prediction beside the measurement")
      ->type_name("FILE|NAME");
  command->add_flag("--live", options->live,
                    "Follows runs that go on: writes the page again as their logs grow, and open pages reload, until "
                    "all have ended");
  command->callback([options, &action] { action.run = [options] { return run_report(*options); }; });
}

}  // namespace switchyard::apps
