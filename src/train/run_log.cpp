#include "train/run_log.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "files/checkpoint_folder.hpp"
#include "files/disk.hpp"

namespace switchyard::train {

RunLog::RunLog(const config::Job& job, const std::string& plan_json, i64 first_step)
    : progress_(std::cerr, {.first_step = first_step,
                            .last_step = job.run.steps,
                            .terminal = isatty(STDERR_FILENO) != 0,
                            .every = job.run.log_every}),
      heartbeat_([this] { progress_.tick(); }, std::chrono::milliseconds(500)) {
  if (job.run.out.empty()) return;
  if (const auto line = files::set_aside_after(job.run.out, first_step - 1))
    say(fmt::format("checkpoints of steps {} are set aside in {}, with the log as it was", fmt::join(line->steps, ", "),
                    line->folder.string()));
  lines_.emplace(files::JsonLines::open(job.run.out, first_step - 1));
  events_.emplace(files::EventWriter::create(job.run.out, first_step));
  files::write_text(job.run.out + "/job.toml", config::to_toml(job));
  const std::string plan_path = job.run.out + "/plan.json";
  if (!plan_json.empty())
    files::write_text(plan_path, plan_json);
  else if (first_step == 1)
    std::filesystem::remove(plan_path);  // of another run
}

void RunLog::add(const StepRecord& record) {
  if (lines_) lines_->append(to_json(record));
  if (events_) events_->add(record.step, scalars(record));
  progress_.step_done(record);
}

}  // namespace switchyard::train
