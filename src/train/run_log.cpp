#include "train/run_log.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/environment.hpp"
#include "base/status_line.hpp"
#include "files/checkpoint_folder.hpp"
#include "files/disk.hpp"
#include "files/hf_config.hpp"
#include "train/stop_signals.hpp"

namespace switchyard::train {

std::vector<std::string> not_kept(const config::Job& job) {
  std::vector<std::string> lines;
  if (job.run.out.empty()) {
    lines.emplace_back("nothing of this run will be kept, as it has no folder; --out DIR gives it one");
    if (job.log.wandb) lines.emplace_back("log.wandb needs run.out: nothing is sent");
  } else if (!job.run.save_last) {
    lines.emplace_back("the model will not be kept when the run ends: run.save_last = false");
  }
  return lines;
}

RunLog::RunLog(const config::Job& job, const std::string& plan_json, i64 first_step)
    : progress_(std::cerr, {.first_step = first_step,
                            .last_step = job.run.steps,
                            .terminal = rewrites_lines(stderr),
                            .colour = environment("NO_COLOR").value_or("").empty(),
                            .every = job.run.log_every,
                            .columns = [] { return terminal_columns(stderr); }}),
      heartbeat_(
          [this] {
            answer_signal();
            progress_.tick();
          },
          std::chrono::milliseconds(500)) {
  if (job.run.out.empty()) return;
  if (const auto line = files::set_aside_after(job.run.out, first_step - 1))
    say(fmt::format("checkpoints of steps {} are set aside in {}, with the log as it was", fmt::join(line->steps, ", "),
                    line->folder.string()));
  lines_.emplace(files::JsonLines::open(job.run.out, first_step - 1));
  if (const i64 last = lines_->last_kept(); last > 0 && last < first_step - 1)
    say(
        fmt::format("log.jsonl in {} has no steps {} to {}: its last one before this run is {}. Is the checkpoint "
                    "another run's?",
                    job.run.out, last + 1, first_step - 1, last));
  constexpr const char* kValidations = "validation.jsonl";
  if (!config::validation_sources_of(job).empty() ||
      std::filesystem::exists(std::filesystem::path(job.run.out) / kValidations))  // written before a resumed run
    validations_.emplace(files::JsonLines::open(job.run.out, first_step - 1, kValidations));
  events_.emplace(files::EventWriter::create(job.run.out, first_step));
  files::write_text(job.run.out + "/job.toml", config::to_toml(job));
  if (!job.model.path.empty())
    files::write_text(std::filesystem::path(job.run.out) / files::kRunModel,
                      files::read_text(files::hf_config_file(job.model.path)));
  const std::string plan_path = job.run.out + "/plan.json";
  if (!plan_json.empty())
    files::write_text(plan_path, plan_json);
  else if (first_step == 1)
    std::filesystem::remove(plan_path);  // another run's
  if (job.log.wandb) wandb_.emplace(job.run.out, first_step);
}

void RunLog::answer_signal() {
  const int signal = StopSignals::received();
  if (signal == 0 || std::exchange(answered_, true)) return;
  say(answer_to_signal(signal));
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
