#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string_view>

#include "base/errors.hpp"
#include "commands.hpp"
#include "compiler/job_plans.hpp"
#include "config/hardware.hpp"
#include "open_job.hpp"
#include "plan_job.hpp"
#include "planner/explain.hpp"
#include "planner/plan.hpp"

namespace switchyard::apps {
namespace {

constexpr int kRunnersUp = 10;

struct Options {
  std::string job, cluster, out, sequences;
  std::vector<std::string> sets;
  int top = 0, steps = 1, most_buckets = 0, ranks = 0;
  double seconds = 15;
  bool explain = false, json = false;
};

struct Opened {
  config::Job job;
  bool has_buckets = false;
  cluster::Hardware hardware;
};

// Buckets that the job has are kept for comparison.
Opened open(const Options& options) {
  Opened opened;
  opened.has_buckets = !leaves_strategies_open(options.job, options.sets);
  std::vector<std::string> sets = options.sets;
  if (options.ranks > 0) sets.push_back(fmt::format("run.ranks={}", options.ranks));
  if (opened.has_buckets) {
    opened.job = open_job(options.job, sets);
  } else {
    const int ranks = config::load_hardware(options.cluster, ranks_of(options.job, sets)).ranks();
    opened.job = open_unplanned(options.job, sets, ranks);
  }
  opened.hardware = config::load_hardware(options.cluster, opened.job.run.ranks);
  return opened;
}

// Whether so many seconds have passed since now; 0: never.
std::function<bool()> limit_of(double seconds) {
  if (seconds == 0) return {};
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  return [end] { return std::chrono::steady_clock::now() >= end; };
}

void write(const std::string& path, const config::Job& job) {
  std::ofstream file(path);
  file << config::to_toml(job);
  file.close();
  if (!file) user_error("cannot write {}: {}. Choose another --out.", path, std::strerror(errno));
}

nlohmann::json json_of(const planner::Planner& planner, const planner::Choice& choice) {
  nlohmann::json buckets = nlohmann::json::array();
  for (const config::Bucket& bucket : planner.buckets(choice))
    buckets.push_back({{"max_length", bucket.max_length},
                       {"strategy", bucket.strategy.name},
                       {"recompute", config::name_of(bucket.strategy.recompute)},
                       {"schedule", config::name_of(bucket.strategy.schedule)},
                       {"micro_batch_tokens", bucket.strategy.micro_batch_tokens},
                       {"full", nlohmann::json::parse(config::to_json(bucket.strategy))}});
  return buckets;
}

// A search that was stopped may lack the best plan, which another one has found.
void add_runners_up(planner::Found& found, const std::vector<planner::Choice>& more) {
  if (more.front().seconds <= found.best.front().seconds)
    found.best = more;
  else
    found.best.insert(found.best.end(), more.begin(), more.end());
}

void print_proof(const planner::Found& found, double limit) {
  if (!found.proven)
    fmt::print("Not proven best: at most {:.2g}% above the optimum (limit of {:g} s reached; --seconds raises it)\n", 100 * found.gap(), limit);
}

void print(const planner::Planner& planner, const planner::Found& found, double seconds, const cluster::Hardware& hardware) {
  const planner::Counts& c = found.counts;
  fmt::print("{} on {}: {} hosts of {} devices\n", format_duration(Seconds{found.best.front().seconds}), hardware.name, hardware.hosts,
             hardware.devices_per_host);
  for (size_t i = 0; i < found.best.size(); ++i)
    fmt::print("{:>3} {:>10}  {}\n", i + 1, format_duration(Seconds{found.best[i].seconds}), planner.to_string(found.best[i]));
  if (found.best.front().phases.size() == 1) fmt::print("One strategy for all: in this model no switch pays.\n");
  fmt::print("{} candidates, {:.2f}% left out by proof in {:.2f} s: {} by their placement's bound, {} by memory, {} by their own bound, {} as "
             "no better than one of their placement; {} timed\n",
             c.candidates, 100.0 * static_cast<double>(c.pruned()) / static_cast<double>(c.candidates), seconds, c.rough, c.memory, c.bound,
             c.dominated, c.timed);
}

// The ends of LOW..HIGH and the doublings of LOW between them; none: as the job has it.
std::vector<i64> batch_sizes(const std::string& range) {
  if (range.empty()) return {0};
  i64 low = 0, high = 0;
  const char* end = range.data() + range.size();
  const auto [middle, fault] = std::from_chars(range.data(), end, low);
  const bool dots = fault == std::errc() && std::string_view(middle, end).starts_with("..");
  if (!dots || std::from_chars(middle + 2, end, high).ptr != end || low < 1 || high < low)
    user_error("--sequences {} is no range of documents a step. Write LOW..HIGH, such as 256..1024.", range);
  std::vector<i64> sizes;
  for (i64 size = low; size < high; size = size > high / 2 ? high : 2 * size) sizes.push_back(size);
  sizes.push_back(high);
  return sizes;
}

// The best plan for a batch of so many documents.
struct Planned {
  Opened opened;
  std::unique_ptr<planner::Planner> planner;
  planner::Found found;
  double limit = 0, seconds = 0;  // of searching
  i64 sequences() const { return opened.job.batch.sequences; }
  double step_seconds() const { return found.best.front().seconds; }
  double tokens_per_second() const {
    i64 tokens = 0;
    for (const std::vector<i64>& lengths : planner->request().steps) tokens = std::accumulate(lengths.begin(), lengths.end(), tokens);
    return static_cast<double>(tokens) / static_cast<double>(planner->request().steps.size()) / step_seconds();
  }
};

Planned planned(Options options, i64 sequences, double limit) {
  if (sequences > 0) options.sets.push_back(fmt::format("batch.sequences={}", sequences));
  Planned result{.opened = open(options), .planner = nullptr, .found = {}, .limit = limit};
  const auto start = std::chrono::steady_clock::now();
  result.planner = std::make_unique<planner::Planner>(request_of(result.opened.job, result.opened.hardware, options.steps));
  result.found = result.planner->plan(1, options.most_buckets, limit_of(limit));
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

// Of the batch sizes the one with most tokens a second; the smaller one of equals.
Planned best_batch(const Options& options) {
  const std::vector<i64> sizes = batch_sizes(options.sequences);
  std::optional<Planned> best;
  for (const i64 size : sizes) {
    Planned next = planned(options, size, options.seconds / static_cast<double>(sizes.size()));
    if (size > 0)
      fmt::print("{} documents a step: {}, {:.4g} tokens/s\n", size, format_duration(Seconds{next.step_seconds()}), next.tokens_per_second());
    if (!best || next.tokens_per_second() > best->tokens_per_second()) best = std::move(next);
  }
  return std::move(*best);
}

int run(const Options& options) {
  Planned best = best_batch(options);
  planner::Found& found = best.found;
  const planner::Planner& planner = *best.planner;
  // Runners-up are searched for by themselves: they leave less to be pruned.
  const int top = options.top > 0 ? options.top : options.explain ? kRunnersUp : 1;
  if (top > 1) add_runners_up(found, planner.plan(top, options.most_buckets, limit_of(options.seconds)).best);
  print(planner, found, best.seconds, best.opened.hardware);
  print_proof(found, best.limit);
  const config::Job& job = best.opened.job;
  if (best.opened.has_buckets && job.run.home == 0)
    if (const auto given = planner.choice(job.buckets, compiler::phase_order(job)))
      fmt::print("The job's own buckets: {}, {}\n", format_duration(Seconds{given->seconds}), planner.to_string(*given));
  if (options.explain) fmt::print("{}", planner::explain(planner, found, [&] { return limit_of(options.seconds); }));
  if (!options.out.empty()) write(options.out, planned_job(job, planner, found.best.front()));
  if (options.json) {
    const nlohmann::json object = {{"chosen", json_of(planner, found.best.front())},
                                   {"order", compiler::phase_order(planned_job(job, planner, found.best.front()))},
                                   {"step_seconds", best.step_seconds()},
                                   {"sequences", best.sequences()},
                                   {"tokens_per_second", best.tokens_per_second()},
                                   {"proven", found.proven},
                                   {"gap", found.gap()},
                                   {"candidates", found.counts.candidates},
                                   {"pruned", found.counts.pruned()},
                                   {"seconds", best.seconds}};
    fmt::print("{}\n", object.dump());
  }
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("plan", "Chooses buckets and strategies for a job on a cluster");
  command->add_option("job", options->job, "Job file; its buckets, if any, are compared")->required()->type_name("JOB.toml");
  command->add_option("--cluster", options->cluster, "Cluster file, or the name of a shipped one")->required()->type_name("FILE|NAME");
  command->add_option("--ranks", options->ranks, "Ranks, where neither job nor cluster file says how many")->check(CLI::PositiveNumber);
  command->add_option("--top", options->top, "So many of the best plans; with --explain 10, else 1")->check(CLI::PositiveNumber);
  command->add_option("--buckets", options->most_buckets, "Most buckets; 1 is the best single strategy")->check(CLI::PositiveNumber);
  command->add_option("--steps", options->steps, "Steps whose documents stand for all")->capture_default_str()->check(CLI::PositiveNumber);
  command->add_option("--sequences", options->sequences, "Documents a step as a range: plans its ends and the doublings between, and takes the one with most tokens a second")->type_name("LOW..HIGH");
  command->add_option("--seconds", options->seconds, "Ends the search after so long with the best plan so far; 0 is no limit")->capture_default_str()->check(CLI::NonNegativeNumber);
  command->add_flag("--explain", options->explain, "What the plans cost and why, what limits the best, and what would change it");
  command->add_option("--out", options->out, "Writes the job with the best plan's buckets")->type_name("planned.toml");
  command->add_option("--set", options->sets, "Overrides a key of the job")->type_name("KEY=VALUE");
  command->add_flag("--json", options->json, "One JSON object on the last line of standard output");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace switchyard::apps
