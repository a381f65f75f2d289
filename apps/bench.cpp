#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "comm/measure.hpp"
#include "train/bench_step.hpp"

namespace switchyard::apps {
namespace {

void add_step(CLI::App& bench, Action& action) {
  struct Options {
    train::BenchStepSettings settings;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  auto& s = options->settings;
  s.model.hidden_size = 512;
  s.model.layers = 8;
  s.model.heads = 8;
  s.model.kv_heads = 4;
  s.model.ffn_size = 1408;
  s.model.vocab_size = 8192;
  CLI::App* step = bench.add_subcommand("step", "Tokens per second of a whole training step of a LLaMA on made-up tokens");
  step->add_option("--hidden", s.model.hidden_size)->capture_default_str();
  step->add_option("--layers", s.model.layers)->capture_default_str();
  step->add_option("--heads", s.model.heads)->capture_default_str();
  step->add_option("--kv-heads", s.model.kv_heads)->capture_default_str();
  step->add_option("--ffn", s.model.ffn_size)->capture_default_str();
  step->add_option("--vocab", s.model.vocab_size)->capture_default_str();
  step->add_option("--seq", s.seq, "Tokens of a document")->capture_default_str();
  step->add_option("--batch", s.batch, "Documents of a step")->capture_default_str();
  step->add_option("--ranks", s.ranks)->capture_default_str();
  step->add_option("--threads", s.threads, "Threads of the whole run, shared by the ranks")->capture_default_str();
  step->add_option("--steps", s.steps)->capture_default_str();
  step->add_option("--strategy", s.strategy, "dp,tp,pp")->capture_default_str();
  step->add_option("--precision", s.precision, "fp64, fp32 or bf16")->capture_default_str();
  step->add_flag("--json", options->json, "One JSON object on the last line");
  step->callback([options, &action] {
    action = [options] {
      auto& settings = options->settings;
      settings.model.head_dim = settings.model.heads > 0 ? settings.model.hidden_size / settings.model.heads : 0;
      settings.model.max_positions = settings.seq;
      const train::BenchStepResult r = train::bench_step(settings);
      fmt::print("{:.0f} tokens/s, {:.3f} s a step (median after the first), {} parameters, {:.0f} MiB on the fullest rank\n", r.tokens_per_second,
                 r.step_seconds, r.parameters, static_cast<double>(r.peak_bytes) / (1 << 20));
      for (size_t i = 0; i < r.losses.size(); ++i) fmt::print("step {}  loss {:.4f}  {:.3f} s\n", i + 1, r.losses[i], r.seconds[i]);
      if (options->json) {
        const nlohmann::json object = {{"tok_s", r.tokens_per_second}, {"step_seconds", r.step_seconds}, {"peak_bytes", r.peak_bytes},
                                       {"params", r.parameters},       {"loss", r.losses}};
        fmt::print("{}\n", object.dump());
      }
      return 0;
    };
  });
}

void add_comm(CLI::App& bench, Action& action) {
  auto ranks = std::make_shared<int>(2);
  CLI::App* comm = bench.add_subcommand("comm", "All-reduce of the thread fabric against the memory-copy bound");
  comm->add_option("--ranks", *ranks)->capture_default_str()->check(CLI::Range(2, 64));
  comm->callback([ranks, &action] {
    action = [ranks] {
      const std::vector<i64> sizes = {1 << 20, 16 << 20, 64 << 20};
      fmt::print("{}", comm::table(comm::measure_all_reduce(sizes, *ranks, 7)));
      return 0;
    };
  });
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* bench = app.add_subcommand("bench", "Measures this machine");
  bench->require_subcommand(1);
  add_step(*bench, action);
  add_comm(*bench, action);
}

}  // namespace switchyard::apps
