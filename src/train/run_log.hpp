// Reports of a run: its folder's log and TensorBoard events, and the line on the terminal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/job.hpp"
#include "files/json_lines.hpp"
#include "files/tensorboard.hpp"
#include "train/metrics.hpp"
#include "train/progress.hpp"
#include "train/wandb_log.hpp"

namespace switchyard::train {

/// Warnings before a run begins: lines that say what will not be kept of it.
std::vector<std::string> not_kept(const config::Job& job);

/// Written by rank 0. Without run.out there is only the terminal.
class RunLog {
 public:
  /// The folder gets job.toml and plan_json as plan.json (empty: the strategies are not the planner's); what it has of
  /// steps from first_step on is set aside. errors  ClusterError for the disk
  RunLog(const config::Job& job, const std::string& plan_json, i64 first_step);

  void add(const StepRecord& record);
  void add(const ValidationRecord& record);
  /// A text of its own on the terminal. indent: of its lines after the first.
  void say(const std::string& text, size_t indent = 0) { progress_.say(text, indent); }
  /// Activity between two steps, on the status line; empty: none any more.
  void now(const std::string& what) { progress_.now(what); }
  /// Summary of all steps, on the terminal.
  void summarize() { progress_.summarize(); }

 private:
  // Says once that a signal was received: its step may take long.
  void answer_signal();

  Progress progress_;
  bool answered_ = false;
  Heartbeat heartbeat_;
  std::optional<files::JsonLines> lines_, validations_;
  std::optional<files::EventWriter> events_;
  std::optional<WandbLog> wandb_;
};

}  // namespace switchyard::train
