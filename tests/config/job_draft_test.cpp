#include "config/job_draft.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../message_of.hpp"
#include "../scratch.hpp"
#include "job_text.hpp"

namespace switchyard::config {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

const std::string kRest =
    "[batch]\nsequences = 8\ncontext = 64\n[run]\nsteps = 1\n[[bucket]]\nmax_length = 64\nstrategy = \"1,1,1\"\n";

std::string error(const std::string& text, const std::vector<std::string>& sets = {}) {
  return message_of([&] { job_from_toml(text, "job.toml", sets); });
}

std::string error_with(const std::string& set) { return error(good_job(), {set}); }

ModelConfig model_of(const std::string& model) {
  return job_from_toml("[model]\n" + model + kRest, "job.toml").model.config;
}

TEST(JobDraft, a_model_is_a_preset_a_path_or_sizes) {
  EXPECT_EQ(error(kRest), "job.toml: there is no model. Give model.preset (" + model_preset_names() +
                              "), model.path, or the sizes hidden_size, "
                              "layers, heads "
                              "and ffn_size.");
  EXPECT_EQ(error("[model]\npreset = \"7b\"\npath = \"x\"\n" + kRest),
            "job.toml:3: model.preset and model.path exclude each other. Keep one of a preset, a path, and sizes.");
  EXPECT_EQ(error("[model]\npreset = \"7b\"\nlayers = 2\n" + kRest),
            "job.toml:3: model.preset and model.layers exclude each other. Keep one of a preset, a path, and sizes.");
  EXPECT_EQ(error("[model]\npath = \"x\"\nheads = 2\n" + kRest),
            "job.toml:3: model.path and model.heads exclude each other. Keep one of a preset, a path, and sizes.");
  EXPECT_EQ(error("[model]\npath = \"x\"\nvocab_size = 2\n" + kRest),
            "job.toml:3: model.vocab_size can't be given with model.path, whose config.json has it. Remove it.");
  EXPECT_EQ(error("[model]\npath = \"\"\n" + kRest),
            "job.toml:2: model.path is empty. Give a folder with a config.json.");
  EXPECT_EQ(error("[model]\npreset = \"8b\"\n" + kRest),
            "job.toml:2: model.preset = \"8b\" is unknown. Use one of " + model_preset_names() + ".");
}

TEST(JobDraft, rope_scaling_without_a_factor_is_no_scaling) {
  const std::string wrong =
      "model.rope_scaling.type has no effect without model.rope_scaling.factor. Give one of at "
      "least 1, or remove it.";
  const auto model = [](const std::string& keys) { return "[model]\npreset = \"3b\"\n" + keys + kRest; };
  EXPECT_THAT(error(model("rope_scaling = { type = \"yarn\", original_context = 64 }\n")), HasSubstr(wrong));
  EXPECT_EQ(error(model("rope_scaling = { type = \"yarn\", factor = 0.0 }\n")), "no error") << "it is off";
  Job job = job_from_toml("[model]\npath = \"x\"\nrope_scaling.type = \"yarn\"\n" + kRest, "job.toml");
  EXPECT_EQ(message_of([&] { resolve_model(job, model_preset("3b")); }), wrong);
  ModelConfig scaled = model_preset("3b");
  scaled.rope_scaling = {.factor = 8, .original_context = 16};
  resolve_model(job, scaled);
  EXPECT_EQ(job.model.config.rope_scaling.factor, 8);
}

TEST(JobDraft, rope_scaling_has_no_keys_of_another_type) {
  const std::string wrong = "model.rope_scaling.original_context has no effect with model.rope_scaling.type = ";
  const std::string keys = "rope_scaling = { type = \"linear\", factor = 2.0, original_context = 64 }\n";
  EXPECT_THAT(error("[model]\npreset = \"3b\"\n" + keys + kRest), HasSubstr("job.toml:3: " + wrong));
  Job job = job_from_toml("[model]\npath = \"x\"\n" + keys + kRest, "job.toml");
  EXPECT_THAT(message_of([&] { resolve_model(job, model_preset("3b")); }), HasSubstr(wrong));
}

TEST(JobDraft, a_family_has_no_keys_of_another_one) {
  const std::string sizes = "hidden_size = 32\nlayers = 2\nheads = 4\nvocab_size = 50\n";
  EXPECT_THAT(error("[model]\narchitecture = \"gpt2\"\n" + sizes + "rope_theta = 7.0\n" + kRest),
              HasSubstr("model.rope_theta = 7.0 has no effect: gpt2 has learned positions. Set another"));
  EXPECT_THAT(error("[model]\narchitecture = \"gpt2\"\n" + sizes + "rope_scaling.factor = 2.0\n" + kRest),
              HasSubstr("model.rope_scaling.factor = 2.0 has no effect: gpt2 has learned positions."));
  EXPECT_THAT(error("[model]\nffn_size = 46\n" + sizes + "gelu_tanh = false\n" + kRest),
              HasSubstr("model.gelu_tanh = false has no effect: only gpt2 has GELU."));
  EXPECT_EQ(error("[model]\narchitecture = \"gpt2\"\n" + sizes + "rope_theta = 10000.0\n" + kRest), "no error");
}

TEST(JobDraft, a_folder_s_model_may_change_with_its_context) {
  const auto resolved = [](const std::string& keys, ModelConfig folder) {
    folder.max_positions = 32;
    Job job = job_from_toml("[model]\npath = \"x\"\n" + keys + kRest, "job.toml");
    resolve_model(job, folder);
    Job again = job_from_toml(to_toml(job), "resolved.toml");
    resolve_model(again, folder);
    EXPECT_EQ(again, job);
    return job.model.config;
  };
  const ModelConfig folder = model_preset("3b");
  ModelConfig expected = folder;
  expected.max_positions = 64;  // the context
  EXPECT_EQ(resolved("", folder), expected);
  expected.rope_theta = 5e5;
  expected.max_positions = 4096;
  EXPECT_EQ(resolved("rope_theta = 5e5\nmax_positions = 4096\n", folder), expected);
  expected = folder;
  expected.max_positions = 64;
  expected.rope_scaling = {.factor = 2, .original_context = 32, .type = RopeScalingType::yarn};
  EXPECT_EQ(resolved("rope_scaling = { type = \"yarn\", factor = 2.0 }\n", folder), expected);
  expected.rope_scaling.type = RopeScalingType::dynamic;
  EXPECT_EQ(resolved("rope_scaling = { type = \"dynamic\", factor = 2.0 }\n", folder), expected);
  ModelConfig linear = folder;
  linear.rope_scaling = {.factor = 3, .type = RopeScalingType::linear};
  EXPECT_EQ(resolved("rope_scaling = { type = \"dynamic\", factor = 2.0 }\n", linear), expected);
  ModelConfig scaled = folder;  // its own original context stays
  scaled.rope_scaling = {.factor = 8, .original_context = 16};
  expected.rope_scaling = {.factor = 16, .original_context = 16};
  EXPECT_EQ(resolved("rope_scaling.factor = 16.0\n", scaled), expected);

  scaled.rope_scaling = {
      .factor = 4, .original_context = 16, .type = RopeScalingType::yarn, .attention_factor = 0.9};  // from mscale
  EXPECT_EQ(message_of([&] { resolved("rope_scaling.factor = 8.0\n", scaled); }),
            "model.rope_scaling.factor = 8: attention_factor = 0.9 is that of factor 4 in \"x\". Set "
            "model.rope_scaling.attention_factor, too; 0 is 0.1 ln(factor) + 1.");
  expected.rope_scaling = scaled.rope_scaling;
  expected.rope_scaling.factor = 8;
  expected.rope_scaling.attention_factor = 0;
  EXPECT_EQ(resolved("rope_scaling.factor = 8.0\nrope_scaling.attention_factor = 0.0\n", scaled), expected);

  ModelConfig gpt2 = family_defaults(Family::gpt2);
  EXPECT_EQ(message_of([&] { resolved("rope_theta = 5e5\n", gpt2); }),
            "model.rope_theta can't be given with model.path = \"x\": gpt2 has learned positions. Remove it.");
  gpt2.hidden_size = gpt2.ffn_size = gpt2.vocab_size = 8;
  gpt2.heads = gpt2.kv_heads = gpt2.layers = 1;
  gpt2.head_dim = 8;
  EXPECT_EQ(resolved("attention = \"unfused\"\n", gpt2).dropout, 0.1);
  EXPECT_EQ(resolved("attention = \"unfused\"\ndropout = 0.3\n", gpt2).dropout, 0.3);
  gpt2.layers = 1;
  EXPECT_EQ(resolved("", gpt2).max_positions, 32) << "learned positions do not grow";
}

TEST(JobDraft, keys_that_do_nothing_are_refused) {
  EXPECT_EQ(error_with("validation.every=3"),
            "--set validation.every=3: validation.every = 3 has no effect: there is no data to validate with. Give "
            "validation.path, or leave it out.");
  EXPECT_THAT(error_with("validation.sequences=3"), HasSubstr("validation.sequences = 3 has no effect"));
  EXPECT_EQ(error(good_job(), {"validation.every=3", "validation.path=x"}), "no error");
  EXPECT_EQ(error(good_job(), {"validation.every=3", "validation.source.0.path=x"}), "no error");
  EXPECT_EQ(error_with("optimizer.cooldown_steps=3"),
            "--set optimizer.cooldown_steps=3: optimizer.cooldown_steps = 3 has no effect: optimizer.schedule "
            "\"cosine\" doesn't use it. Choose \"wsd\", or leave it out.");
  const auto refused = [](const std::string& schedule) {
    std::vector<std::string> keys;
    for (const char* key : {"min_lr", "decay_steps", "cooldown_steps"})
      if (const std::string text = error(
              good_job(), {"optimizer.lr=5.0", "optimizer.schedule=" + schedule, fmt::format("optimizer.{}=2", key)});
          text.find("has no effect") != std::string::npos)
        keys.emplace_back(key);
    return keys;
  };
  EXPECT_THAT(refused("cosine"), ElementsAre("cooldown_steps"));
  EXPECT_THAT(refused("linear"), ElementsAre("cooldown_steps"));
  EXPECT_THAT(refused("wsd"), IsEmpty());
  EXPECT_THAT(refused("inverse-sqrt"), ElementsAre("decay_steps", "cooldown_steps"));
  EXPECT_THAT(refused("constant"), ElementsAre("min_lr", "decay_steps", "cooldown_steps"));
  const Job job = good({"optimizer.schedule=constant"});
  EXPECT_EQ(job_from_toml(to_toml(job), "resolved.toml"), job) << "defaults are no mistakes";
}

TEST(JobDraft, settings_of_rings_need_a_ring) {
  EXPECT_EQ(
      error_with("parallel.exchange=ring"),
      "--set parallel.exchange=ring: parallel.exchange = \"ring\" has no effect: no bucket has a ring. Give one a "
      "strategy with ring = 2 or more, or leave it out.");
  EXPECT_THAT(error_with("parallel.ring_degree=uniform"),
              HasSubstr("parallel.ring_degree = \"uniform\" has no effect"));
  EXPECT_THAT(error(good_job(), {"bucket.1.strategy=dp=4,exchange=ring"}),
              HasSubstr("exchange = \"ring\" has no effect: no stage has a ring."));
  const std::string ring = "[[bucket]]\nmax_length = 64\nstrategy = { ring = 2 }\n",
                    none = "[[bucket]]\nmax_length = 32\nstrategy = { dp = 2";
  const auto text = [&](const std::string& last) {
    return "[model]\npreset = \"3b\"\n[batch]\nsequences = 8\ncontext = 64\n[run]\nsteps = 1\n[parallel]\n"
           "exchange = \"ring\"\n" +
           ring + last;
  };
  EXPECT_THAT(error(text(none + ", exchange = \"ring\" }\n")),
              HasSubstr("bucket.1: strategy \"dp=2,exchange=ring\": exchange ="));
  const Job job = job_from_toml(text(none + " }\n"), "job.toml");
  EXPECT_EQ(job.buckets[0].strategy.exchange, KeyPassing::ring);
  EXPECT_EQ(job.buckets[1].strategy.exchange, KeyPassing::gather) << "shared settings concern those that have a ring";
  EXPECT_EQ(job_from_toml(to_toml(job), "resolved.toml"), job);
}

TEST(JobDraft, a_bucket_for_the_planner_beside_others_is_one_error) {
  const std::string message =
      "bucket.1.strategy = \"auto\", but only `switchyard plan` and `switchyard train` choose strategies, and those of "
      "all buckets or of none. Give it one, such as \"1,1,1\".";
  EXPECT_EQ(error("[model]\npreset = \"3b\"\n" + kRest + "[[bucket]]\nmax_length = 32\nstrategy = \"auto\"\n"),
            "job.toml:13: " + message);
}

TEST(JobDraft, sources_take_the_place_of_the_path) {
  const auto sources = [](const std::string& text) { return good_job() + text; };
  const Job job = job_from_toml(
      sources(
          "[[data.source]]\npath = \"x/code/\"\n[[data.source]]\npath = \"web\"\nname = \"the web\"\nweight = 2.5\n"),
      "job.toml");
  EXPECT_EQ(sources_of(job), (std::vector<DataSource>{{"x/code/", 1, "code"}, {"web", 2.5, "the web"}}));
  EXPECT_EQ(sources_of(good({"data.path=one"})), (std::vector<DataSource>{{"one", 1, ""}}));
  EXPECT_TRUE(sources_of(good()).empty());
  EXPECT_EQ(error(sources("[data]\npath = \"one\"\n[[data.source]]\npath = \"a\"\n")),
            "job.toml:21: data.path and [[data.source]] exclude each other. Keep one of them.");
  EXPECT_EQ(error(sources("[[data.source]]\nweight = 2\n")),
            "job.toml: data.source.0.path is missing. Give a folder made by `switchyard data prepare`.");
  EXPECT_EQ(error(sources("[[data.source]]\npath = \"a/x\"\n[[data.source]]\npath = \"b/x\"\n")),
            "job.toml: data.source.1.name = \"x\" is also that of data.source.0. Give each source a name of its own.");
  EXPECT_EQ(
      error(sources("[[validation.source]]\npath = \"a\"\nname = \"to 256\"\n")),
      "job.toml:22: validation.source.0.name = \"to 256\" is what a validation calls a range of lengths. Give the "
      "source another name.");
  EXPECT_FALSE(needs_vocab(good({"data.source.0.path=a"})));
  EXPECT_NE(fingerprint(good({"data.source.0.path=a"})), fingerprint(good({"data.source.0.path=b"})));
  EXPECT_NE(fingerprint(good({"data.source.0.path=a"})),
            fingerprint(good({"data.source.0.path=a", "data.source.0.weight=2"})));
}

TEST(JobDraft, a_section_that_is_no_table_is_one_error) {
  const std::string model = "[model]\npreset = \"7b\"\n", batch = "[batch]\nsequences = 8\ncontext = 64\n",
                    run = "[run]\nsteps = 1\n", bucket = "[[bucket]]\nmax_length = 64\nstrategy = \"1,1,1\"\n";
  for (const auto& [section, text] : {std::pair<std::string, std::string>("run", model + batch + bucket),
                                      {"batch", model + run + bucket},
                                      {"model", batch + run + bucket},
                                      {"parallel", model + batch + run}})
    EXPECT_EQ(error("[[" + section + "]]\nx = 1\n" + text), "job.toml:1: " + section +
                                                                " is a list; a table is needed: write [" + section +
                                                                "] with single brackets, once.");
  EXPECT_EQ(error("[bucket]\nmax_length = 64\nstrategy = \"1,1,1\"\n" + model + batch + run),
            "job.toml:1: bucket must be a list of tables: write [[bucket]] with double brackets above each bucket.");
}

TEST(JobDraft, a_preset_takes_a_vocabulary_size_and_settings) {
  const ModelConfig model = model_of("preset = \"3b\"\nvocab_size = 8192\nrope_theta = 5e5\n");
  EXPECT_EQ(model.vocab_size, 8192);
  EXPECT_EQ(model.rope_theta, 5e5);
  EXPECT_EQ(model.layers, 16);
  EXPECT_EQ(model.norm_eps, 1e-5);
}

TEST(JobDraft, sizes_get_the_family_s_settings_and_the_usual_rest) {
  const ModelConfig model =
      model_of("architecture = \"qwen2\"\nhidden_size = 48\nlayers = 2\nheads = 6\nffn_size = 136\nvocab_size = 149\n");
  EXPECT_TRUE(model.qkv_bias);
  EXPECT_EQ(model.kv_heads, 6);
  EXPECT_EQ(model.head_dim, 8);
  EXPECT_EQ(model.max_positions, 64);
  EXPECT_FALSE(model_of("architecture = \"qwen2\"\nqkv_bias = false\nhidden_size = 48\nlayers = 2\nheads = 6\nffn_size "
                        "= 136\nvocab_size = 149\n")
                   .qkv_bias);
  const ModelConfig gpt2 =
      model_of("architecture = \"gpt2\"\nhidden_size = 48\nlayers = 2\nheads = 6\nvocab_size = 149\n");
  EXPECT_EQ(gpt2.ffn_size, 192);
  EXPECT_TRUE(gpt2.tied_embeddings);
}

TEST(JobDraft, missing_sizes_are_all_named) {
  EXPECT_EQ(
      error("[model]\nhidden_size = 64\n" + kRest),
      "4 errors in the job:\n"
      "  job.toml: model.layers is missing. A model by its sizes needs hidden_size, layers, heads and ffn_size.\n"
      "  job.toml: model.heads is missing. A model by its sizes needs hidden_size, layers, heads and ffn_size.\n"
      "  job.toml: model.ffn_size is missing. A model by its sizes needs hidden_size, layers, heads and ffn_size.\n"
      "  job.toml: model.vocab_size is missing, and there is no data.path to take it from. Give one of them.");
}

TEST(JobDraft, a_wrong_value_is_not_also_called_missing) {
  const std::string text =
      error("[model]\nhidden_size = 64\nlayers = \"two\"\nheads = 4\nffn_size = 8\nvocab_size = 9\n" + kRest);
  EXPECT_EQ(text, "job.toml:3: model.layers = \"two\" is a string; an integer is needed.");
  EXPECT_EQ(error_with("run.steps=0"), "--set run.steps=0: run.steps = 0 must be at least 1.");
  EXPECT_EQ(error_with("batch.context=0"), "--set batch.context=0: batch.context = 0 must be at least 1.");
  EXPECT_EQ(
      error_with("bucket=1"),
      "--set bucket=1: bucket must be a list of tables: write [[bucket]] with double brackets above each bucket.");
}

TEST(JobDraft, heads_must_divide_the_hidden_size_unless_the_head_size_is_given) {
  EXPECT_EQ(error_with("model.hidden_size=65"),
            "job.toml:5: model.heads = 8 does not divide hidden_size = 65. Use a divisor, or give head_dim.");
  EXPECT_EQ(good({"model.hidden_size=65", "model.head_dim=16"}).model.config.head_dim, 16);
}

TEST(JobDraft, a_batch_is_counted_in_sequences_or_tokens) {
  const std::string both = "batch = { sequences = 5, tokens = 9, context = 64 }\n";
  EXPECT_THAT(error(both), HasSubstr("batch.sequences and batch.tokens exclude each other. Keep one."));
  const Job replaced = good({"batch.sequences=5"});
  EXPECT_EQ(replaced.batch.sequences, 5) << "an override takes the place of the other one";
  EXPECT_EQ(replaced.batch.tokens, 0);
  EXPECT_EQ(good({"model.path=folder"}).model.path, "folder") << "and of sizes";
  EXPECT_EQ(good({"model.preset=3b"}).model.config.hidden_size, model_preset("3b").hidden_size);
  const std::string bare =
      error("[model]\npreset = \"3b\"\n[run]\nsteps = 1\n[[bucket]]\nmax_length = 64\nstrategy = \"1,1,1\"\n");
  EXPECT_THAT(bare, HasSubstr("the batch has no size. Give batch.sequences or batch.tokens."));
  EXPECT_THAT(bare,
              HasSubstr("batch.context is missing. Give the longest document in tokens, such as context = 32768."));
}

TEST(JobDraft, a_secret_is_given_once_and_never_shown) {
  const std::string message = message_of([] { good({"fabric.token=s3cret", "fabric.token_file=secret.txt"}); });
  EXPECT_THAT(message, HasSubstr("fabric.token and fabric.token_file exclude each other. Keep one of them."));
  EXPECT_THAT(message, testing::Not(HasSubstr("s3cret")));
  const std::string table = message_of([] { good({"fabric.token={a = 4711}"}); });
  const std::string number = message_of([] { job_from_toml(good_job() + "[fabric]\ntoken = 4711\n", "job.toml"); });
  EXPECT_THAT(number, HasSubstr("fabric.token is an integer; a string is needed."));
  for (const std::string& text : {table, number}) EXPECT_THAT(text, testing::Not(HasSubstr("4711")));
}

TEST(JobDraft, steps_are_needed) {
  EXPECT_EQ(error("[model]\npreset = \"3b\"\n[batch]\nsequences = 8\ncontext = 64\n[[bucket]]\nmax_length = "
                  "64\nstrategy = \"1,1,1\"\n"),
            "job.toml: run.steps is missing. Say how many optimizer steps to train, such as steps = 100.");
  EXPECT_EQ(error("[model]\npreset = \"3b\"\n[batch]\nsequences = 8\ncontext = 64\nlengths = "
                  "\"full\"\n[[bucket]]\nmax_length = 64\nstrategy = "
                  "\"1,1,1\"\n"),
            "no error")
      << "a job with lengths may be for planning only";
}

TEST(JobDraft, stored_scores_bring_dropout_to_gpt2) {
  const std::string start =
      "[model]\narchitecture = \"gpt2\"\nhidden_size = 32\nlayers = 2\nheads = 4\nvocab_size = 50\n";
  const std::string end =
      "[batch]\nsequences = 8\ncontext = 64\n[[bucket]]\nmax_length = 64\nstrategy = \"1,1,1\"\n[run]\nsteps = 1\n";
  const auto dropout = [&](const std::string& lines) {
    return job_from_toml(start + lines + end, "job.toml").model.config.dropout;
  };
  EXPECT_EQ(dropout(""), 0);
  EXPECT_EQ(dropout("attention = \"unfused\"\n"), 0.1);
  EXPECT_EQ(dropout("attention = \"unfused\"\ndropout = 0.3\n"), 0.3);
  EXPECT_THAT(error(start + "dropout = 0.3\n" + end),
              HasSubstr("model.dropout = 0.3: fused attention has no weights to drop."));
}

TEST(JobDraft, the_learning_rate_does_not_rise_while_it_decays) {
  EXPECT_EQ(error_with("optimizer.min_lr=1"),
            "--set optimizer.min_lr=1: optimizer.min_lr = 1 is above lr = 0.0003. Lower it.");
  EXPECT_THAT(
      error(good_job(), {"optimizer.decay_steps=5", "optimizer.warmup_steps=5"}),
      HasSubstr("optimizer.decay_steps = 5 is not above warmup_steps = 5: after the warm-up the learning rate "));
  EXPECT_EQ(error(good_job(), {"optimizer.decay_steps=6", "optimizer.warmup_steps=5"}), "no error");
}

TEST(JobDraft, bucket_bounds_fall_and_reach_the_context) {
  EXPECT_EQ(error_with("bucket.1.max_length=4097"),
            "--set bucket.1.max_length=4097: bucket.1.max_length = 4097 is above that of bucket.0, 4096. "
            "List buckets from the longest to the shortest.");
  EXPECT_EQ(error_with("bucket.1.max_length=4096"),
            "--set bucket.1.max_length=4096: bucket.1.max_length = 4096 is also that of bucket.0. Give each bucket "
            "another one, or set run.choose_buckets = true, so that each step uses the quicker of them.");
  EXPECT_EQ(good({"bucket.1.max_length=4096", "run.choose_buckets=true"}).buckets[1].max_length, 4096);
  EXPECT_EQ(error_with("batch.context=5000"),
            "job.toml:13: bucket.0.max_length = 4096 is below batch.context = 5000: documents of 4097 to 5000 tokens "
            "have no bucket. Raise it to 5000, or lower the context.");
  EXPECT_EQ(good({"batch.context=1000"}).buckets[0].max_length, 4096);
  EXPECT_EQ(error_with("bucket.2.strategy=1,1,1"),
            "job.toml: bucket.2.max_length is missing. Give the longest document of the bucket in tokens.");
}

TEST(JobDraft, steps_choose_from_few_buckets) {
  const auto buckets = [](int count) {
    std::vector<std::string> sets = {"run.choose_buckets=true"};
    for (int b = 2; b < count; ++b) {
      sets.push_back(fmt::format("bucket.{}.max_length={}", b, 100 - b));
      sets.push_back(fmt::format("bucket.{}.strategy=1,1,1", b));
    }
    return sets;
  };
  EXPECT_EQ(good(buckets(6)).buckets.size(), 6u);
  EXPECT_THAT(message_of([&] { good(buckets(7)); }),
              HasSubstr("run.choose_buckets compares all sets of the buckets in each step, and there are 7 buckets. "
                        "Keep at most 6, or leave it out."));
}

TEST(JobDraft, no_bucket_and_no_preset_is_reported) {
  EXPECT_EQ(
      error("[model]\npreset = \"3b\"\n[batch]\nsequences = 8\ncontext = 64\n[run]\nsteps = 1\n"),
      "job.toml: there is no [[bucket]] and no [parallel] preset, so there is no strategy. `switchyard plan` "
      "finds some and writes them with --out. For one strategy, write one [[bucket]] with max_length = the context and "
      "strategy = \"dp,tp,pp\".");
}

TEST(JobDraft, a_bucket_has_one_strategy) {
  EXPECT_THAT(error_with("bucket.2.max_length=64"),
              HasSubstr("bucket.2 has no strategy. Give strategy = \"dp,tp,pp\", a table of settings, or file"));
  EXPECT_THAT(error_with("bucket.1.file=s.json"),
              HasSubstr("bucket.1 has more than one strategy. Keep one of strategy (text or table) and file."));
  EXPECT_THAT(error_with("bucket.1.strategy={file = \"s.json\", tp = 2}"),
              HasSubstr("bucket.1 has more than one strategy."));
  EXPECT_THAT(error_with("bucket.1.strategy=fast"), HasSubstr("bucket.1: strategy \"fast\" is not \"dp,tp,pp\"."));
}

TEST(JobDraft, a_strategy_table_goes_before_parallel_and_parallel_before_the_defaults) {
  const Job job = good({"parallel.recompute=full", "parallel.micro_batch_tokens=4096",
                        "bucket.1.strategy={name = \"short\", dp = 2, tp = 2, recompute = "
                        "\"none\", schedule = \"gpipe\"}"});
  EXPECT_EQ(job.buckets[0].strategy.recompute, Recompute::full);
  EXPECT_EQ(job.buckets[0].strategy.name, "tp=4,recompute=full,micro_batch_tokens=4096");
  EXPECT_EQ(job.buckets[0].strategy.micro_batch_tokens, 4096);
  EXPECT_EQ(job.buckets[1].strategy.name, "short");
  EXPECT_THAT(job.buckets[1].degrees, ElementsAre(Degrees{.dp = 2, .tp = 2}));
  EXPECT_EQ(job.buckets[1].strategy.recompute, Recompute::none);
  EXPECT_EQ(job.buckets[1].strategy.schedule, ScheduleKind::gpipe);
  EXPECT_TRUE(job.buckets[1].strategy.sequence_parallel);
}

TEST(JobDraft, groups_of_unlike_pipelines_stand_in_the_text_or_beside_the_table) {
  const Job text = good({"parallel.recompute=full", "bucket.1.strategy=dp=2,schedule=gpipe + 1,1,2"});
  const Strategy& strategy = text.buckets[1].strategy;
  EXPECT_EQ(strategy.name, "dp=2,schedule=gpipe,recompute=full + 1,1,2");
  EXPECT_EQ(strategy.recompute, Recompute::full);
  ASSERT_EQ(strategy.groups.size(), 2u);
  EXPECT_THAT(strategy.groups[1].stages[0].ranks, ElementsAre(2));
  EXPECT_THAT(strategy.groups[1].stages[1].ranks, ElementsAre(3));
  const Job table =
      good({"parallel.recompute=full", "bucket.1.strategy={dp = 2, schedule = \"gpipe\", beside = \"pp=2\"}"});
  EXPECT_EQ(table, text);
  EXPECT_THAT(error_with("bucket.1.strategy={dp = 2, beside = \"pp=2,zero=2\"}"),
              HasSubstr("bucket.1: strategy \"pp=2,zero=2\" has zero, which holds for all groups. Give it in the first "
                        "one."));
  EXPECT_THAT(error_with("bucket.1.strategy={dp = 2, beside = \"2\"}"),
              HasSubstr("bucket.1: strategy \"2\" is not \"dp,tp,pp\"."));
}

TEST(JobDraft, a_micro_batch_holds_the_longest_document) {
  EXPECT_THAT(error_with("parallel.micro_batch_tokens=1024"),
              HasSubstr("bucket.0: micro_batch_tokens = 1024 can't hold a document of 4096 tokens. Raise it, or use 0 "
                        "for the bucket's length."));
  EXPECT_EQ(good({"parallel.micro_batch_tokens=1024", "batch.context=1000"}).buckets[0].strategy.micro_batch_tokens,
            1024);
}

TEST(JobDraft, a_strategy_file_is_found_beside_the_job) {
  const Scratch folder;
  folder.file("s.json", to_json(strategy_from_spec("1,2,2", 4, 4)));
  folder.file("broken.json", "{");
  const std::string origin = (folder / "job.toml").string();
  for (const char* set :
       {"bucket.1.strategy={file = \"s.json\"}",
        "bucket=[{max_length = 4096, strategy = \"4,1,1\"}, {max_length = 512, file = \"s.json\"}]"}) {
    const Job job = job_from_toml(good_job(), origin, {set});
    EXPECT_EQ(job.buckets[1].strategy, strategy_from_spec("1,2,2", 4, 4));
    EXPECT_THAT(job.buckets[1].degrees, IsEmpty());
  }
  const auto error_for = [&](const char* file) {
    return message_of(
        [&] { job_from_toml(good_job(), origin, {fmt::format("bucket.1.strategy={{file = \"{}\"}}", file)}); });
  };
  EXPECT_THAT(error_for("nowhere.json"), HasSubstr("can't read the strategy file"));
  EXPECT_THAT(error_for("broken.json"), HasSubstr("broken.json: this is not valid JSON"));
}

TEST(JobDraft, a_strategy_without_stages_is_reported_whatever_else_is_checked) {
  for (const char* home : {"0", "1"})
    EXPECT_EQ(error(good_job(), {"bucket.1.strategy={\"groups\": [{\"stages\": []}], \"zero\": 1}",
                                 std::string("run.home=") + home}),
              "--set bucket.1.strategy={\"groups\": [{\"stages\": []}], \"zero\": 1}: bucket.1: strategy "
              "\"bucket.1.strategy\": groups[0].stages is empty. Give at least one stage.");
}

TEST(JobDraft, a_strategy_may_stand_in_the_job_as_json) {
  const Strategy strategy = strategy_from_spec("1,2,2", 4, 4);
  EXPECT_EQ(good({"bucket.1.strategy=" + to_json(strategy)}).buckets[1].strategy, strategy);
  EXPECT_THAT(error_with("bucket.1.strategy={\"groups\": 5}"),
              HasSubstr("bucket.1.strategy: groups is 5; a list is needed."));
}

TEST(JobDraft, ranks_default_to_what_the_strategies_need) {
  EXPECT_EQ(good().run.ranks, 4);
  EXPECT_EQ(good({"run.ranks=6"}).run.ranks, 6);
  EXPECT_EQ(good({"bucket.0.strategy=2,4,2"}).run.ranks, 16);
  EXPECT_EQ(good({"bucket.0.strategy=1,4,1 + 1,1,2"}).run.ranks, 6);
  Strategy far = strategy_from_spec("1,1,1", 4, 4);
  far.groups[0].stages[0].ranks = {6};
  EXPECT_EQ(good({"bucket.1.strategy=" + to_json(far)}).run.ranks, 7);
  EXPECT_THAT(error_with("bucket.0.strategy=4000000000000000000,4,4"), HasSubstr("but the run has 65536"));
}

TEST(JobDraft, a_published_preset_fills_buckets_and_ranks_where_they_are_absent) {
  const std::string text =
      "model.preset = \"7b\"\nbatch = { sequences = 512, context = 16384 }\nrun.steps = 1\nparallel.preset = "
      "\"hotspa/7b-16gpu-github\"\n";
  const Job job = job_from_toml(text, "job.toml");
  ASSERT_EQ(job.buckets.size(), 3u);
  EXPECT_EQ(job.buckets[0].max_length, 16384);
  EXPECT_THAT(job.buckets[0].degrees, ElementsAre(Degrees{.dp = 4, .tp = 4}));
  EXPECT_EQ(job.run.ranks, 16);
  EXPECT_EQ(job_from_toml(text, "job.toml", {"run.ranks=32", "parallel.recompute=full"}).buckets[2].strategy.recompute,
            Recompute::full);
  EXPECT_EQ(job_from_toml(text, "job.toml", {"bucket=[{max_length = 16384, strategy = \"1,4,1\"}]"}).buckets.size(),
            1u);
  EXPECT_THAT(error(text, {"run.ranks=8"}),
              HasSubstr("bucket.0: strategy \"4,4,1\" needs 4 x 4 ranks, but the run has 8."));
  EXPECT_THAT(error(text, {"batch.context=65536"}), HasSubstr("goes up to 32768 tokens"));
  EXPECT_THAT(error(text, {"parallel.preset=hotspa"}), HasSubstr("parallel.preset = \"hotspa\" is unknown."));
}

TEST(JobDraft, an_error_stands_where_the_key_was_given_that_it_names) {
  for (const char* strategy : {"tp=0", "tp=-1", "dp=2,dp=2", "1,2", "every=0", "tp=4,chunks=99", "tp=16"}) {
    const std::string set = std::string("bucket.0.strategy=") + strategy;
    EXPECT_THAT(error_with(set), StartsWith("--set " + set + ": bucket.0: ")) << strategy;
  }
  const auto starts = [](const std::vector<std::string>& sets, const std::string& start) {
    EXPECT_THAT(error(good_job(), sets), AnyOf(StartsWith(start), HasSubstr("\n  " + start))) << start;
  };
  starts({"parallel.micro_batch_tokens=1"},
         "--set parallel.micro_batch_tokens=1: bucket.0: micro_batch_tokens = 1 can't hold");
  starts({"parallel.micro_batch_tokens=1", "bucket.0.strategy=dp=2,micro_batch_tokens=2"},
         "--set bucket.0.strategy=dp=2,micro_batch_tokens=2: bucket.0: micro_batch_tokens = 2 can't hold");
  starts({"bucket.0.strategy={dp = 2}", "bucket.0.strategy.micro_batch_tokens=3"},
         "--set bucket.0.strategy.micro_batch_tokens=3: bucket.0: micro_batch_tokens = 3 can't hold");
  starts({"bucket.0.strategy={dp = 2}", "bucket.0.strategy.chunks=2"}, "--set bucket.0.strategy.chunks=2: bucket.0: ");
  starts({"model.dropout=0.1"}, "--set model.dropout=0.1: model.dropout = 0.1: only gpt2 has dropout.");
  starts({"model.layers=7", "bucket.0.strategy=1,4,1", "model.kv_heads=3"}, "--set model.kv_heads=3: model.");
}

TEST(JobDraft, an_empty_list_of_buckets_is_no_job_to_plan) {
  EXPECT_EQ(error_with("bucket=[]"),
            "--set bucket=[]: bucket is an empty list. Write [[bucket]] above each bucket, or leave it out.");
}

TEST(JobDraft, errors_of_every_kind_come_together) {
  const std::string text = error(good_job(), {"run.stps=5", "bucket.1.strategy=1,6,1", "optimizer.min_lr=1",
                                              "fabric.token=a", "fabric.token_file=b"});
  EXPECT_THAT(text, HasSubstr("4 errors in the job:"));
  EXPECT_THAT(text, HasSubstr("run.stps is not a key."));
  EXPECT_THAT(text, HasSubstr("exclude each other"));
  EXPECT_THAT(text, HasSubstr("is above lr"));
  EXPECT_THAT(text, HasSubstr("mesh (outer=6) can't divide 8 heads"));
  EXPECT_THAT(text, Not(HasSubstr("missing")));
}

}  // namespace
}  // namespace switchyard::config
