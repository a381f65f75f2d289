#include "planner/plan.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/count_of.hpp"
#include "base/errors.hpp"
#include "base/status_line.hpp"
#include "base/wrapped_text.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "compiler/job_plans.hpp"
#include "config/hardware.hpp"
#include "config/job_keys.hpp"
#include "files/disk.hpp"
#include "first_step.hpp"
#include "job_options.hpp"
#include "open_job.hpp"
#include "plan_job.hpp"
#include "planner/explain.hpp"
#include "report/plan_file.hpp"

namespace switchyard::apps {
namespace {

constexpr int kRunnersUp = 10;

struct PlanOptions {
  JobOptions job;
  std::string cluster, out, sequences;
  std::vector<std::string> degrees;
  int top = 0, steps = 1, most_buckets = 0;
  std::optional<double> seconds;
  bool explain = false, json = false;
};

std::string duration(double seconds) { return format_duration(Seconds{seconds}); }

struct Opened {
  config::Job job;
  bool has_buckets = false;
  cluster::Hardware hardware;
};

// Buckets of the job are kept for comparison. sequences: documents per step; 0: the job's own number.
Opened open(const PlanOptions& options, i64 sequences) {
  config::require_cluster(options.cluster);
  Opened opened;
  JobOptions given = options.job;
  if (sequences > 0) given.sequences = sequences;
  config::Errors errors;
  config::JobDraft draft = draft_of(given, JobKind::planned, errors);
  opened.has_buckets = !leaves_strategies_open(draft, errors);
  const bool sets_smallest = draft.has("compression.smallest");
  if (opened.has_buckets) {
    opened.job = open_job(draft, errors);
  } else {
    const int ranks = config::load_hardware(options.cluster, ranks_of(draft, errors)).ranks();
    opened.job = open_unplanned(std::move(draft), errors, ranks);
  }
  if (sequences > 0 && opened.job.batch.sequences != sequences)
    user_error("--sequences {}: a key that --set gives replaces it. Leave one of them out.", options.sequences);
  opened.hardware = config::load_hardware(options.cluster, opened.job.run.ranks);
  config::resolve_device(opened.job, opened.hardware.device.type);
  if (!opened.has_buckets && !sets_smallest) opened.job = with_break_even(std::move(opened.job), opened.hardware);
  return opened;
}

// Seconds of a search; 0: no limit.
double seconds_for(const PlanOptions& options, const cluster::Hardware& hardware) {
  constexpr int kFew = 64;
  return options.seconds.value_or(hardware.ranks() > kFew ? 60 : 20);
}

// A function that returns the share of `seconds`, from now on, that has passed; with 0 none ever has.
std::function<double()> limit_of(double seconds, const Progress& progress = {}) {
  const auto begin = Clock::now();
  return [begin, seconds, poll = progress.poll] {
    poll();
    return seconds == 0 ? 0 : std::chrono::duration<double>(Clock::now() - begin).count() / seconds;
  };
}

nlohmann::json json_of(const std::vector<config::Bucket>& buckets) {
  nlohmann::json list = nlohmann::json::array();
  for (const config::Bucket& bucket : buckets)
    list.push_back({{"max_length", bucket.max_length},
                    {"strategy", bucket.strategy.name},
                    {"recompute", config::name_of(bucket.strategy.recompute)},
                    {"schedule", config::name_of(bucket.strategy.schedule)},
                    {"micro_batch_tokens", bucket.strategy.micro_batch_tokens},
                    {"full", nlohmann::json::parse(config::to_json(bucket.strategy))}});
  return list;
}

// N, or the ends of LOW..HIGH and the doublings of LOW between them; without either {0}, the job's own number.
std::vector<i64> batch_sizes(const std::string& range) {
  if (range.empty()) return {0};
  i64 low = 0, high = 0;
  const char* end = range.data() + range.size();
  const auto [middle, message] = std::from_chars(range.data(), end, low);
  if (middle == end && message == std::errc() && low >= 1) return {low};
  const bool dots = message == std::errc() && std::string_view(middle, end).starts_with("..");
  if (!dots || std::from_chars(middle + 2, end, high).ptr != end || low < 1 || high < low)
    user_error("--sequences {} is no number of documents a step. Write one, or LOW..HIGH, such as 256..1024.", range);
  if (const std::string fault = config::out_of_range(config::job_key("batch.sequences"), high); !fault.empty())
    user_error("--sequences {}: batch.sequences = {} {}.", range, high, fault);
  std::vector<i64> sizes;
  for (i64 size = low; size<high; size = size> high / 2 ? high : 2 * size) sizes.push_back(size);
  sizes.push_back(high);
  return sizes;
}

// The space of strategies whose only degrees are these and dp; without any the whole space.
planner::SpaceLimits limits_of(const std::vector<std::string>& degrees) {
  planner::SpaceLimits limits;
  if (degrees.empty()) return limits;
  const auto has = [&](const config::DegreeKey& key) { return std::ranges::count(degrees, key.key) > 0; };
  for (const config::DegreeKey& key : config::degree_keys()) {
    if (has(key)) continue;
    if (key.axis)
      std::erase(limits.axes, *key.axis);
    else
      limits.pp = {1};
  }
  return limits;
}

// The plans for one batch size, in the order of their simulated times.
struct Planned {
  Opened opened;
  std::unique_ptr<planner::Planner> planner;
  planner::Found found;
  std::vector<JudgedPlan> plans;
  double limit = 0, seconds = 0;  // limits of the search
  bool single = false;            // only single strategies were searched
  i64 sequences() const { return opened.job.batch.sequences; }
  const JudgedPlan& best() const { return plans.front(); }
  double tokens_per_second() const {
    i64 tokens = 0;
    for (const std::vector<i64>& lengths : planner->request().steps)
      tokens = std::accumulate(lengths.begin(), lengths.end(), tokens);
    return static_cast<double>(tokens) / static_cast<double>(planner->request().steps.size()) / best().seconds;
  }
};

int listed(const PlanOptions& options) { return options.top > 0 ? options.top : options.explain ? kRunnersUp : 1; }

// part: share of the limit.
Planned planned(const PlanOptions& options, i64 sequences, double part, const Progress& progress) {
  Planned result{.opened = open(options, sequences), .planner = nullptr, .found = {}, .plans = {}};
  result.limit = part * seconds_for(options, result.opened.hardware);
  result.single = options.most_buckets == 1;
  progress.print(synthetic_line(result.opened.job));
  const auto search = [&, searches = 0]() mutable {
    const bool all = searches++ % 2 == 0 || result.single;
    progress.now(fmt::format("searching for {}{}{}", all ? "plans" : "single strategies",
                             sequences > 0 ? fmt::format(" with {} documents a step", sequences) : "",
                             result.limit > 0 ? fmt::format(" ({:g} s at most)", result.limit) : ""));
    return limit_of(result.limit, progress);
  };
  const auto start = Clock::now();
  planner::Request request = request_of(result.opened.job, result.opened.hardware, options.steps);
  request.limits = limits_of(options.degrees);
  result.planner = std::make_unique<planner::Planner>(std::move(request));
  Contest contest(result.opened.job, *result.planner, result.opened.has_buckets, options.most_buckets);
  result.found = search_and_simulate(contest, *result.planner, std::max(kJudged, listed(options)),
                                     static_cast<size_t>(listed(options)), options.most_buckets, search,
                                     options.top > 0 ? std::nullopt : std::optional(planner::kStepsOfRunnersUp),
                                     options.top > 0 ? 0 : result.limit);
  result.seconds = seconds_since(start);
  progress.now("simulating the best plans");
  result.plans = contest.judged(static_cast<size_t>(listed(options)));
  return result;
}

// The plans for the batch size with the most tokens per second; the smaller size wins a tie.
Planned best_batch(const PlanOptions& options, const Progress& progress) {
  if (!options.out.empty()) check_output("--out", options.out);
  constexpr double kMostSeconds = 1e6;
  if (options.seconds && !(*options.seconds >= 0 && *options.seconds <= kMostSeconds))  // also rejects NaN
    user_error("--seconds {}: must be a number from 0 to {:g}.", *options.seconds, kMostSeconds);
  const std::vector<i64> sizes = batch_sizes(options.sequences);
  std::optional<Planned> best;
  for (const i64 size : sizes) {
    Planned next = planned(options, size, 1 / static_cast<double>(sizes.size()), progress);
    if (sizes.size() > 1)
      progress.print(fmt::format("{} documents a step: {}, {:.4g} tokens/s\n", size, duration(next.best().seconds),
                                 next.tokens_per_second()));
    if (!best || next.tokens_per_second() > best->tokens_per_second()) best = std::move(next);
  }
  return std::move(*best);
}

std::string planned_seconds(const JudgedPlan& plan) { return plan.choice ? duration(plan.choice->seconds) : "-"; }

// The quickest plan with a property, if one that fits has it.
template <class Is>
const JudgedPlan* quickest(const Planned& planned, Is is) {
  const auto found = std::ranges::find_if(
      planned.plans, [&](const JudgedPlan& plan) { return plan.remark.empty() && plan.fits && is(plan); });
  return found == planned.plans.end() ? nullptr : &*found;
}

const JudgedPlan* best_single(const Planned& planned) {
  return quickest(planned, [](const JudgedPlan& plan) { return plan.single(); });
}

// Mean over the steps.
double mean_matmul_share(const Planned& planned, const JudgedPlan& plan) {
  const std::vector<std::vector<i64>>& steps = planned.planner->request().steps;
  double share = 0;
  for (const std::vector<i64>& lengths : steps)
    share += matmul_share(plan.job, lengths, plan.seconds, planned.opened.hardware);
  return share / static_cast<double>(steps.size());
}

// What to know of the best plan.
std::string verdict(const Planned& planned) {
  const JudgedPlan &best = planned.best(), *single = best_single(planned);
  std::string text =
      step_words(best.seconds, planned.tokens_per_second() * best.seconds, mean_matmul_share(planned, best));
  text += fmt::format(", {}", planner::memory_of(best.peak, planned.planner->memory()));
  if (!best.fits) return "Does NOT fit, nor does any other plan that was found. " + text + " if it did";
  const bool proven = planned.found.proven;
  if (best.single() && planned.single)
    text += "; plans of several strategies were not searched (--buckets 1)";
  else if (best.single() && proven)
    text += "; one strategy is fastest: switching gains nothing";
  else if (best.single())
    text += fmt::format("; no quicker plan of several strategies was found in {:g} s (the limit)", planned.limit);
  else if (single)
    text += fmt::format("; {:.0f}% quicker than the best single strategy{}", 100 * (single->seconds / best.seconds - 1),
                        proven ? "" : " that was found");
  else
    text += "; no single strategy fits";
  if (best.choice) text += fmt::format("; limited by {}", planner::limit_of(planned.planner->account(*best.choice)));
  return text;
}

// The plans that a reader compares, each once: what it is, and the plan.
std::vector<std::pair<std::string, const JudgedPlan*>> compared(const Planned& planned) {
  std::vector<std::pair<std::string, const JudgedPlan*>> rows = {{"chosen", &planned.best()}};
  const auto add = [&](const std::string& what, const JudgedPlan* plan) {
    if (plan && std::ranges::none_of(rows, [&](const auto& row) { return row.second->name == plan->name; }))
      rows.emplace_back(what, plan);
  };
  add("best single strategy", best_single(planned));
  add("the job's own", quickest(planned, [](const JudgedPlan& plan) { return plan.own; }));
  size_t most = 0;
  for (const JudgedPlan& plan : planned.plans) most = std::max(most, plan.job.buckets.size());
  for (size_t buckets = 2; buckets <= most; ++buckets)
    add(fmt::format("best of {} buckets", buckets),
        quickest(planned, [&](const JudgedPlan& plan) { return plan.job.buckets.size() == buckets; }));
  constexpr double kNear = 1.05;
  const JudgedPlan* least = &planned.best();
  for (const JudgedPlan& plan : planned.plans)
    if (plan.remark.empty() && plan.seconds <= kNear * planned.best().seconds && plan.peak < least->peak) least = &plan;
  add("least memory within 5%", least);
  return rows;
}

// "2.9%", "36%": rounded up.
std::string percent_at_most(double share) {
  const double percent = 100 * share;
  return percent < 10 ? fmt::format("{:.1f}%", std::ceil(10 * percent) / 10)
                      : fmt::format("{:.0f}%", std::ceil(percent));
}

// What the search did, and what is known of the best plan in the planner's model.
std::string search_text(const Planned& planned) {
  const planner::Counts& c = planned.found.counts;
  std::string text = fmt::format(
      "{} candidates in {:.2f} s: {} timed, {} excluded ({} by their placement's bound, {} by memory, {} by their own "
      "bound, {} no better than another of their placement)",
      c.candidates, planned.seconds, c.timed, c.pruned(), c.rough, c.memory, c.bound, c.dominated);
  if (c.unexamined > 0) text += fmt::format(", {} not examined", c.unexamined);
  if (planned.found.share < 1)
    text += fmt::format(
        "\nPlans that fill more than {:.0f}% of the memory in the planner's model turned out too large, and don't "
        "count",
        100 * planned.found.share);
  if (planned.found.proven)
    return text + fmt::format(
                      "\nSearched exhaustively; proven optimal in the planner's model: no plan takes less than "
                      "{}\n",
                      duration(planned.found.least));
  return text + fmt::format(
                    "\nNot proven best in the planner's model: at most {} above the optimum (limit of {:g} s "
                    "reached; --seconds raises it)\n",
                    percent_at_most(planned.found.gap()), planned.limit);
}

void print(const Planned& planned, int top) {
  const cluster::Hardware& hardware = planned.opened.hardware;
  fmt::print("{}\n{}: {} of {}\n\n", wrapped(verdict(planned)), hardware.name, count_of(hardware.hosts, "host"),
             count_of(hardware.devices_per_host, "device"));
  constexpr size_t kIndent = 2;
  fmt::print("{:<22} {:>10} {:>6} {:>11}\n", "", "step", "", "memory");
  for (const auto& [what, plan] : compared(planned))
    fmt::print(
        "{:<22} {:>10} {:>6} {:>11}\n{}", what, duration(plan->seconds),
        plan == &planned.best() ? "" : fmt::format("{:+.0f}%", 100 * (plan->seconds / planned.best().seconds - 1)),
        format_bytes(Bytes{plan->peak}), part_per_line(plan->name, kIndent));
  fmt::print("\n");
  if (top > 1) fmt::print("     simulated    planned\n");
  for (size_t i = 0; top > 1 && i < std::min(planned.plans.size(), static_cast<size_t>(top)); ++i) {
    const JudgedPlan& plan = planned.plans[i];
    if (plan.remark.empty())
      fmt::print("{:>3} {:>10} {:>10}{}\n{}", i + 1, duration(plan.seconds), planned_seconds(plan),
                 plan.fits ? "" : "  (exceeds the memory budget)", part_per_line(plan.name, 2 * kIndent));
  }
  for (const JudgedPlan& plan : planned.plans)
    if (plan.own && !plan.remark.empty())
      fmt::print("{}\n", wrapped("The job's own buckets: " + plan.remark));
    else if (plan.own && (top > 1 || !plan.fits))
      fmt::print("The job's own buckets: {} simulated, {} planned{}\n{}", duration(plan.seconds), planned_seconds(plan),
                 plan.fits ? "" : "; they exceed the memory budget", part_per_line(plan.name, kIndent));
  fmt::print("{}", checkpoint_copy_line(planned.best().checkpoint_copy));
  fmt::print("{}", wrapped(search_text(planned)));
}

// The job for another request, which may have other hardware and documents.
config::Job job_for(config::Job job, const planner::Request& request) {
  job.run.ranks = request.hardware.ranks();
  job.batch.context = request.context;
  job.run.memory_budget = {request.memory};
  return job;
}

// The planner takes no codecs but those that the job allows; what its plan would gain by others is the user's to weigh.
std::string with_codecs(const Planned& planned, const JudgedPlan& plan) {
  const planner::Request& request = planned.planner->request();
  config::Job job = plan.job;
  std::string others;
  const auto add = [&](std::string_view name, codecs::Codec config::Compression::*role, codecs::Codec codec) {
    if (request.allowed.*role != codecs::Codec::none) return;
    others += fmt::format("{}{} {}", others.empty() ? "" : ", ", name, name_of(codec));
    for (config::Bucket& bucket : job.buckets) bucket.strategy.compression.*role = codec;
  };
  add("gradients", &config::Compression::gradients, codecs::Codec::int8);
  add("pipeline", &config::Compression::pipeline, codecs::Codec::bf16);
  add("activations", &config::Compression::activations, codecs::Codec::bf16);
  add("ulysses", &config::Compression::ulysses, codecs::Codec::bf16);
  add("keys", &config::Compression::keys, codecs::Codec::bf16);
  add("gathers", &config::Compression::gathers, codecs::Codec::bf16);
  if (others.empty()) return "";
  const double seconds = simulated("", job, request.hardware, request.steps).seconds;
  return wrapped(fmt::format("  codecs that the job doesn't allow ({}): {} ({:+.1f}%), the same plan\n", others,
                             duration(seconds), 100 * (seconds / plan.seconds - 1)),
                 4);
}

std::string explained(const Planned& planned, double limit, int top) {
  std::vector<planner::Judged> plans;
  const JudgedPlan* best = nullptr;  // best of those that the planner's model can time
  for (size_t i = 0; i < planned.plans.size(); ++i) {
    const JudgedPlan& plan = planned.plans[i];
    if (!plan.choice || static_cast<int>(plans.size()) >= top) continue;
    if (!best) best = &plan;
    plans.push_back({*plan.choice, plan.seconds, plan.peak, i + 1});
  }
  check(best != nullptr, "none of {} plans can be explained", planned.plans.size());
  const std::string name = planned.planner->to_string(*best->choice);
  const auto simulate = [&](const planner::Planner& other, const std::vector<planner::Choice>& choices,
                            size_t& quickest) {
    const planner::Request& request = other.request();
    std::optional<JudgedPlan> found;
    const auto compare = [&](size_t i, const config::Job& job) {
      JudgedPlan plan =
          simulated("", within_memory(job_for(job, request), request.hardware), request.hardware, request.steps);
      if (found && std::pair(!found->fits, found->seconds) <= std::pair(!plan.fits, plan.seconds)) return;
      found = std::move(plan);
      quickest = i;
    };
    for (size_t i = 0; i < choices.size(); ++i) {
      compare(i, planned_job(planned.opened.job, other, choices[i]));
      // With what the planner's model doesn't know: codecs, variants, buckets to choose from.
      if (other.to_string(choices[i]) == name) compare(i, best->job);
    }
    return found->seconds;
  };
  const std::string about = best == &planned.best()
                                ? ""
                                : wrapped(
                                      "\nThe job's own buckets are quickest, but the planner's model can't time them. "
                                      "This is about the quickest plan that it can time:\n");
  return about +
         planner::explain(*planned.planner, plans, planned.found.counts, {[&] { return limit_of(limit); }, simulate}) +
         with_codecs(planned, *best);
}

void write_out(const PlanOptions& options, const Planned& planned) {
  if (options.out.empty()) return;
  const JudgedPlan& best = planned.best();
  files::write_text(options.out, config::to_toml(best.job));
  if (!std::filesystem::is_regular_file(options.out)) return;  // nothing lies beside a pipe
  files::write_text(report::plan_path_of(options.out), report::plan_text(candidates_of(planned.plans, best), best.job));
}

nlohmann::json json_of(const Planned& planned) {
  const JudgedPlan& best = planned.best();
  return {{"chosen", json_of(best.job.buckets)},
          {"order", compiler::phase_order(best.job)},
          {"step_seconds", best.seconds},
          {"planned_seconds", best.choice ? nlohmann::json(best.choice->seconds) : nlohmann::json()},
          {"own", best.own},
          {"fits", best.fits},
          {"sequences", planned.sequences()},
          {"tokens_per_second", planned.tokens_per_second()},
          {"proven", planned.found.proven},
          {"gap", planned.found.gap()},
          {"candidates", planned.found.counts.candidates},
          {"pruned", planned.found.counts.pruned()},
          {"unexamined", planned.found.counts.unexamined},
          {"seconds", planned.seconds}};
}

nlohmann::json figures(const PlanOptions& options, const Progress& progress) {
  const Planned planned = best_batch(options, progress);
  write_out(options, planned);
  return json_of(planned);
}

int run_plan(const PlanOptions& options) {
  std::optional<StatusLine> status(std::in_place, "plan", "reading the job", lines_of(options.json));
  const Planned planned = best_batch(options, shown_on(*status));
  status.reset();
  const int top = listed(options);
  print(planned, top);
  if (options.explain) {
    status.emplace("plan", "planning for other memory, networks and devices", lines_of(options.json));
    fmt::print("{}", explained(planned, seconds_for(options, planned.opened.hardware), top));
    status.reset();
  }
  write_out(options, planned);
  if (options.json) fmt::print("{}\n", json_of(planned).dump());
  return planned.best().fits ? 0 : kDoesNotFit;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command =
      app.add_subcommand("plan",
                         "Chooses buckets and strategies for a job on a cluster; the job's own buckets, if it "
                         "has any, are compared with the plans");
  add_job_options(*command, options->job, JobKind::planned);
  add_cluster_option(*command, options->cluster);
  command->add_option("--top", options->top, "Number of plans to list (default: 1, with --explain 10)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  command->add_option("--buckets", options->most_buckets, "Maximum number of buckets; 1 finds the best single strategy")
      ->check(at_least(1));
  command->add_option("--steps", options->steps, "Number of steps whose documents the plan is made for")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command
      ->add_option(
          "--sequences", options->sequences,
          "Documents a step (default without a job file: 512). A range plans for both ends and the doublings between, "
          "and takes the number with the most tokens per second")
      ->type_name("N|LOW..HIGH");
  std::vector<std::string> keys;
  for (const config::DegreeKey& key : config::degree_keys()) keys.emplace_back(key.key);
  command
      ->add_option(
          "--degrees", options->degrees,
          "Degrees that strategies may have besides dp, separated by commas, such as tp,pp (default: all). The "
          "job's own buckets aren't limited by this")
      ->delimiter(',')
      ->check(CLI::IsMember(keys))
      ->type_name("NAME,...");
  command->add_option(
      "--seconds", options->seconds,
      "Time limit of the search for the best plan, which then returns the best so far, and of simulating "
      "plans after it, without --top; 0 is no limit (default: 20, and 60 for more than 64 devices)");
  command->add_flag("--explain", options->explain,
                    "Prints what the plans cost and why, what limits the best one, and what would change it");
  command
      ->add_option("--out", options->out,
                   "Writes the job with the best plan's buckets, and planned.plan.json, which reports of this run "
                   "use to list the compared plans")
      ->type_name("planned.toml");
  command->add_flag("--json", options->json, "One JSON object on the last line of standard output");
  command->callback([options, &action] {
    action = {.run = [options] { return run_plan(*options); },
              .figures = [options](const Progress& progress) { return figures(*options, progress); }};
  });
}

}  // namespace switchyard::apps
