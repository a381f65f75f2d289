#include "train/profile.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/count_of.hpp"
#include "base/units.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "config/emulated_cluster.hpp"
#include "files/disk.hpp"

namespace switchyard::apps {
namespace {

constexpr double kSteady = 0.1;  // speed changes up to here are steady

struct ProfileOptions {
  train::ProfileSettings settings;
  std::vector<std::string> precisions{"fp32"};
  std::string out = "profile.json", emulated;
  bool cuda = false;
};

std::string summary(const config::Profile& profile) {
  const cluster::Hardware& h = profile.hardware;
  std::string text = fmt::format("{} on {}, {} each, {}\n", count_of(h.ranks(), "rank"), count_of(h.hosts, "host"),
                                 count_of(profile.machine.threads, "thread"), h.device.name);
  for (const auto& [type, rates] : h.device.rates)
    text += fmt::format("  {}: products {:.1f} GFLOP/s, memory {:.1f} GB/s, {} operators\n",
                        name_of(Precision{.compute = type, .state = type}), rates.matmul.count / 1e9,
                        rates.memory.count / 1e9, h.device.operators.at(type).size());
  const auto add = [&](const char* name, const cluster::LinkClass& link) {
    const double slowdown = link.overlap_slowdown > 0 ? link.overlap_slowdown : h.overlap_slowdown;
    text += fmt::format("  {}: {} latency, {:.3g} GB/s, sums at {:.0f}%, x{:.2f} beside computing{}\n", name,
                        format_duration(link.latency), link.bandwidth.count / 1e9, 100 * link.sum_share, slowdown,
                        link.shared_by > 1 ? fmt::format(", shared by {} ranks", link.shared_by) : "");
  };
  if (h.devices_per_host > 1) add("within a host", h.intra_host);  // a rank alone on its host measures no such link
  if (h.inter_host) add("between hosts", *h.inter_host);
  if (profile.machine.speed_change > kSteady)
    text += fmt::format(
        "  the speed changed by {:.0f}% meanwhile: predictions may be as far off; measure again when the "
        "machine is idle\n",
        100 * profile.machine.speed_change);
  return text;
}

int run_profile(const ProfileOptions& options) {
  train::ProfileSettings settings = options.settings;
  settings.precisions.clear();
  for (const std::string& name : options.precisions) settings.precisions.push_back(precision_from(name));
  if (options.cuda) settings.device = cluster::DeviceType::cuda;
  if (!options.emulated.empty()) settings.emulated = config::emulated_hardware(options.emulated);
  const comm::Launch launch = comm::launch_from_environment();
  if (launch.rank == 0) check_output("--out", options.out);
  const config::Profile profile = train::profile(settings, launch);
  if (launch.rank != 0) return 0;
  files::write_text(options.out, config::to_json(profile));
  fmt::print("{}written to {}\n", summary(profile), options.out);
  return 0;
}

}  // namespace

void add_profile(CLI::App& app, Action& action) {
  auto options = std::make_shared<ProfileOptions>();
  CLI::App* command = app.add_subcommand(
      "profile",
      "Measures this machine, or under mpirun this cluster, and writes a cluster file for simulate, plan and train");
  command
      ->add_option("--ranks", options->settings.ranks,
                   "Ranks, as threads of this process (default: one per core, or with --cuda per device)")
      ->check(at_least(1));
  command
      ->add_option("--threads", options->settings.threads, "Threads per rank (default: the cores divided by the ranks)")
      ->check(at_least(1));
  command->add_option("--precision", options->precisions, "Precisions to measure: fp32, fp64 or bf16 (default: fp32)")
      ->type_name("TYPE...");
  command
      ->add_option("--head-dim", options->settings.head_dim,
                   "Features of the heads that attention is to be timed with, even (default: 64 and 16)")
      ->check([](const std::string& text) {
        return CLI::Range(2, 1024)(text).empty() && std::stol(text) % 2 == 0
                   ? std::string()
                   : fmt::format("Value {} is no even number from 2 to 1024", text);
      })
      ->type_name("N");
  command->add_flag("--quick", options->settings.quick,
                    "Measures the smallest shapes only: a coarse profile, in seconds");
  command->add_flag("--cuda", options->cuda, "Measures the CUDA device");
  command
      ->add_option(
          "--emulate", options->emulated,
          "Measures the cores of this machine as devices of this cluster, by processor time, for train --emulate")
      ->type_name("2x4:200Mbit/s,800Mbit/s,40MiB")
      ->excludes("--ranks")
      ->excludes("--threads")
      ->excludes("--cuda");
  command->add_option("--out", options->out, "File to write, which --cluster of other commands reads")
      ->capture_default_str()
      ->type_name("profile.json");
  command->callback([options, &action] { action.run = [options] { return run_profile(*options); }; });
}

}  // namespace switchyard::apps
