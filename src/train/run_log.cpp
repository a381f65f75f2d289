#include "train/run_log.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/environment.hpp"
#include "files/checkpoint_folder.hpp"
#include "files/disk.hpp"
#include "train/stop_signals.hpp"

namespace switchyard::train {
namespace {

/// Whether standard error is a terminal that knows escape sequences.
bool rewrites_lines() { return isatty(STDERR_FILENO) != 0 && environment("TERM") != "dumb"; }

/// 0: not known.
size_t terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace

RunLog::RunLog(const config::Job& job, const std::string& plan_json, i64 first_step)
    : progress_(std::cerr, {.first_step = first_step,
                            .last_step = job.run.steps,
                            .terminal = rewrites_lines(),
                            .colour = environment("NO_COLOR").value_or("").empty(),
                            .every = job.run.log_every,
                            .columns = terminal_columns}),
      heartbeat_(
          [this] {
            answer_signal();
            progress_.tick();
          },
          std::chrono::milliseconds(500)) {
  if (job.run.out.empty()) {
    say("nothing of this run will be kept, as it has no folder; --out DIR gives it one");
    if (job.log.wandb) say("log.wandb: it sends what the folder has, so it is left out");
    return;
  }
  if (!job.run.save_last) say("the model will not be kept when the run ends: run.save_last = false");
  if (const auto line = files::set_aside_after(job.run.out, first_step - 1))
    say(fmt::format("checkpoints of steps {} are set aside in {}, with the log as it was", fmt::join(line->steps, ", "),
                    line->folder.string()));
  lines_.emplace(files::JsonLines::open(job.run.out, first_step - 1));
  if (!config::validation_sources_of(job).empty())
    validations_.emplace(files::JsonLines::open(job.run.out, first_step - 1, "validation.jsonl"));
  events_.emplace(files::EventWriter::create(job.run.out, first_step));
  files::write_text(job.run.out + "/job.toml", config::to_toml(job));
  const std::string plan_path = job.run.out + "/plan.json";
  if (!plan_json.empty())
    files::write_text(plan_path, plan_json);
  else if (first_step == 1)
    std::filesystem::remove(plan_path);  // of another run
  if (job.log.wandb) wandb_.emplace(job.run.out, first_step);
}

void RunLog::answer_signal() {
  const int signal = StopSignals::received();
  if (signal == 0 || std::exchange(answered_, true)) return;
  say(fmt::format("{}: the run ends after this step; a second signal ends it at once", name_of_signal(signal)));
}

void RunLog::add(const StepRecord& record) {
  if (lines_) lines_->append(to_json(record));
  if (events_) events_->add(record.step, scalars(record));
  progress_.step_done(record);
}

void RunLog::add(const ValidationRecord& record) {
  if (validations_) validations_->append(to_json(record));
  if (events_) events_->add(record.step, scalars(record));
  say(fmt::format("step {}  {}", record.step, to_string(record)));
}

}  // namespace switchyard::train
