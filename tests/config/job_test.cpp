#include "config/job.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "../message_of.hpp"
#include "config/presets.hpp"
#include "job_text.hpp"

namespace switchyard::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kPublicExample = R"(
seed = 1
[model]
preset = "7b"
[data]
path = "data/python"
long_documents = "split"
[batch]
sequences = 512
context = 32768
[[bucket]]
max_length = 32768
strategy = "1,4,2"
[[bucket]]
max_length = 4096
strategy = "8,1,1"
[optimizer]
lr = 3e-4
warmup_steps = 100
[run]
steps = 100
ranks = 8
precision = "auto"
memory_budget = "16 GiB"
checkpoint_every = 50
)";

const std::string kFromPath =
    "model.path = \"m\"\nbatch = { tokens = 64, context = 64 }\nrun = { steps = 1, ranks = 2 }\n"
    "bucket = [{ max_length = 64, strategy = \"1,1,2\" }]\n";

TEST(Job, the_public_example_works_as_written) {
  const Job job = job_from_toml(kPublicExample, "job.toml");
  EXPECT_EQ(job.seed, 1);
  EXPECT_EQ(job.model.config, model_preset("7b"));
  EXPECT_EQ(job.data.path, "data/python");
  EXPECT_EQ(job.batch.sequences, 512);
  EXPECT_EQ(job.batch.context, 32768);
  ASSERT_EQ(job.buckets.size(), 2u);
  EXPECT_EQ(job.buckets[0].strategy, strategy_from_spec("1,4,2", 8, 32));
  EXPECT_EQ(job.buckets[1].strategy, strategy_from_spec("8,1,1", 8, 32));
  EXPECT_EQ(job.optimizer.lr, 3e-4);
  EXPECT_EQ(job.optimizer.warmup_steps, 100);
  EXPECT_EQ(job.run.steps, 100);
  EXPECT_EQ(job.run.ranks, 8);
  EXPECT_EQ(job.run.precision, "auto");
  EXPECT_EQ(job.run.memory_budget, Bytes{i64{16} << 30});
  EXPECT_EQ(job.run.checkpoint_every, 50);
  EXPECT_FALSE(needs_model(job));
  EXPECT_FALSE(needs_vocab(job));
  EXPECT_NO_THROW(validate(job));
}

TEST(Job, every_recipe_loads_with_its_published_buckets) {
  const std::filesystem::path folder = std::filesystem::path(SWITCHYARD_SOURCE) / "recipes";
  for (const std::string& name : parallel_preset_names()) {
    const Job job = load_job((folder / (name + ".toml")).string());
    const ParallelPreset preset = parallel_preset(name, 32768);
    EXPECT_EQ(job.run.ranks, preset.ranks) << name;
    ASSERT_EQ(job.buckets.size(), preset.buckets.size()) << name;
    for (size_t i = 0; i < preset.buckets.size(); ++i)
      EXPECT_EQ(to_text(job.buckets[i].degrees), preset.buckets[i].spec) << name;
    EXPECT_EQ(job.model.config, model_preset(name.substr(7, name.find('-') - 7))) << name;
  }
}

TEST(Job, a_file_that_is_not_there_is_named) {
  EXPECT_EQ(message_of([] { load_job("/nowhere/job.toml"); }),
            "/nowhere/job.toml: can't read the job file. Check the path.");
}

TEST(Job, a_model_from_a_folder_waits_for_its_sizes) {
  Job job = job_from_toml(kFromPath, "job.toml");
  EXPECT_TRUE(needs_model(job));
  EXPECT_FALSE(needs_vocab(job));
  EXPECT_EQ(message_of([&] { validate(job); }), "model.path = \"m\": its config.json has not been read.");
  resolve_model(job, model_preset("3b"));
  EXPECT_FALSE(needs_model(job));
  EXPECT_EQ(job.buckets[0].strategy, strategy_from_spec("1,1,2", 2, 16));
  EXPECT_NO_THROW(validate(job));
}

TEST(Job, a_folder_s_model_with_too_few_layers_is_reported_by_bucket) {
  Job job = job_from_toml(kFromPath, "job.toml");
  ModelConfig shallow = model_preset("3b");
  shallow.layers = 1;
  EXPECT_EQ(message_of([&] { resolve_model(job, shallow); }),
            "bucket.0: strategy \"1,1,2\" has 2 pipeline stages, but the model has 1 layers. Use pp of at most 1.");
}

