#include "train/verify.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/count_of.hpp"
#include "command_line.hpp"
#include "commands.hpp"

namespace switchyard::apps {

void add_verify(CLI::App& app, Action& action) {
  struct Options {
    train::VerifySettings settings;
    std::string precision = "fp64";
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("verify", "Runs a model under any strategies and compares with the exact results beside it");
  command
      ->add_option("dir", options->settings.folder,
                   "Folder with config.json, model.safetensors, input.safetensors, expected.safetensors")
      ->required();
  command
      ->add_option("--strategy", options->settings.strategies,
                   "dp,tp,pp; with several, documents are divided by length and every step switches")
      ->delimiter(';')
      ->type_name("DP,TP,PP");
  command->add_option("--ranks", options->settings.ranks, "Number of ranks (default: what the strategies need)")
      ->check(at_least(1));
  command->add_option("--precision", options->precision, "fp64, fp32 or bf16")->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object on the last line of standard output");
  command->callback([options, &action] {
    action.run = [options] {
      options->settings.precision = precision_from(options->precision);
      const train::VerifyResult r = train::verify(options->settings, comm::launch_from_environment());
      if (!r.first_rank) return 0;  // rank 0 has the result
      fmt::print("{}, {}: {}\n", count_of(r.ranks, "rank"), options->precision, r.ok ? "ok" : "NOT EQUAL");
      fmt::print(
          "  logits           {:.3g}  of the largest logit\n"
          "  loss             {:.3g}  relative\n"
          "  gradient         {:.3g}  of the global norm\n",
          r.logits_max_error, r.loss_error, r.gradient_max_error);
      fmt::print("  AdamW losses     {:.3g}  relative, five steps\n  AdamW parameters {:.3g}\n", r.adamw_loss_max_error,
                 r.adamw_parameter_max_error);
      if (options->json) {
        const nlohmann::json object = {{"ok", r.ok},
                                       {"ranks", r.ranks},
                                       {"logits_max_error", r.logits_max_error},
                                       {"loss_error", r.loss_error},
                                       {"gradient_max_error", r.gradient_max_error},
                                       {"adamw_loss_max_error", r.adamw_loss_max_error},
                                       {"adamw_parameter_max_error", r.adamw_parameter_max_error}};
        fmt::print("{}\n", object.dump());
      }
      return r.ok ? 0 : 1;
    };
  });
}

}  // namespace switchyard::apps
