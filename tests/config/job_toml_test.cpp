#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/job_keys.hpp"
#include "job_text.hpp"

namespace switchyard::config {
namespace {

using testing::HasSubstr;
using testing::Not;

void expect_round_trip(const Job& job) {
  const std::string text = to_toml(job);
  EXPECT_EQ(job_from_toml(text, "resolved.toml"), job) << text;
  EXPECT_EQ(to_toml(job_from_toml(text, "resolved.toml")), text);
}

TEST(JobToml, a_resolved_job_reads_back_equal) {
  expect_round_trip(good());
  expect_round_trip(
      good({"data.path=a \"quoted\" 'path' \\ ünï", "run.memory_budget=1234567 B", "fabric.timeout=1.25 ms",
            "optimizer.lr=1.1e-7", "run.out=runs/x", "model.rope_scaling.factor=8", "parallel.recompute=selective",
            "run.prefetch=false", "run.order=[1, 0]"}));
}

TEST(JobToml, sources_are_kept) {
  expect_round_trip(good({"data.source.0.path=a", "data.source.0.weight=0.1", "data.source.1.path=b \"c\"",
                          "data.source.1.name=x y", "data.long_documents=clip"}));
}

TEST(JobToml, presets_are_written_out) {
  const Job job = job_from_toml(
      "model.preset = \"7b\"\nbatch = { sequences = 512, context = 16384 }\nrun.steps = 1\nparallel.preset = "
      "\"hotspa/7b-16gpu-github\"\n",
      "job.toml");
  expect_round_trip(job);
  EXPECT_THAT(to_toml(job), Not(HasSubstr("preset")));
}

TEST(JobToml, strategies_of_any_shape_are_kept) {
  Strategy strategy = strategy_from_spec("1,2,2", 4, 4);
  strategy.name = "odd '''name\"\"\"";
  strategy.groups[0].stages[0].end_layer = strategy.groups[0].stages[1].first_layer = 3;
  strategy.splits = {{"*.down_proj.weight", {{1, 2}}}};
  expect_round_trip(good({"bucket.1.strategy=" + to_json(strategy)}));
  expect_round_trip(good({"bucket.1.strategy={name = \"a \\\"b\\\"\", dp = 2, tp = 2, schedule = \"gpipe\"}"}));
  const Job groups = good({"bucket.1.strategy=dp=2,recompute=full + pp=2,inside=pipeline + 1,1,1", "run.ranks=5"});
  expect_round_trip(groups);
  EXPECT_THAT(to_toml(groups), HasSubstr("beside = \"pp=2,inside=pipeline + 1,1,1\""));
}

TEST(JobToml, a_job_with_a_model_from_a_folder_keeps_the_path) {
  const Job job = job_from_toml(
      "model.path = \"m\"\nbatch = { tokens = 64, context = 64 }\nrun.steps = 1\nbucket = [{ max_length = 64, strategy "
      "= \"1,1,2\" }]\n",
      "job.toml");
  Job resolved = job;
  resolve_model(resolved, model_preset("3b"));
  EXPECT_EQ(job_from_toml(to_toml(resolved), "resolved.toml"), job);
}

TEST(JobToml, sections_stand_in_reading_order_with_exact_values) {
  const std::string text = to_toml(good({"run.memory_budget=16 GiB"}));
  EXPECT_THAT(text, HasSubstr("seed = 3\n\n[model]\narchitecture = \"llama\"\nhidden_size = 64\n"));
  EXPECT_THAT(text, HasSubstr("memory_budget = \"16 GiB\"\n"));
  EXPECT_THAT(text, HasSubstr("rope_theta = 10000.0\nrope_scaling.type = \"llama3\"\nrope_scaling.factor = 0.0\n"));
  EXPECT_THAT(text, HasSubstr("timeout = \"30 s\"\n"));
  EXPECT_THAT(text, HasSubstr("[[bucket]]\nmax_length = 512\nstrategy = { dp = 4, tp = 1, pp = 1, ring = 1, ulysses = "
                              "1, depth = 1, inner = 1, inside = \"data\", head_layers = 0, name = "
                              "\"4,1,1\", "
                              "recompute = \"gathers\", schedule = "
                              "\"1f1b\", chunks = 1, activation_cap = 0, sequence_parallel = true, micro_batch_tokens "
                              "= 0, micro_batch_sequences = 0, paired = false, "
                              "packing = \"balanced\", ring_degree = \"document\", exchange = \"gather\", "
                              "zero = 1, every = 1, compression.gradients = \"none\", compression.error_feedback = "
                              "\"auto\", compression.pipeline = \"none\", compression.activations = \"none\", "
                              "compression.ulysses = \"none\", compression.keys = \"none\", compression.gathers = "
                              "\"none\", "
                              "compression.switches = \"none\", compression.links = \"all\", "
                              "compression.smallest = \"4 KiB\" }\n"));
  EXPECT_THAT(text, Not(HasSubstr("[batch]\nsequences")));
}

TEST(JobToml, codecs_of_all_strategies_become_those_of_each) {
  const Job job = good({"compression.gradients=int8", "compression.switches=lossless", "compression.smallest=1 MiB",
                        "bucket.0.strategy={dp = 4, compression = {gradients = \"int4\", links = \"hosts\"}}"});
  EXPECT_EQ(job.buckets[0].strategy.compression, (Compression{.gradients = codecs::Codec::int4,
                                                              .switches = codecs::Codec::lossless,
                                                              .links = CompressedLinks::hosts,
                                                              .smallest = {1 << 20}}));
  expect_round_trip(job);
  EXPECT_THAT(to_toml(job), Not(HasSubstr("[compression]")));
  EXPECT_NE(fingerprint(job), fingerprint(good()));
}

TEST(JobToml, secrets_are_not_written) {
  const Job job = good({"fabric.token=s3cret", "fabric.interface=eth0"});
  EXPECT_EQ(job.fabric.token, "s3cret");
  EXPECT_THAT(to_toml(job), Not(HasSubstr("s3cret")));
  EXPECT_THAT(to_toml(job), HasSubstr("interface = \"eth0\"\n"));
  EXPECT_EQ(fingerprint(job), fingerprint(good()));
  expect_round_trip(good({"fabric.token_file=/run/job/token"}));
}

TEST(JobToml, unlimited_memory_is_none) { EXPECT_THAT(to_toml(good()), HasSubstr("memory_budget = \"none\"\n")); }

}  // namespace
}  // namespace switchyard::config