TEST(Job, a_missing_vocabulary_size_waits_for_the_data) {
  std::string text = good_job();
  text.replace(text.find("vocab_size = 131"), 16, "");
  Job job = job_from_toml(text, "job.toml", {"data.path=data"});
  EXPECT_TRUE(needs_vocab(job));
  EXPECT_EQ(message_of([&] { validate(job); }),
            "model.vocab_size is missing, and the data's meta.json doesn't have it. Set model.vocab_size.");
  EXPECT_EQ(message_of([&] { resolve_vocab(job, 0); }),
            "the data's vocabulary has 0 tokens. Prepare the data again, or set model.vocab_size.");
  resolve_vocab(job, 131);
  EXPECT_FALSE(needs_vocab(job));
  EXPECT_NO_THROW(validate(job));
  EXPECT_EQ(job.model.config, good().model.config);
}

TEST(Job, strategies_are_checked_against_model_and_ranks) {
  const auto error = [](const std::string& set) { return message_of([&] { good({set}); }); };
  EXPECT_EQ(error("run.ranks=2"),
            "2 errors in the job:\n"
            "  job.toml:14: bucket.0: strategy \"1,4,1\" needs 4 ranks, but the run has 2. Use degrees whose "
            "product is at most 2, or "
            "raise run.ranks.\n"
            "  job.toml:17: bucket.1: strategy \"4,1,1\" needs 4 ranks, but the run has 2. Use degrees whose "
            "product is at most 2, or "
            "raise run.ranks.");
  EXPECT_EQ(
      error("bucket.0.strategy=1,6,1"),
      "--set bucket.0.strategy=1,6,1: bucket.0: strategy \"1,6,1\": groups[0].stages[0].mesh (outer=6) can't "
      "divide 8 heads with 4 key/value heads. The axes that divide heads (outer, inner, ulysses) make at most as many "
      "parts as there are heads; above the key/value heads, leading factors of theirs multiply to these. Use outer (tp "
      "/ inner) = 4 "
      "or "
      "8.");
  EXPECT_EQ(
      error("bucket.0.strategy=tp=4,inner=3"),
      "--set bucket.0.strategy=tp=4,inner=3: bucket.0: strategy \"tp=4,inner=3\": inner = 3 does not divide tp = 4. "
      "Use inner = 2 or 4.");
  EXPECT_EQ(error("bucket.0.strategy=1,1,5"),
            "--set bucket.0.strategy=1,1,5: bucket.0: strategy \"1,1,5\" has 5 pipeline stages, but the model has 4 "
            "layers. Use pp of at "
            "most 4.");
  EXPECT_EQ(error("model.kv_heads=3"),
            "--set model.kv_heads=3: model.heads = 8 is not a multiple of kv_heads = 3. Every key/value head serves "
            "equally many query "
            "heads: use a "
            "kv_heads that divides 8.");
}

TEST(Job, home_is_one_of_the_buckets) {
  EXPECT_EQ(good({"run.home=1"}).run.home, 1);
  EXPECT_EQ(message_of([] { good({"run.home=2"}); }), "--set run.home=2: run.home = 2 is not a bucket. Use 0 to 1.");
}

TEST(Job, a_step_runs_every_bucket_once_in_the_order_that_is_given) {
  EXPECT_TRUE(good().run.order.empty());
  EXPECT_THAT(good({"run.order=[1, 0]"}).run.order, ElementsAre(1, 0));
  EXPECT_EQ(message_of([] { good({"run.order=[0, 0]"}); }),
            "--set run.order=[0, 0]: run.order = [0, 0] doesn't have each of the 2 buckets once. Write 0 to 1 in some "
            "order, or leave it out.");
  EXPECT_THAT(message_of([] { good({"run.order=[1]"}); }), HasSubstr("doesn't have each of the 2 buckets once"));
  EXPECT_EQ(message_of([] { good({"run.order=[1, -1]"}); }),
            "--set run.order=[1, -1]: run.order = [1, -1] has -1, which must be at least 0.");
  EXPECT_EQ(message_of([] { good({"run.order=[1, 0.5]"}); }),
            "--set run.order=[1, 0.5]: run.order is a list; a list of integers such as [0, 2, 1] is needed.");
  EXPECT_EQ(message_of([] { good({"run.order=1"}); }),
            "--set run.order=1: run.order = 1 is an integer; a list of integers such as [0, 2, 1] is needed.");
}

