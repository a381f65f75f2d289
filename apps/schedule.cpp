#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>

#include "base/errors.hpp"
#include "base/file_text.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "config/schedule_json.hpp"
#include "schedule/interleaved.hpp"
#include "schedule/replay.hpp"
#include "schedule/zero_bubble.hpp"
#include "schedule/zeropp.hpp"

namespace switchyard::apps {
namespace {

struct ScheduleOptions {
  std::string kind = "1f1b", file;
  int stages = 4, micro_batches = 8, chunks = 2, cap = 0, every = 0;
  std::vector<double> times = {1, 1, 1};
  double send = 0;
  bool json = false;
};

// Chunks are equal parts of a stage: each takes its share of the stage's times.
schedule::Costs costs_of(const ScheduleOptions& o, int chunks) {
  constexpr double kMost = 1e15;  // sums over all tasks stay precise enough to order them
  const auto is_time = [](double time) { return time >= 0 && time <= kMost; };  // false for NaN
  if (o.times.size() != 3 || !std::ranges::all_of(o.times, is_time))
    user_error(
        "--times needs three numbers from 0 to {:g}: forward, input gradient, weight gradient of a stage, such as "
        "1000,1050,900. It has {}.",
        kMost, fmt::join(o.times, ","));
  if (!is_time(o.send)) user_error("--send needs a number from 0 to {1:g}. It has {0}.", o.send, kMost);
  return {.at = {{Seconds{o.times[0] / chunks}, Seconds{o.times[1] / chunks}, Seconds{o.times[2] / chunks}}},
          .send = Seconds{o.send}};
}

// The text of a file or a pipe.
std::string text_of(const std::string& path) {
  const std::optional<std::string> text = file_text(path);
  if (!text) user_error("cannot read {}: {}. Check the path.", path, std::generic_category().message(errno));
  return *text;
}

schedule::Schedule schedule_of(const ScheduleOptions& o) {
  if (!o.file.empty()) return config::schedule_from_json(text_of(o.file), o.file);
  if (o.kind == "interleaved") return schedule::interleaved(o.stages, o.micro_batches, o.chunks);
  if (o.kind == "zero-bubble") {
    const int cap = o.cap > 0 ? o.cap : o.stages;
    return schedule::zero_bubble(o.stages, o.micro_batches, cap, {costs_of(o, 1)});
  }
  if (o.kind == "zb-v") {
    const int cap = o.cap > 0 ? o.cap : 2 * o.stages;
    if (cap < 2) user_error("--cap {}: zb-v holds one activation for each of its two chunks. Use 2 or more.", cap);
    return schedule::zero_bubble_v(o.stages, o.micro_batches, cap, {costs_of(o, 2)});
  }
  if (o.kind == "zeropp") {
    const int every = o.every > 0 ? o.every : 2 * o.stages - 1;
    return schedule::zeropp(o.stages, o.micro_batches, o.chunks, every, costs_of(o, o.chunks));
  }
  if (o.kind == "gpipe") return schedule::gpipe(o.stages, o.micro_batches);
  return schedule::one_f_one_b(o.stages, o.micro_batches);
}

bool has_chunks(const std::string& kind) { return kind == "interleaved" || kind == "zeropp"; }
bool searches(const std::string& kind) { return kind == "zero-bubble" || kind == "zb-v" || kind == "zeropp"; }

// What is made in seconds: a few hundred bytes for each forward pass, and where candidates are compared, a look at all
// stages for each pass of each candidate.
void check_size(const ScheduleOptions& o) {
  const i64 passes = i64{o.stages} * o.micro_batches * (has_chunks(o.kind) ? o.chunks : o.kind == "zb-v" ? 2 : 1);
  constexpr i64 kMostPasses = 1 << 22, kMostLooks = 1 << 25;
  if (const i64 most = searches(o.kind) ? std::min(kMostPasses, kMostLooks / o.stages) : kMostPasses; passes > most)
    user_error(
        "--stages {} and --micro-batches {} have {} forward passes, above {}, the limit of --kind {}{}. Use fewer.",
        o.stages, o.micro_batches, passes, most, o.kind,
        searches(o.kind) ? fmt::format(" with {} stages", o.stages) : "");
}

// Refuses options that do nothing.
void check_used(const ScheduleOptions& o, const CLI::App& command) {
  const auto refuse = [&](const char* option, const std::string& why) {
    if (command.count(option) > 0) user_error("{} has no effect: {}, or leave it out.", option, why);
  };
  if (!o.file.empty()) {
    for (const char* option : {"--kind", "--stages", "--micro-batches", "--chunks", "--every", "--cap"})
      refuse(option, "--file has the whole schedule. Leave out --file");
    return;
  }
  const auto unused = [&](const char* others) {
    return fmt::format("--kind {} doesn't use it. Choose {}", o.kind, others);
  };
  if (!has_chunks(o.kind)) refuse("--chunks", unused("interleaved or zeropp"));
  if (o.kind != "zeropp") refuse("--every", unused("zeropp"));
  if (o.kind != "zero-bubble" && o.kind != "zb-v") refuse("--cap", unused("zero-bubble or zb-v"));
}

int run_schedule(const ScheduleOptions& o, const CLI::App& command) {
  check_used(o, command);
  if (o.file.empty()) check_size(o);
  const schedule::Schedule schedule = schedule_of(o);
  const schedule::Timing timing = schedule::replay(schedule, costs_of(o, schedule.chunks));
  const std::vector<int> held = schedule::peak_in_flight(schedule.order);
  fmt::print("{}", config::to_json(schedule));
  std::vector<double> idle;
  for (const Seconds& stage : timing.idle) idle.push_back(stage.count);
  if (o.json)
    fmt::print("{}\n", nlohmann::json{{"makespan", timing.makespan.count},
                                      {"idle", idle},
                                      {"worst_idle", timing.worst_idle().count},
                                      {"activations_held", held},
                                      {"chunks", schedule.chunks}}
                           .dump());
  else
    fmt::print(stderr, "step {:g}, idle {:g} on the worst stage; micro-batch activations held per stage: {}\n",
               timing.makespan.count, timing.worst_idle().count, fmt::join(held, " "));
  return 0;
}

}  // namespace

void add_schedule(CLI::App& app, Action& action) {
  auto options = std::make_shared<ScheduleOptions>();
  CLI::App* command = app.add_subcommand(
      "schedule", "Prints a pipeline schedule as JSON, with its idle time and the activations it holds; nothing runs");
  command->add_option("--kind", options->kind, "gpipe, 1f1b, interleaved, zero-bubble, zb-v or zeropp")
      ->capture_default_str()
      ->check(CLI::IsMember({"gpipe", "1f1b", "interleaved", "zero-bubble", "zb-v", "zeropp"}));
  command->add_option("--stages", options->stages, "Pipeline stages")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command->add_option("--micro-batches", options->micro_batches, "Micro-batches per step")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  command->add_option("--chunks", options->chunks, "interleaved, zeropp: model chunks per stage")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command
      ->add_option("--every", options->every,
                   "zeropp: micro-batches of a block (default: 2 * stages - 1, with which equal stages never idle)")
      ->check(at_least(1));
  command
      ->add_option(
          "--cap", options->cap,
          "zero-bubble, zb-v: maximum of activations held per stage, one per chunk and micro-batch (default: as 1F1B)")
      ->check(at_least(1));
  command
      ->add_option("--times", options->times,
                   "Times of forward, input gradient and weight gradient per stage, in any unit")
      ->delimiter(',')
      ->capture_default_str()
      ->type_name("F,B,W");
  command->add_option("--send", options->send, "Time of a transfer between stages, in the same unit")
      ->capture_default_str();
  command->add_option("--file", options->file, "Replays this schedule instead of making one")
      ->type_name("SCHEDULE.json");
  command->add_flag("--json", options->json, "One JSON object on the last line of standard output");
  command->callback(
      [options, command, &action] { action.run = [options, command] { return run_schedule(*options, *command); }; });
}

}  // namespace switchyard::apps
