#include "config/job_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../message_of.hpp"
#include "job_text.hpp"

namespace switchyard::config {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

/// The errors found while reading a text and overrides, without cross-checks.
std::string errors_of(const std::string& text, const std::vector<std::string>& sets = {}) {
  return message_of([&] {
    Errors errors;
    read_draft(text, "job.toml", overrides_of(sets), errors);
    errors.throw_if_any();
  });
}

JobDraft draft_of(const std::string& text, const std::vector<std::string>& sets = {}) {
  Errors errors;
  JobDraft draft = read_draft(text, "job.toml", overrides_of(sets), errors);
  errors.throw_if_any();
  return draft;
}

TEST(JobReader, every_type_of_key_is_read) {
  const JobDraft draft = draft_of(R"(
seed = 5
[model]
tied_embeddings = true
rope_theta = 5e5
rope_scaling = { factor = 8.0, original_context = 64 }
architecture = "qwen2"
[data]
path = "data/python"
long_documents = "clip"
[run]
memory_budget = "16 GiB"
precision = "bf16"
prefetch = false
[fabric]
timeout = "2 min"
[switch]
planner = "round-robin"
)");
  EXPECT_EQ(draft.job.seed, 5);
  EXPECT_TRUE(draft.job.model.config.tied_embeddings);
  EXPECT_EQ(draft.job.model.config.rope_theta, 5e5);
  EXPECT_EQ(draft.job.model.config.rope_scaling, (RopeScaling{8, 1, 4, 64}));
  EXPECT_EQ(draft.job.model.config.family, Family::qwen2);
  EXPECT_EQ(draft.job.data.path, "data/python");
  EXPECT_EQ(draft.job.data.long_documents, LongDocuments::clip);
  EXPECT_EQ(draft.job.run.memory_budget, Bytes{i64{16} << 30});
  EXPECT_EQ(draft.job.run.precision, "bf16");
  EXPECT_FALSE(draft.job.run.prefetch);
  EXPECT_EQ(draft.job.fabric.timeout, Seconds{120});
  EXPECT_EQ(draft.job.switch_planner, SwitchPlanner::round_robin);
  EXPECT_EQ(draft.where("run.precision"), "job.toml:13");
  EXPECT_FALSE(draft.has("run.steps"));
}

TEST(JobReader, integers_serve_as_numbers_bytes_and_seconds) {
  const JobDraft draft = draft_of("optimizer.lr = 1\nrun.memory_budget = 4096\nfabric.timeout = 5\n");
  EXPECT_EQ(draft.job.optimizer.lr, 1);
  EXPECT_EQ(draft.job.run.memory_budget, Bytes{4096});
  EXPECT_EQ(draft.job.fabric.timeout, Seconds{5});
  EXPECT_EQ(draft_of("run.memory_budget = \"none\"").job.run.memory_budget, Bytes{0});
}

TEST(JobReader, an_unknown_key_names_the_likely_one) {
  EXPECT_EQ(errors_of("[run]\nstep = 5\n"), "job.toml:2: run.step is not a key. Did you mean run.steps?");
  for (const std::string name : {"run..steps", "run.steps.", ".run.steps"})
    EXPECT_EQ(errors_of("", {name + "=5"}),
              fmt::format("--set {0}=5: {0} is not a key. Did you mean run.steps?", name));
  EXPECT_EQ(errors_of("steps = 5\n"), "job.toml:1: steps is not a key. Did you mean run.steps?");
  EXPECT_EQ(errors_of("[parallel]\nfsdp = 2\n"),
            "job.toml:2: parallel.fsdp is not a key. Sharded data parallelism is dp with zero=3.");
  EXPECT_EQ(errors_of("[optimiser]\nlr = 1\n"), "job.toml:1: optimiser is not a key. Did you mean optimizer?");
  EXPECT_EQ(errors_of("[model.rope_scaling]\nfacter = 1.0\n"),
            "job.toml:2: model.rope_scaling.facter is not a key. Did you mean model.rope_scaling.factor?");
  EXPECT_EQ(errors_of("[[bucket]]\nmax_lenght = 5\n"),
            "job.toml:2: bucket.0.max_lenght is not a key. Did you mean bucket.0.max_length?");
  EXPECT_EQ(errors_of("[[bucket]]\ntp = 5\n"),
            "job.toml:2: bucket.0.tp is not a key. Did you mean bucket.0.strategy.tp?");
  EXPECT_EQ(errors_of("[run]\nfrobnicate_everything = 5\n"),
            "job.toml:2: run.frobnicate_everything is not a key. `switchyard train --help-keys` lists all keys.");
}

TEST(JobReader, a_wrong_type_says_what_is_needed) {
  EXPECT_EQ(errors_of("run.steps = \"ten\""), "job.toml:1: run.steps = \"ten\" is a string; an integer is needed.");
  EXPECT_EQ(errors_of("run.steps = 1.5"), "job.toml:1: run.steps = 1.5 is a fraction; an integer is needed.");
  EXPECT_EQ(errors_of("run.steps = [1]"), "job.toml:1: run.steps is a list; an integer is needed.");
  EXPECT_EQ(errors_of("run.steps = {a = 1}"), "job.toml:1: run.steps is a table; an integer is needed.");
  EXPECT_EQ(errors_of("run.steps = 2020-01-01"),
            "job.toml:1: run.steps = 2020-01-01 is a date or time; an integer is needed.");
  EXPECT_EQ(errors_of("run.prefetch = 1"), "job.toml:1: run.prefetch = 1 is an integer; true or false is needed.");
  EXPECT_EQ(errors_of("optimizer.lr = true"), "job.toml:1: optimizer.lr = true is a boolean; a number is needed.");
  EXPECT_EQ(errors_of("data.path = 1"), "job.toml:1: data.path = 1 is an integer; a string is needed.");
  EXPECT_EQ(errors_of("run.memory_budget = true"),
            "job.toml:1: run.memory_budget = true is a boolean; an amount of memory such as \"16 GiB\" is needed, "
            "or \"none\".");
  EXPECT_EQ(errors_of("fabric.timeout = true"),
            "job.toml:1: fabric.timeout = true is a boolean; a duration such as \"30 s\" is needed.");
}

TEST(JobReader, a_wrong_choice_or_quantity_lists_what_is_known) {
  EXPECT_THAT(errors_of("run.precision = \"fp16\""),
              HasSubstr("fp16\" is unknown; one of \"auto\", \"fp64\", \"fp32\", \"bf16\" is needed."));
  EXPECT_THAT(errors_of("compression.switches = \"int8\""),
              HasSubstr("compression.switches = \"int8\" is unknown; one of \"none\", \"lossless\" is needed."));
  EXPECT_THAT(errors_of("compression.gradient = \"int8\""), HasSubstr("Did you mean compression.gradients?"));
  EXPECT_THAT(errors_of("run.precision = 16"), HasSubstr("run.precision = 16 is an integer; one of"));
  EXPECT_THAT(errors_of("run.memory_budget = \"16 gigs\""),
              StartsWith("job.toml:1: run.memory_budget = \"16 gigs\" is not an amount of memory."));
  EXPECT_THAT(errors_of("fabric.timeout = \"soon\""),
              StartsWith("job.toml:1: fabric.timeout = \"soon\" is not a duration."));
}

TEST(JobReader, a_value_out_of_range_says_the_range) {
  EXPECT_EQ(errors_of("run.steps = 0"), "job.toml:1: run.steps = 0 must be at least 1.");
  EXPECT_EQ(errors_of("optimizer.lr = inf"), "job.toml:1: optimizer.lr = inf must be finite.");
  EXPECT_EQ(errors_of("run.ranks = 9999999999"), "job.toml:1: run.ranks = 9999999999 must be at most 65536.");
}

TEST(JobReader, all_errors_come_together) {
  EXPECT_EQ(errors_of("sed = 1\n[run]\nsteps = 0\nranks = \"8\"\n"),
            "3 errors in the job:\n"
            "  job.toml:4: run.ranks = \"8\" is a string; an integer is needed.\n"
            "  job.toml:3: run.steps = 0 must be at least 1.\n"
            "  job.toml:1: sed is not a key. Did you mean seed?");
}

TEST(JobReader, buckets_are_a_list_of_tables) {
  const JobDraft draft = draft_of(
      "[[bucket]]\nmax_length = 64\nstrategy = \"1,4,2\"\n[[bucket]]\nmax_length = 8\n[bucket.strategy]\ndp = "
      "8\nrecompute = \"full\"\n");
  ASSERT_EQ(draft.buckets.size(), 2u);
  EXPECT_EQ(draft.buckets[0].text, "1,4,2");
  EXPECT_EQ(draft.buckets[1].degrees.dp, 8);
  EXPECT_EQ(draft.buckets[1].settings.recompute, Recompute::full);
  EXPECT_TRUE(draft.has("bucket.1.strategy.dp"));
  const std::string message =
      "job.toml:1: bucket must be a list of tables: write [[bucket]] with double brackets above each bucket.";
  EXPECT_EQ(errors_of("[bucket]\nmax_length = 64\n"), message);
  EXPECT_EQ(errors_of("bucket = [1, 2]\n"), message);
  EXPECT_EQ(errors_of("bucket = 1\n"), message);
}

TEST(JobReader, a_section_of_another_kind_is_answered_with_its_form) {
  EXPECT_EQ(errors_of("[[run]]\nsteps = 5\n"),
            "job.toml:1: run is a list; a table is needed: write [run] with single brackets, once.");
  EXPECT_EQ(errors_of("run = 5\n"),
            "job.toml:1: run = 5 is an integer; a table is needed: write [run] above its keys.");
  EXPECT_EQ(errors_of("[[parallel]]\npreset = \"a\"\n"),
            "job.toml:1: parallel is a list; a table is needed: write [parallel] with single brackets, once.");
  EXPECT_EQ(errors_of("[model]\nrope_scaling = 8.0\n"),
            "job.toml:2: model.rope_scaling = 8.0 is a fraction; a table is needed: write [model.rope_scaling] above "
            "its keys.");
  EXPECT_EQ(errors_of("seed = [1]\n"), "job.toml:1: seed is a list; an integer is needed.");
  EXPECT_THAT(errors_of("[seed]\n"), StartsWith("job.toml:1: seed is a table"));
  EXPECT_THAT(errors_of("[[bucket]]\nmax_length = [64]\n"), StartsWith("job.toml:2: bucket.0.max_length is a list"));
  EXPECT_THAT(errors_of("[[bucket]]\nmax_length = 64\n[[bucket.strategy]]\ndp = 1\n"),
              StartsWith("job.toml:3: bucket.0.strategy is a list"));
  EXPECT_THAT(errors_of("[[bucket]]\nstrategy = 5\n"), StartsWith("job.toml:2: bucket.0.strategy = 5 is an integer"));
}

TEST(JobReader, a_quoted_name_with_a_dot_is_one_word) {
  EXPECT_THAT(errors_of("\"run.steps\" = 5\n"), StartsWith("job.toml:1: run.steps is not a key."));
}

TEST(JobReader, values_of_the_command_line_are_taken_as_they_are) {
  const auto out_of = [](const std::string& out) {
    Errors errors;
    const JobDraft draft = read_draft("", "job.toml", {{.where = "--out", .key = "run.out", .value = out}}, errors);
    errors.throw_if_any();
    return draft.job.run.out;
  };
  for (const std::string out :
       {"a\"b", "a\\b", "a\\", "\"quoted\"", "'single'", "{ x = 1 }", "a b", "a#b", "a\nb", "1", "true", "\u00fc"})
    EXPECT_EQ(out_of(out), out);
  EXPECT_EQ(message_of([&] { out_of("a\xff"); }),
            "--out: the value of run.out is not UTF-8 text, as job files require. Use other characters.");
  Errors errors;
  read_draft("", "job.toml", {{.where = "--steps -3", .key = "run.steps", .value = i64{-3}}}, errors);
  EXPECT_EQ(message_of([&] { errors.throw_if_any(); }), "--steps -3: run.steps = -3 must be at least 1.");
}

TEST(JobReader, broken_toml_says_line_and_column) {
  EXPECT_THAT(errors_of("[run]\nsteps = = 5\n"), StartsWith("job.toml:2:9: this is not valid TOML: "));
  EXPECT_THAT(errors_of("[run]\nsteps = 5\nsteps = 6\n"), StartsWith("job.toml:3:"));
}

TEST(JobReader, overrides_replace_add_and_reach_into_buckets) {
  const JobDraft draft =
      draft_of(good_job(), {"run.steps=20", "run.out=runs/a b", "model.rope_scaling.factor=8",
                            "bucket.0.max_length=8192", "bucket.1.strategy=2,2,1", "run.memory_budget=2 GiB",
                            "run.prefetch=false", "data.path=\"quoted\"", "run.steps=30"});
  EXPECT_EQ(draft.job.run.steps, 30);
  EXPECT_EQ(draft.job.run.out, "runs/a b");
  EXPECT_EQ(draft.job.model.config.rope_scaling.factor, 8);
  EXPECT_EQ(draft.buckets[0].max_length, 8192);
  EXPECT_EQ(draft.buckets[1].text, "2,2,1");
  EXPECT_EQ(draft.job.run.memory_budget, Bytes{i64{2} << 30});
  EXPECT_FALSE(draft.job.run.prefetch);
  EXPECT_EQ(draft.job.data.path, "quoted");
}

TEST(JobReader, overrides_may_set_all_buckets_or_add_one) {
  const JobDraft one = draft_of(good_job(), {"bucket=[{max_length = 4096, strategy = \"1,2,2\"}]"});
  ASSERT_EQ(one.buckets.size(), 1u);
  EXPECT_EQ(one.buckets[0].text, "1,2,2");
  const JobDraft three = draft_of(good_job(), {"bucket.2.max_length=64", "bucket.2.strategy={dp = 4}"});
  ASSERT_EQ(three.buckets.size(), 3u);
  EXPECT_EQ(three.buckets[2].max_length, 64);
  EXPECT_EQ(three.buckets[2].degrees.dp, 4);
  const JobDraft from_nothing = draft_of("", {"bucket.0.max_length=64"});
  EXPECT_EQ(from_nothing.buckets.at(0).max_length, 64);
}

TEST(JobReader, sources_are_a_list_inside_data) {
  const std::string text =
      "[data]\nlong_documents = \"clip\"\n[[data.source]]\npath = \"a\"\n[[data.source]]\npath = \"b\"\nweight = 3\n";
  const JobDraft draft = draft_of(text, {"data.source.1.name=web", "data.source.2.path=c"});
  EXPECT_EQ(draft.job.data.sources, (std::vector<DataSource>{{"a", 1, ""}, {"b", 3, "web"}, {"c", 1, ""}}));
  EXPECT_EQ(draft.job.data.long_documents, LongDocuments::clip);
  EXPECT_EQ(draft.where("data.source.1.weight"), "job.toml:7");
  EXPECT_EQ(errors_of("data.source = \"a\""),
            "job.toml:1: data.source must be a list of tables: write [[data.source]] with double brackets above each "
            "source.");
  EXPECT_EQ(errors_of("[[data.source]]\nwieght = 1\n"),
            "job.toml:2: data.source.0.wieght is not a key. Did you mean data.source.0.weight?");
  EXPECT_EQ(errors_of("[[data.source]]\nweight = 0\n"), "job.toml:2: data.source.0.weight = 0 must be above 0.");
  EXPECT_EQ(
      errors_of("", {"data.source.1.path=x"}),
      "--set data.source.1.path=x: data.source.1.path can't be set: of sources the job has none; data.source.0 adds "
      "one.");
  EXPECT_EQ(errors_of("data.source = []"),
            "job.toml:1: data.source is an empty list. Write [[data.source]] above each source, or leave it out.");
}

TEST(JobReader, a_wrong_override_is_named_as_it_was_typed) {
  EXPECT_EQ(errors_of("", {"run.steps=ten"}),
            "--set run.steps=ten: run.steps = \"ten\" is a string; an integer is needed.");
  EXPECT_EQ(errors_of("", {"run.stps=1"}), "--set run.stps=1: run.stps is not a key. Did you mean run.steps?");
  EXPECT_EQ(errors_of("", {"run.steps"}), "--set run.steps: key=value is needed, for example --set run.steps=100.");
  EXPECT_EQ(errors_of("", {"=5"}), "--set =5: key=value is needed, for example --set run.steps=100.");
  for (const std::string entry : {"5", "-1", "x"})
    EXPECT_EQ(errors_of(good_job(), {"bucket." + entry + ".max_length=1"}),
              "--set bucket." + entry + ".max_length=1: bucket." + entry +
                  ".max_length can't be set: of buckets the job has bucket.0 to bucket.1; bucket.2 adds one.");
  EXPECT_THAT(errors_of(good_job(), {"bucket.0.strategy.tp=1"}),
              HasSubstr("bucket.0.strategy.tp can't be set: what precedes its last dot is not a table"));
  EXPECT_EQ(errors_of("", {"seed=99999999999999999999"}),
            "--set seed=99999999999999999999: seed = 99999999999999999999 is out of range; an integer is needed.");
  EXPECT_EQ(errors_of("", {"run.steps=-99999999999999999999"}),
            "--set run.steps=-99999999999999999999: run.steps = -99999999999999999999 is out of range; an integer is "
            "needed.");
  EXPECT_EQ(errors_of("", {"optimizer.name=sgd"}),
            "--set optimizer.name=sgd: optimizer.name is not a key. `switchyard train --help-keys` lists all keys.");
  EXPECT_THAT(errors_of(good_job(), {"run.steps=1\nrun.ranks=2"}), HasSubstr("run.steps"));
  EXPECT_THAT(errors_of(good_job(), {"run=5"}), HasSubstr("--set run=5: run = 5 is an integer; a table is needed"));
}

}  // namespace
}  // namespace switchyard::config