TEST(Job, only_the_strategy_at_home_keeps_the_optimizers_state_on_every_replica) {
  EXPECT_EQ(good({"parallel.zero=0"}).buckets[1].strategy.zero, 0);
  EXPECT_EQ(good({"bucket.1.strategy={dp=8,tp=1,pp=1,zero=0}", "run.home=1"}).buckets[1].strategy.zero, 0);
  EXPECT_EQ(message_of([] { good({"bucket.1.strategy={dp=8,tp=1,pp=1,zero=0}"}); }),
            "--set bucket.1.strategy={dp=8,tp=1,pp=1,zero=0}: bucket.1: zero = 0, but the optimizer's state is kept "
            "once, as bucket 0 says "
            "(run.home). Set zero = 0 there, or leave it out here.");
  EXPECT_EQ(good({"bucket.1.strategy={depth=8,zero=0}"}).buckets[1].strategy.zero, 0) << "depth leaves no copies";
  EXPECT_THAT(message_of([] { good({"bucket.1.strategy=tp=2,zero=0 + 1,1,2"}); }),
              HasSubstr("bucket.1: zero = 0, but"));
}

TEST(Job, gpt2_reads_no_further_than_its_positions) {
  const std::vector<std::string> gpt2{"model.architecture=gpt2", "model.kv_heads=8"};
  EXPECT_EQ(good(gpt2).model.config.max_positions, 4096);
  std::vector<std::string> shorter = gpt2;
  shorter.push_back("model.max_positions=1024");
  EXPECT_EQ(message_of([&] { good(shorter); }),
            "job.toml:11: batch.context = 4096 is above model.max_positions = 1024: gpt2 knows no later position. "
            "Lower the context.");
}

TEST(Job, the_context_lies_within_the_window_of_a_folder_s_model) {
  Job job = job_from_toml(kFromPath, "job.toml");  // context 64
  ModelConfig model = model_preset("3b");
  for (const i64 window : {0, 64, 65}) {
    model.sliding_window = window;
    resolve_model(job, model);
    EXPECT_NO_THROW(validate(job)) << window;
  }
  model.sliding_window = 63;
  resolve_model(job, model);
  EXPECT_EQ(message_of([&] { validate(job); }),
            "batch.context = 64 is above the model's sliding_window = 63: attention with windows is not supported. "
            "Lower the context, or set "
            "sliding_window to null in m/config.json to train with full attention.");
}

TEST(Job, the_fingerprint_differs_where_jobs_differ_in_what_ranks_must_share) {
  const std::uint64_t base = fingerprint(good());
  EXPECT_EQ(fingerprint(good()), base);
  for (const char* set : {"run.out=elsewhere", "run.log_every=7", "run.threads=2"})
    EXPECT_EQ(fingerprint(good({set})), base) << set;
  for (const char* set :
       {"seed=4", "optimizer.lr=1e-3", "run.steps=11", "batch.context=4000", "bucket.0.max_length=8192",
        "bucket.1.strategy=2,2,1", "parallel.recompute=full", "model.norm_eps=1e-6", "switch.planner=greedy",
        "run.home=1", "run.order=[1,0]", "data.path=x", "run.precision=fp64",
        "bucket.1.strategy={name = \"x\", dp = 4}", "run.prefetch=false"}) {
    EXPECT_NE(fingerprint(good({set})), base) << set;
  }
}

TEST(Job, names_of_settings_are_those_of_the_file) {
  EXPECT_EQ(name_of(LongDocuments::error), "error");
  EXPECT_EQ(name_of(LearningRateSchedule::linear), "linear");
  EXPECT_THROW(name_of(static_cast<LongDocuments>(7)), InternalError);
}

TEST(Job, device_is_that_of_machine_or_cluster_unless_the_job_says) {
  Job job;
  EXPECT_EQ(job.run.device, DeviceType::automatic);
  resolve_device(job, DeviceType::cuda);
  EXPECT_EQ(job.run.device, DeviceType::cuda);
  resolve_device(job, DeviceType::cpu);
  EXPECT_EQ(job.run.device, DeviceType::cuda);
}

}  // namespace
}  // namespace switchyard::config
