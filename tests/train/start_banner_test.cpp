#include "train/start_banner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace switchyard::train {
namespace {

using testing::ElementsAre;

const std::string kJob =
    "model = { architecture = \"qwen2\", hidden_size = 48, layers = 2, heads = 6, ffn_size = 136, vocab_size = 149 }\n"
    "data.path = \"data/mine\"\nrun.steps = 1\nrun.device = \"cpu\"\n";

TEST(StartBanner, shows_model_data_batch_strategies_ranks_and_memory) {
  const config::Job job = config::job_from_toml(
      kJob +
          "batch = { tokens = 4000, context = 512 }\n"
          "bucket = [{ max_length = 512, strategy = \"1,2,2\" }, { max_length = 64, strategy = \"2,2,1\" }]\n"
          "run.memory_budget = \"64 MiB\"\n",
      "job.toml");
  const cluster::Cluster two_hosts = cluster::uniform(2, 2);
  EXPECT_THAT(start_banner(job, {.documents = 1758,
                                 .tokens = 8'644'828,
                                 .work = {.linear = 1e5, .quadratic = 100},
                                 .precision = {DType::bf16, DType::f32},
                                 .cluster = two_hosts,
                                 .predicted = {i64{48} << 20}}),
              ElementsAre("model     qwen2, 2 layers of 48 features, 72k parameters, 454k flops a token at length 512",
                          "data      data/mine: 1758 documents, 8.6M tokens",
                          "batch     about 4000 tokens a step, documents of up to 512 tokens",
                          "strategy  to 512: 1,2,2; to 64: 2,2,1", "ranks     4 on 2 hosts, cpu, bf16",
                          "memory    48 MiB of 64 MiB a rank in the first step"));
}

TEST(StartBanner, a_single_strategy_has_no_lengths_and_no_budget_is_said) {
  const config::Job job = config::job_from_toml(
      kJob + "batch = { sequences = 8, context = 512 }\nbucket = [{ max_length = 512, strategy = \"1,1,1\" }]\n",
      "job.toml");
  const cluster::Cluster one = cluster::uniform(1, 1);
  const std::vector<std::string> lines = start_banner(
      job, {.work = {}, .precision = {DType::f32, DType::f32}, .cluster = one, .predicted = {i64{48} << 20}});
  EXPECT_EQ(lines[2], "batch     8 documents a step, documents of up to 512 tokens");
  EXPECT_EQ(lines[3], "strategy  1,1,1");
  EXPECT_EQ(lines[4], "ranks     1 on 1 host, cpu, fp32");
  EXPECT_EQ(lines[5], "memory    48 MiB a rank in the first step, without a budget");
}

TEST(StartBanner, ranks_that_no_strategy_uses_are_named) {
  const config::Job job = config::job_from_toml(
      kJob + "batch = { sequences = 8, context = 512 }\nbucket = [{ max_length = 512, strategy = \"2,1,1\" }]\n",
      "job.toml");
  const auto last_line = [&](int ranks) {
    return start_banner(job, {.work = {},
                              .precision = {DType::f32, DType::f32},
                              .cluster = cluster::uniform(1, ranks),
                              .predicted = {1}})
        .back();
  };
  EXPECT_THAT(last_line(2), testing::StartsWith("memory"));
  EXPECT_EQ(last_line(3), "idle      rank 2: no strategy uses it");
  EXPECT_EQ(last_line(5), "idle      3 ranks, the first is 2: no strategy uses them");
}

TEST(StartBanner, an_emulated_cluster_is_named) {
  const config::Job job = config::job_from_toml(
      kJob +
          "batch = { sequences = 8, context = 512 }\nbucket = [{ max_length = 512, strategy = \"2,1,1\" }]\n"
          "run.emulate = \"1x2:1GB/s,1GiB\"\n",
      "job.toml");
  const cluster::Cluster one = cluster::uniform(1, 2);
  const std::vector<std::string> lines = start_banner(
      job, {.work = {}, .precision = {DType::f32, DType::f32}, .cluster = one, .predicted = {i64{48} << 20}});
  EXPECT_EQ(lines.back(),
            "emulated  1x2:1GB/s,1GiB: times of steps are those on this cluster, with cores of this machine as its "
            "devices");
}

TEST(StartBanner, several_sources_have_their_shares) {
  const config::Job job = config::job_from_toml(
      "model = { hidden_size = 48, layers = 2, heads = 6, ffn_size = 136, vocab_size = 149 }\nrun.steps = 1\n"
      "batch = { sequences = 8, context = 512 }\nbucket = [{ max_length = 512, strategy = \"1,1,1\" }]\n"
      "data.source = [{ path = \"x/mine\", weight = 3 }, { path = \"chats\" }]\n",
      "job.toml");
  const cluster::Cluster one = cluster::uniform(1, 1);
  const std::vector<std::string> lines = start_banner(job, {.documents = 7,
                                                            .tokens = 90,
                                                            .work = {},
                                                            .precision = {DType::f32, DType::f32},
                                                            .cluster = one,
                                                            .predicted = {}});
  for (const std::string& line : lines) EXPECT_EQ(line.find_first_not_of(' ', line.find(' ')), kBannerLabel) << line;
  EXPECT_EQ(lines[1], "data      75% mine, 25% chats: 7 documents, 90 tokens");
}

}  // namespace
}  // namespace switchyard::train
