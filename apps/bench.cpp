#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "comm/measure.hpp"
#include "commands.hpp"
#include "train/bench_kernels.hpp"
#include "train/bench_step.hpp"
#include "train/bench_switch.hpp"

namespace switchyard::apps {
namespace {

template <class Settings>
struct Options {
  Settings settings;
  std::string lengths{};
  bool cuda = false, json = false;
};

// Options for the sizes of a LLaMA model.
void add_model(CLI::App& command, config::ModelConfig& model, const config::ModelConfig& defaults) {
  model = defaults;
  command.add_option("--hidden", model.hidden_size, "Hidden size")->capture_default_str();
  command.add_option("--layers", model.layers, "Transformer layers")->capture_default_str();
  command.add_option("--heads", model.heads, "Query heads")->capture_default_str();
  command.add_option("--kv-heads", model.kv_heads, "Key/value heads")->capture_default_str();
  command.add_option("--ffn", model.ffn_size, "Feed-forward size")->capture_default_str();
  command.add_option("--vocab", model.vocab_size, "Vocabulary size")->capture_default_str();
}

config::ModelConfig llama(i64 hidden, i64 heads, i64 kv_heads, i64 ffn) {
  config::ModelConfig model;
  model.hidden_size = hidden;
  model.layers = 8;
  model.heads = heads;
  model.kv_heads = kv_heads;
  model.ffn_size = ffn;
  model.vocab_size = 8192;
  return model;
}

// The heads share the hidden size; config::validate reports a remainder.
void complete(config::ModelConfig& model, i64 positions) {
  model.head_dim = model.heads > 0 ? model.hidden_size / model.heads : 0;
  model.max_positions = positions;
}

void add_cuda(CLI::App& command, bool& cuda) {
  command.add_flag("--cuda", cuda, "Computes on CUDA devices; ranks share them if there are fewer");
}

cluster::DeviceType device(bool cuda) { return cuda ? cluster::DeviceType::cuda : cluster::DeviceType::cpu; }

void add_json(CLI::App& command, bool& json) { command.add_flag("--json", json, "One JSON object on the last line"); }

void print(const nlohmann::json& object) { fmt::print("{}\n", object.dump()); }

void add_step(CLI::App& bench, Action& action) {
  auto options = std::make_shared<Options<train::BenchStepSettings>>();
  auto& s = options->settings;
  CLI::App* step =
      bench.add_subcommand("step", "Tokens per second of a whole training step of a LLaMA model on synthetic tokens");
  add_model(*step, s.model, llama(512, 8, 4, 1408));
  auto* seq =
      step->add_option("--seq", s.seq, "Tokens per document")->capture_default_str()->check(CLI::Range(1, 1 << 24));
  auto* batch =
      step->add_option("--batch", s.batch, "Documents per step")->capture_default_str()->check(CLI::Range(1, 1 << 20));
  step->add_option("--lengths", options->lengths, "Tokens of each document of a step instead, such as 4096,512x8")
      ->excludes(seq)
      ->excludes(batch);
  step->add_option("--micro-batch", s.micro_batch,
                   "Most tokens of a micro-batch; 0: for equal lengths, as many documents as fill the pipelines once; "
                   "otherwise the longest document")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 30));
  step->add_option("--ranks", s.ranks, "Ranks, as threads of this process")->capture_default_str();
  step->add_option("--threads", s.threads, "Threads of the whole run, divided among the ranks")->capture_default_str();
  step->add_option("--steps", s.steps, "Steps; the first one is a warm-up")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  step->add_option("--strategy", s.strategy, "Strategy, as dp,tp,pp")->capture_default_str();
  step->add_option("--precision", s.precision, "fp64, fp32 or bf16")->capture_default_str();
  add_cuda(*step, options->cuda);
  add_json(*step, options->json);
  step->callback([options, &action] {
    action.run = [options] {
      auto& settings = options->settings;
      settings.device = device(options->cuda);
      if (!options->lengths.empty()) settings.lengths = train::lengths_of(options->lengths);
      complete(settings.model, settings.lengths.empty() ? settings.seq : std::ranges::max(settings.lengths));
      const train::BenchStepResult r = train::bench_step(settings);
      fmt::print(
          "{:.0f} tokens/s, {:.3f} s per step (median, without the first), {:.0f}% of the peak of products, {} "
          "parameters, {:.0f} MiB on the {} with the highest peak\n",
          r.tokens_per_second, r.step_seconds, 100 * r.matmul_share, r.parameters,
          static_cast<double>(r.peak_bytes) / (1 << 20), options->cuda ? "device" : "rank");
      for (size_t i = 0; i < r.losses.size(); ++i)
        fmt::print("step {}  loss {:.4f}  {:.3f} s\n", i + 1, r.losses[i], r.seconds[i]);
      if (options->json)
        print({{"tok_s", r.tokens_per_second},
               {"step_seconds", r.step_seconds},
               {"seconds", r.seconds},
               {"matmul_share", r.matmul_share},
               {"peak_bytes", r.peak_bytes},
               {"params", r.parameters},
               {"loss", r.losses}});
      return 0;
    };
  });
}

