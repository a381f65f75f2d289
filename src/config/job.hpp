// The job: all settings of a training run, resolved once and constant from then on. Read from TOML; every key is
// a row of the table in job_keys.cpp, which also writes the help, the reference page and the resolved job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "cluster/device_type.hpp"
#include "config/model.hpp"
#include "config/strategy.hpp"
#include "config/switch_planner.hpp"

namespace switchyard::config {

/// Documents longer than the context: cut in pieces of at most `context` tokens, each a sequence of its own; cut off;
/// refused.
enum class LongDocuments { split, clip, error };
/// After the warm-up: cosine and linear fall to min_lr; wsd (warm-up, stable, decay) falls at the end only;
/// inverse_sqrt falls as 1 / sqrt(step).
enum class LearningRateSchedule { cosine, linear, constant, wsd, inverse_sqrt };
using cluster::DeviceType;

/// path: folder with config.json and weights; empty: weights are drawn. With a path the sizes come by resolve_model,
/// but for keys that were given beside it.
struct ModelSettings {
  std::string path;
  std::vector<std::string> changed;  // names of these keys, as "model.rope_theta", in the order of the table
  ModelConfig config;
  bool operator==(const ModelSettings&) const = default;
};

/// A corpus that a job draws from. weight: its share of the tokens is this over the sum of all weights.
struct DataSource {
  std::string path;  // folder made by `data prepare`
  double weight = 1;
  std::string name;  // in log and report
  bool operator==(const DataSource&) const = default;
};

/// Either one path or several sources.
struct DataSettings {
  std::string path;  // folder made by `data prepare`
  std::vector<DataSource> sources;
  LongDocuments long_documents = LongDocuments::split;
  bool operator==(const DataSettings&) const = default;
};

/// Documents that are not trained, whose loss is computed every so many steps and after the last one: each time the
/// same ones, under the same strategies. Neither a path nor sources: none.
struct ValidationSettings {
  std::string path;
  std::vector<DataSource> sources;
  i64 every = 100;      // steps; 0: only after the last one
  i64 sequences = 128;  // documents
  bool operator==(const ValidationSettings&) const = default;
};

/// The global batch: a number of documents or of tokens; the other is 0. context: longest document, in tokens.
/// lengths: for planning and simulating instead of data's: "full" or a file; empty: none.
struct BatchSettings {
  i64 sequences = 0, tokens = 0, context = 0;
  std::string lengths;
  bool operator==(const BatchSettings&) const = default;
};

/// Documents up to max_length tokens and above the next bucket's max_length run under `strategy`.
struct Bucket {
  i64 max_length = 0;
  std::vector<Degrees> degrees;  // from which the strategy's groups follow once the model's layers are known; none:
                                 // groups as given
  Strategy strategy;
  bool operator==(const Bucket&) const = default;
};

/// AdamW with decoupled weight decay.
struct OptimizerSettings {
  double lr = 3e-4, min_lr = 0;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  double clip_norm = 1;  // 0: no clipping
  LearningRateSchedule schedule = LearningRateSchedule::cosine;
  i64 warmup_steps = 0;
  i64 decay_steps = 0;     // steps after which min_lr is reached; 0: run.steps, of the run that began
  i64 cooldown_steps = 0;  // wsd: steps of its decay; 0: a tenth of decay_steps
  bool operator==(const OptimizerSettings&) const = default;
};

/// Buckets of which each step may choose (RunSettings::choose_buckets), at most: it compares all sets of them.
inline constexpr std::size_t kMostChosenFrom = 6;

struct RunSettings {
  i64 steps = 0;
  int ranks = 0;
  std::string precision = "auto";  // auto, fp64, fp32, bf16
  Bytes memory_budget{0};          // per rank; 0: unlimited
  i64 checkpoint_every = 0;        // steps; 0: only when the run ends
  i64 keep_checkpoints = 2;        // newest ones kept; 0: all
  bool async_save = true;          // checkpoints are written from copies while training goes on
  bool save_last = true;           // a checkpoint when the run ends
  std::string out;                 // run folder; empty: nothing is written
  i64 log_every = 1;               // steps between lines on the terminal
  i64 trace_step = 2;              // whose timeline goes to the run folder; 0: none
  int threads = 0;                 // per rank; 0: cores of its host / ranks on it
  DeviceType device = DeviceType::automatic;
  std::string profile;            // with which a job without strategies is planned; empty: this machine's own
  int home = 0;                   // bucket whose strategy anchors the home of master weights and moments
  std::vector<int> order;         // buckets as a step runs them; empty: as batch::published_order
  bool choose_buckets = false;    // each step uses those that take the least time; several may have the same max_length
  bool prefetch = true;           // next switch under the running strategy's computation
  bool overlap = true;            // collectives of tensor parallel ranks under products
  bool overlap_transfers = true;  // what runs gather and reduce under those of other units
  std::string emulate;            // cluster whose time steps are given in; empty: this machine's own
  bool operator==(const RunSettings&) const = default;
};

struct FabricSettings {
  Seconds timeout{30};
  bool strict = false;
  bool nccl = true;               // between devices of several processes
  bool deterministic = true;      // sums have the order of their partials, also where a library could make them
  std::string interface;          // name or network; empty: that of the master's address
  std::string token, token_file;  // the job's secret, or the file that has it; at most one is given
  bool operator==(const FabricSettings&) const = default;
};

/// Where a run's figures go beside its folder.
struct LogSettings {
  bool wandb = false;
  bool operator==(const LogSettings&) const = default;
};

struct Job {
  i64 seed = 1;
  ModelSettings model;
  DataSettings data;
  ValidationSettings validation;
  BatchSettings batch;
  std::vector<Bucket> buckets;  // longest first
  OptimizerSettings optimizer;
  RunSettings run;
  LogSettings log;
  FabricSettings fabric;
  SwitchPlanner switch_planner = SwitchPlanner::relay;
  bool operator==(const Job&) const = default;
};

/// Reads a job file. sets: "dotted.key=value" overrides, applied in order before anything is checked; bucket keys are
/// "bucket.0.max_length". Sizes from a preset or written out are resolved and validated at once; a model.path or a
/// missing vocabulary size waits for resolve_model, resolve_vocab. One UserError lists all errors, a line each: where,
/// what, remedy.
Job load_job(const std::string& path, const std::vector<std::string>& sets = {});
/// The same from text; origin: its file name in messages, and the folder that `file = "strategy.json"` is relative to.
Job job_from_toml(const std::string& text, const std::string& origin, const std::vector<std::string>& sets = {});

/// The job's corpora: those of [[data.source]], or data.path as the only one, without a name; none if there is neither.
std::vector<DataSource> sources_of(const Job& job);
/// The same of its validation.
std::vector<DataSource> validation_sources_of(const Job& job);
/// The lists of sources of a job file, by their names: "data.source", "validation.source".
std::vector<std::pair<std::string, std::vector<DataSource>*>> source_lists(Job& job);

/// Whether model.path was given and its config.json has not been resolved yet.
bool needs_model(const Job& job);
/// Whether the vocabulary size is still open: the data's meta.json has it.
bool needs_vocab(const Job& job);
/// Takes the model read from model.path, with the changes of keys that the job gives beside it, and cuts the buckets'
/// strategies over its layers. A rotary model has at least batch.context as max_positions then. UserError if its family
/// does not know a changed key.
void resolve_model(Job& job, const ModelConfig& model);
/// Sets the vocabulary size, in tokens. UserError unless positive.
void resolve_vocab(Job& job, i64 vocab_size);
/// Sets the device where the job leaves it open.
void resolve_device(Job& job, DeviceType type);
/// Checks the whole job once resolved: model, strategies against model and run.ranks, home. UserError lists all errors.
void validate(const Job& job);

/// The job as TOML, complete but for secrets: reading it back gives an equal job (where model.path is given, once
/// resolved again).
std::string to_toml(const Job& job);
/// Hash of everything that all ranks must agree on; keys that only concern one rank's output or threads are left out.
std::uint64_t fingerprint(const Job& job);
/// Hash of the part of a job for which a plan was made: model, batches, buckets and their order.
std::uint64_t plan_fingerprint(const Job& job);
/// The same of what decides the plans of trained steps: without batch.lengths, which training doesn't read.
std::uint64_t trained_fingerprint(Job job);

/// All keys with type, default, unit and meaning, for the terminal (`--help-keys`).
std::string help_keys();
/// The same as a page in Markdown: docs/job-reference.md.
std::string job_reference_markdown();

std::string_view name_of(LongDocuments value);
std::string_view name_of(LearningRateSchedule value);

}  // namespace switchyard::config
