#include "compiler/job_plans.hpp"

#include <gtest/gtest.h>

#include "batch/validate.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

config::Job small_job() {
  return config::job_from_toml(R"(
[model]
hidden_size = 64
layers = 2
heads = 4
kv_heads = 2
ffn_size = 176
vocab_size = 100
[data]
path = "data"
[batch]
sequences = 6
context = 64
[[bucket]]
max_length = 64
strategy = "1,2,2"
[[bucket]]
max_length = 16
strategy = "4,1,1"
[run]
steps = 1
ranks = 4
home = 1
precision = "bf16"
)",
                               "job.toml");
}

TEST(PlansOf, have_a_strategy_a_bucket_and_home_where_the_job_says) {
  const config::Job job = small_job();
  const Plans plans = plans_of(job, cluster::uniform(2, 2));
  ASSERT_EQ(plans.strategies().size(), 2u);
  EXPECT_EQ(plans.strategies()[0].strategy, job.buckets[0].strategy);
  EXPECT_EQ(plans.home(), home_maps(plans.strategies()[1].maps, 1));
  EXPECT_EQ(plans.graph().precision(), precision_from("bf16"));
}

TEST(CodeOptions, overlap_collectives_where_job_and_fabric_do) {
  config::Job job = small_job();
  cluster::Cluster cluster = cluster::uniform(2, 2);
  EXPECT_TRUE(code_options(job, cluster).overlap);
  job.run.overlap = false;
  EXPECT_FALSE(code_options(job, cluster).overlap);
  job.run.overlap = true;
  cluster.overlaps_collectives = false;
  EXPECT_FALSE(code_options(job, cluster).overlap);
}

TEST(CodeOptions, tell_whether_kernels_are_those_for_devices) {
  config::Job job = small_job();
  EXPECT_FALSE(code_options(job, cluster::uniform(1, 2)).on_devices);
  job.run.device = cluster::DeviceType::cuda;
  EXPECT_TRUE(code_options(job, cluster::uniform(1, 2)).on_devices);
  EXPECT_TRUE(plans_of(job, cluster::uniform(1, 4)).how().on_devices);
  EXPECT_TRUE(code_options(job, cluster::uniform(1, 2)).element_kernels);
  cluster::Cluster with_torch = cluster::uniform(1, 2);
  with_torch.torch_elements = true;
  EXPECT_FALSE(code_options(job, with_torch).element_kernels);
}

TEST(PrecisionOf, is_chosen_by_the_device_unless_the_job_says) {
  config::RunSettings run;
  EXPECT_EQ(precision_of(run), precision_from("fp32"));
  run.device = cluster::DeviceType::cuda;
  EXPECT_EQ(precision_of(run), precision_from("bf16"));
  run.precision = "fp64";
  EXPECT_EQ(precision_of(run), precision_from("fp64"));
}

TEST(BucketSpecs, describe_the_replicas_of_each_strategy) {
  config::Job job = small_job();
  job.buckets[0].strategy.micro_batch_tokens = 128;
  const std::vector<batch::BucketSpec> specs = bucket_specs(job, plans_of(job, cluster::uniform(1, 4)));
  ASSERT_EQ(specs.size(), 2u);
  EXPECT_EQ(specs[0].max_length, 64);
  EXPECT_EQ(specs[0].replicas, 1);
  EXPECT_EQ(specs[0].multiple, 2);
  EXPECT_EQ(specs[0].micro_batch_tokens, 128);
  EXPECT_EQ(specs[0].pipelines, (std::vector<batch::Pipeline>{{.speed = 4, .stages = 2}}));
  EXPECT_EQ(specs[1].strategy, 1);
  EXPECT_EQ(specs[1].replicas, 4);
  EXPECT_EQ(specs[1].pipelines, std::vector<batch::Pipeline>(4));
}

TEST(BucketSpecs, make_batches_that_can_be_assembled) {
  const config::Job job = small_job();
  const Plans plans = plans_of(job, cluster::uniform(1, 4));
  const std::vector<batch::BucketSpec> specs = bucket_specs(job, plans);
  const std::vector<i64> lengths = {40, 33, 12, 5, 9, 64};
  const batch::StepPlan plan = batch::plan_batch(0, lengths, specs, work_model(job.model.config));
  batch::validate(plan, lengths, specs);
  verify(assemble(plan, plans, {}));
}

TEST(BucketSpecs, of_a_stream_pad_documents_for_context_parallelism) {
  config::Job job = small_job();
  job.buckets[0].strategy = config::strategy_from_spec("ulysses=4", 4, 2, {.packing = config::Packing::stream});
  job.buckets[1].strategy = config::strategy_from_spec("dp=4", 4, 2, {.packing = config::Packing::stream});
  const Plans plans = plans_of(job, cluster::uniform(1, 4));
  const std::vector<batch::BucketSpec> specs = bucket_specs(job, plans);
  EXPECT_TRUE(specs[0].stream && specs[1].stream);
  EXPECT_EQ(specs[0].document_multiple, 8);
  EXPECT_EQ(specs[1].document_multiple, 1);
  const std::vector<i64> lengths = {40, 33, 12, 5, 9, 64};
  const batch::StepPlan plan = batch::plan_batch(0, lengths, specs, work_model(job.model.config));
  batch::validate(plan, lengths, specs);
  verify(assemble(plan, plans, {}));
}

TEST(BucketSpecs, of_unlike_groups_share_documents_by_their_ranks) {
  config::Job job = small_job();
  job.run.ranks = 8;
  job.buckets[0].strategy = config::strategy_from_spec("1,4,1 + 2,1,1 + ulysses=2", 8, 2);
  job.buckets.pop_back();
  job.run.home = 0;
  const std::vector<batch::BucketSpec> specs = bucket_specs(job, plans_of(job, cluster::uniform(2, 4)));
  EXPECT_EQ(specs[0].pipelines, (std::vector<batch::Pipeline>{{.speed = 4}, {.speed = 1}, {.speed = 1}, {.speed = 2}}));
  std::vector<i64> lengths;
  for (int i = 0; i < 400; ++i) lengths.push_back(1 + i * 7 % 64);
  const batch::WorkModel work = work_model(job.model.config);
  const batch::StepPlan plan = batch::plan_batch(0, lengths, specs, work);
  std::vector<double> share;
  double all = 0;
  for (const std::vector<batch::MicroBatch>& replica : plan.phases.at(0).replica) {
    share.push_back(0);
    for (const batch::MicroBatch& micro_batch : replica)
      for (const batch::Piece& piece : micro_batch.shard.at(0))
        if (piece.doc >= 0) share.back() += work(piece.count);
    all += share.back();
  }
  ASSERT_EQ(share.size(), 4u);
  for (size_t r = 0; r < share.size(); ++r) EXPECT_NEAR(share[r] / all, specs[0].pipelines[r].speed / 8, 0.002) << r;
}

TEST(WorkModel, counts_products_of_tokens_and_of_pairs) {
  const batch::WorkModel work = work_model(small_llama());
  EXPECT_EQ(work.linear, 2 * (105280 - 6400));  // the embedding is looked up
  EXPECT_EQ(work.quadratic, 2 * 2 * 64);        // two layers; scores and values at 2 flops a feature, on half the pairs
  config::ModelConfig tied = small_llama();
  tied.tied_embeddings = true;
  EXPECT_EQ(work_model(tied).linear, work.linear);
  config::ModelConfig far = small_gpt2();
  far.max_positions *= 100;  // looked up as well
  EXPECT_EQ(work_model(far).linear, work_model(small_gpt2()).linear);
}

}  // namespace
}  // namespace switchyard::compiler