void add_switch(CLI::App& bench, Action& action) {
  auto options = std::make_shared<Options<train::BenchSwitchSettings>>();
  auto& s = options->settings;
  CLI::App* command = bench.add_subcommand(
      "switch", "Time of a hot switch on the thread fabric, compared with a memory copy of the same bytes");
  add_model(*command, s.model, llama(1024, 16, 8, 2816));
  command->add_option("--ranks", s.ranks, "Ranks, as threads of this process")->capture_default_str();
  command->add_option("--from", s.from, "Strategy before, as dp,tp,pp")->capture_default_str();
  command->add_option("--to", s.to, "Strategy after, as dp,tp,pp")->capture_default_str();
  command->add_option("--precision", s.precision, "fp64, fp32 or bf16")->capture_default_str();
  command->add_option("--repetitions", s.repetitions, "Switches and copies to measure, alternating")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  add_cuda(*command, options->cuda);
  add_json(*command, options->json);
  command->callback([options, &action] {
    action.run = [options] {
      auto& settings = options->settings;
      settings.device = device(options->cuda);
      complete(settings.model, 1);
      const train::BenchSwitchResult r = train::bench_switch(settings);
      fmt::print("{} -> {}: {} moved between ranks, {} copied inside them\n", settings.from, settings.to,
                 format_bytes(Bytes{r.moved_bytes}), format_bytes(Bytes{r.copied_bytes}));
      fmt::print("{} per switch, {:.2f} GB/s; a copy of the same bytes takes {}: {:.0f}% of the bound\n",
                 format_duration(Seconds{r.switch_seconds}), r.bytes_per_second() / 1e9,
                 format_duration(Seconds{r.copy_seconds}), 100 * r.share());
      if (options->json)
        print({{"moved_bytes", r.moved_bytes},
               {"copied_bytes", r.copied_bytes},
               {"switch_seconds", r.switch_seconds},
               {"copy_seconds", r.copy_seconds},
               {"bytes_per_second", r.bytes_per_second()},
               {"share_of_bound", r.share()}});
      return 0;
    };
  });
}

void add_kernels(CLI::App& bench, Action& action) {
  auto options = std::make_shared<Options<train::BenchKernelsSettings>>();
  auto& s = options->settings;
  CLI::App* command = bench.add_subcommand(
      "kernels", "Speed of each kernel at the shapes of a training step, and of attention over packed documents");
  add_model(*command, s.model, llama(512, 8, 4, 1408));
  command->add_option("--tokens", s.tokens, "Tokens per micro-batch")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--seq", s.seq, "Tokens per document")->capture_default_str()->check(CLI::Range(1, 1 << 24));
  command->add_option("--threads", s.threads, "Threads per kernel")->capture_default_str();
  add_json(*command, options->json);
  command->callback([options, &action] {
    action.run = [options] {
      auto& settings = options->settings;
      complete(settings.model, settings.seq);
      const train::BenchKernelsResult r = train::bench_kernels(settings);
      fmt::print("{}", train::table(r));
      if (!options->json) return 0;
      nlohmann::json kernels = nlohmann::json::array(), packed = nlohmann::json::array();
      for (const train::KernelFigure& f : r.kernels)
        kernels.push_back(
            {{"name", f.name}, {"seconds", f.seconds}, {"flops", f.flops}, {"bytes", f.bytes}, {"share", r.share(f)}});
      for (const train::PackedFigure& f : r.packed)
        packed.push_back({{"documents", f.documents},
                          {"squared lengths", f.squared_lengths},
                          {"forward_seconds", f.forward},
                          {"backward_seconds", f.backward}});
      print({{"matmul_flops", r.matmul_flops}, {"copy_bytes", r.copy_bytes}, {"kernels", kernels}, {"packed", packed}});
      return 0;
    };
  });
}

void add_comm(CLI::App& bench, Action& action) {
  auto options = std::make_shared<Options<int>>(Options<int>{.settings = 2});
  CLI::App* comm =
      bench.add_subcommand("comm", "Time of an all-reduce on the thread fabric, compared with a memory copy");
  comm->add_option("--ranks", options->settings, "Ranks, as threads of this process")
      ->capture_default_str()
      ->check(CLI::Range(2, 64));
  add_json(*comm, options->json);
  comm->callback([options, &action] {
    action.run = [options] {
      const std::vector<i64> sizes = {1 << 20, 16 << 20, 64 << 20};
      const std::vector<comm::CommFigure> figures = comm::measure_all_reduce(sizes, options->settings, 7);
      fmt::print("{}", comm::table(figures));
      nlohmann::json list = nlohmann::json::array();
      for (const comm::CommFigure& f : figures)
        list.push_back({{"bytes", f.bytes},
                        {"all_reduce_seconds", f.all_reduce_seconds},
                        {"copy_seconds", f.copy_seconds},
                        {"bytes_per_second", f.bytes_per_second()},
                        {"share_of_bound", f.share()}});
      if (options->json) print({{"ranks", options->settings}, {"all_reduce", list}});
      return 0;
    };
  });
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* bench = app.add_subcommand("bench", "Measures the speed of this machine");
  bench->require_subcommand(1);
  add_step(*bench, action);
  add_switch(*bench, action);
  add_comm(*bench, action);
  add_kernels(*bench, action);
}

}  // namespace switchyard::apps
