#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/count_of.hpp"
#include "base/status_line.hpp"
#include "base/units.hpp"
#include "commands.hpp"
#include "compiler/job_plans.hpp"
#include "compiler/switch_figures.hpp"
#include "config/hardware.hpp"
#include "cost/rounds.hpp"
#include "job_options.hpp"
#include "models/build.hpp"
#include "plan_job.hpp"

namespace switchyard::apps {
namespace {

struct SwitchPlanOptions {
  JobOptions job;
  std::string cluster, from, to, planner = "relay", home = "none", precision;  // precision: empty for the job's
  bool json = false;
};

// The number that the larger strategy needs, where the job gives no number.
int planned_ranks(const SwitchPlanOptions& o, std::optional<int> given) {
  if (given) return *given;
  i64 ranks = 1;
  for (const std::string& spec : {o.from, o.to, o.home})
    if (spec != "none") ranks = std::max(ranks, config::ranks_of(config::read_strategy_text(spec).groups));
  return static_cast<int>(std::min<i64>(ranks, std::numeric_limits<int>::max()));
}

// What sends take where the cluster's rates are known.
std::optional<Seconds> time_of(const switching::MovePlan& plan, const cluster::Hardware* hardware,
                               const cluster::Cluster& cluster, i64 element) {
  if (!hardware) return std::nullopt;
  std::vector<std::vector<cost::Message>> rounds;
  for (const switching::UnitMoves& unit : plan.units)
    for (const auto& round : unit.moves.rounds) {
      rounds.emplace_back();
      for (const layout::Msg& m : round) rounds.back().push_back({m.src, m.dst, m.box.elements() * element});
    }
  return cost::rounds_over(*hardware, cluster, rounds);
}

struct PlannedSwitch {
  cluster::Cluster cluster;
  std::string precision;
  compiler::SwitchFigures figures;
  std::optional<Seconds> time;       // where the cluster's rates are known
  double planning = 0, mapping = 0;  // seconds
};

PlannedSwitch planned_switch(const SwitchPlanOptions& o, const Progress& progress) {
  config::Errors errors;
  config::JobDraft draft = draft_of(with_context(o.job), JobKind::switched, errors);
  const int ranks = planned_ranks(o, ranks_of(draft, errors));
  std::optional<cluster::Hardware> hardware;
  if (config::is_cluster_file(o.cluster)) hardware = config::load_hardware(o.cluster, ranks);
  cluster::Cluster cluster = hardware ? hardware->placement() : cluster::from_spec(o.cluster);
  config::Job job = open_unplanned(std::move(draft), errors, ranks);
  if (hardware) config::resolve_device(job, hardware->device.type);
  const config::ModelConfig& model = job.model.config;
  const Precision precision = o.precision.empty() ? compiler::precision_of(job.run) : precision_from(o.precision);
  const auto strategy = [&](const std::string& spec) {
    config::Strategy made = config::strategy_from_spec(spec, cluster.ranks(), model.layers);
    config::validate(made, model, cluster.ranks());
    return made;
  };
  const config::Strategy from = strategy(o.from), to = strategy(o.to);
  std::optional<config::Strategy> home;
  if (o.home != "none") home = strategy(o.home);
  const switching::Planner planner = config::switch_planner_from(o.planner);
  const ir::Graph graph = models::build(model, precision, models::Output::loss);

  progress.now("planning the switch");
  auto start = Clock::now();
  const compiler::SwitchMaps maps = compiler::switch_maps(graph, from, to, home ? &*home : nullptr);
  const double mapping = seconds_since(start);
  progress.poll();
  start = Clock::now();
  const switching::MovePlan plan =
      switching::plan_switch(maps.units, maps.from, maps.compute_copy, maps.to, cluster, planner);
  const double planning = seconds_since(start);
  progress.poll();
  const compiler::SwitchFigures figures = compiler::switch_figures(graph, maps, plan, cluster);
  const std::optional<Seconds> time =
      time_of(plan, hardware ? &*hardware : nullptr, cluster, size_of(graph.precision().compute));
  return {.cluster = std::move(cluster),
          .precision = std::string(name_of(precision)),
          .figures = figures,
          .time = time,
          .planning = planning,
          .mapping = mapping};
}

void print_table(const SwitchPlanOptions& o, const PlannedSwitch& result) {
  const cluster::Cluster& cluster = result.cluster;
  const compiler::SwitchFigures& f = result.figures;
  if (result.time) fmt::print("Switch in {} on {}\n", format_duration(*result.time), o.cluster);
  fmt::print("{} in {}, {}, {}: {} -> {}, planner {}, sources: {}{}\n\n",
             o.job.file.empty() ? o.job.model : o.job.name(), result.precision, count_of(cluster.hosts(), "host"),
             count_of(cluster.ranks(), "rank"), o.from, o.to, o.planner, o.from,
             o.home == "none" ? "" : " and home on " + o.home);
  const auto line = [&](const char* what, i64 bytes) {
    fmt::print("  {:<30} {:>10}  {:>8.2f} layers\n", what, format_bytes({bytes}),
               static_cast<double>(bytes) / static_cast<double>(f.layer_bytes));
  };
  line("between hosts", f.inter_host_bytes);
  line("  lower bound for any plan", f.inter_host_bound_bytes);
  line("  transformer layers only", f.layers_inter_host_bytes);
  line("  these, lower bound", f.layers_inter_host_bound_bytes);
  line("inside hosts", f.intra_host_bytes);
  line("most sent by a rank", f.max_send_bytes);
  line("most received by a rank", f.max_receive_bytes);
  line("one layer's parameters", f.layer_bytes);
  fmt::print("\n  {} messages, planned in {} (layouts of the strategies: {})\n", f.messages,
             format_duration({result.planning}), format_duration({result.mapping}));
  if (!result.time)
    fmt::print("  The time is not known, as {} says nothing of the links: name a cluster, such as h100-80g:{}x{}\n",
               o.cluster, cluster.hosts(), cluster.ranks() / cluster.hosts());
}

nlohmann::json switch_json(const PlannedSwitch& result) {
  const compiler::SwitchFigures& f = result.figures;
  return {{"inter_host_bytes", f.inter_host_bytes},
          {"intra_host_bytes", f.intra_host_bytes},
          {"inter_host_bound_bytes", f.inter_host_bound_bytes},
          {"layers_inter_host_bytes", f.layers_inter_host_bytes},
          {"layers_inter_host_bound_bytes", f.layers_inter_host_bound_bytes},
          {"layer_bytes", f.layer_bytes},
          {"max_send_bytes", f.max_send_bytes},
          {"max_receive_bytes", f.max_receive_bytes},
          {"messages", f.messages},
          {"seconds", result.time ? nlohmann::json(result.time->count) : nlohmann::json()},
          {"planning_seconds", result.planning},
          {"mapping_seconds", result.mapping}};
}

int run_switch_plan(const SwitchPlanOptions& o) {
  std::optional<StatusLine> status(std::in_place, "switch-plan", "building the model", lines_of(o.json));
  const PlannedSwitch result = planned_switch(o, shown_on(*status));
  status.reset();
  print_table(o, result);
  if (o.json) fmt::print("{}\n", switch_json(result).dump());
  return 0;
}

}  // namespace

void add_switch_plan(CLI::App& app, Action& action) {
  auto options = std::make_shared<SwitchPlanOptions>();
  CLI::App* command = app.add_subcommand(
      "switch-plan", "Plans a hot switch between two strategies and prints what it sends; nothing runs");
  add_job_options(*command, options->job, JobKind::switched);
  command
      ->add_option(
          "--cluster", options->cluster,
          "Hosts x devices, e.g. 2x8, or a hostfile; a cluster's name or file, alone or as NAME:2x8, gives the "
          "seconds, too")
      ->required()
      ->type_name("HOSTSxDEVICES|NAME|FILE");
  command->add_option("--from", options->from, "Strategy before")->required()->type_name("DP,TP,PP");
  command->add_option("--to", options->to, "Strategy after")->required()->type_name("DP,TP,PP");
  command->add_option("--planner", options->planner, "How senders are chosen: relay, greedy, first or round-robin")
      ->capture_default_str();
  command->add_option("--home", options->home, "Strategy that home follows, whose copies are further sources; or none")
      ->capture_default_str()
      ->type_name("DP,TP,PP|none");
  command->add_option("--precision", options->precision,
                      "Precision of the parameters: bf16, fp32 or fp64 (default: the job's; without a file bf16)");
  command->add_flag("--json", options->json, "One JSON object on the last line of standard output");
  command->callback([options, &action] {
    action = {
        .run = [options] { return run_switch_plan(*options); },
        .figures = [options](const Progress& progress) { return switch_json(planned_switch(*options, progress)); }};
  });
}

}  // namespace switchyard::apps
