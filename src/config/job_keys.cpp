#include "config/job_keys.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/errors.hpp"
#include "config/key_row.hpp"

namespace switchyard::config {
namespace {

// Bounds of what is listed in memory, so that a slip of the keyboard is reported before the memory is gone. All are
// several times what is published.
constexpr double kMostRanks = 1 << 16;      // 16384 devices trained LLaMA 3 405B
constexpr double kMostThreads = 1024;       // hardware threads of the largest hosts
constexpr double kMostLayers = 2048;        // the deepest that were trained have 1000
constexpr double kMostDocuments = 1 << 18;  // per step: at 500 tokens each twice the largest global batches
constexpr double kMostTokens = 1 << 29;     // per step: the largest global batches have 60 million
constexpr double kMostContext = 1 << 24;    // per document: the longest contexts have 10 million
constexpr double kMostSteps = 1e9;          // a year of steps of 30 ms

constexpr auto kJob = &JobDraft::job;
template <auto... Members>
using Model = Row<kJob, &Job::model, &ModelSettings::config, Members...>;
template <auto Member>
using Scaling = Model<&ModelConfig::rope_scaling, Member>;
template <auto Member>
using Batch = Row<kJob, &Job::batch, Member>;
template <auto Member>
using Validation = Row<kJob, &Job::validation, Member>;
template <auto Member>
using Optimizer = Row<kJob, &Job::optimizer, Member>;
template <auto Member>
using Run = Row<kJob, &Job::run, Member>;

using Keys = std::vector<Key<JobDraft>>;

Keys model_size_keys() {
  return {
      Row<&JobDraft::model_preset>("model.preset",
                                   "Model of published sizes: " + model_preset_names() + ". Excludes path and sizes.")
          .fallback("none")
          .same_function(),
      Row<kJob, &Job::model, &ModelSettings::path>(
          "model.path",
          "Folder with config.json and *.safetensors in Hugging Face's format; training continues from its weights. "
          "Excludes preset and sizes; beside it, max_positions, rope_theta, rope_scaling, attention and dropout may be "
          "changed.")
          .fallback("none")
          .same_function(),
      Model<&ModelConfig::family>("model.architecture", "Family of the model; it also decides biases and norms."),
      Model<&ModelConfig::hidden_size>("model.hidden_size", "Width of the residual stream.")
          .unit("features")
          .at_least(1)
          .fallback("required"),
      Model<&ModelConfig::layers>("model.layers", "Transformer layers.")
          .at_least(1)
          .at_most(kMostLayers)
          .fallback("required"),
      Model<&ModelConfig::heads>("model.heads", "Query heads.").at_least(1).fallback("required"),
      Model<&ModelConfig::kv_heads>("model.kv_heads", "Key/value heads; fewer than heads is grouped-query attention.")
          .at_least(1)
          .fallback("heads"),
      Model<&ModelConfig::head_dim>("model.head_dim", "Size of a head.")
          .unit("features")
          .at_least(1)
          .fallback("hidden_size / heads"),
      Model<&ModelConfig::ffn_size>("model.ffn_size", "Inner width of the feed-forward block.")
          .unit("features")
          .at_least(1)
          .fallback("required; gpt2: 4 * hidden_size"),
      Model<&ModelConfig::vocab_size>("model.vocab_size", "Size of the vocabulary.")
          .unit("tokens")
          .at_least(1)
          .fallback("the preset's, or the data's"),
      Model<&ModelConfig::max_positions>("model.max_positions",
                                         "gpt2: number of learned positions. Other families: only written to "
                                         "config.json, and not with rope_scaling of type dynamic.")
          .unit("tokens")
          .at_least(1)
          .fallback("batch.context; with model.path: that of its config.json, if that is not less")
          .beside_path(),
      Model<&ModelConfig::norm_eps>("model.norm_eps", "Added to the variance in norms.").above(0),
      Model<&ModelConfig::rope_theta>("model.rope_theta", "Base of the rotary frequencies.").above(0).beside_path(),
  };
}

Keys rope_scaling_keys() {
  return {
      Scaling<&RopeScaling::type>(
          "model.rope_scaling.type",
          "How rotary frequencies are scaled for a longer context; names and formulas are Hugging Face's. dynamic: by "
          "the length of each document by itself.")
          .beside_path(),
      Scaling<&RopeScaling::factor>("model.rope_scaling.factor",
                                    "How much longer the context becomes by rotary scaling; 0 disables it. Needed "
                                    "beside the other keys of rope_scaling.")
          .at_least(0)
          .beside_path(),
      Scaling<&RopeScaling::low_freq_factor>("model.rope_scaling.low_freq_factor",
                                             "llama3: wavelengths above original_context / low_freq_factor are scaled.")
          .above(0)
          .beside_path(),
      Scaling<&RopeScaling::high_freq_factor>("model.rope_scaling.high_freq_factor",
                                              "llama3: wavelengths below original_context / high_freq_factor are kept.")
          .above(0)
          .beside_path(),
      Scaling<&RopeScaling::beta_slow>("model.rope_scaling.beta_slow",
                                       "yarn: frequencies of fewer turns within original_context are scaled.")
          .above(0)
          .beside_path(),
      Scaling<&RopeScaling::beta_fast>("model.rope_scaling.beta_fast",
                                       "yarn: frequencies of more turns within original_context are kept.")
          .above(0)
          .beside_path(),
      Scaling<&RopeScaling::attention_factor>("model.rope_scaling.attention_factor",
                                              "yarn: multiplies rotated queries and keys.")
          .at_least(0)
          .fallback("0: 0.1 ln(factor) + 1")
          .beside_path(),
      Scaling<&RopeScaling::original_context>("model.rope_scaling.original_context",
                                              "llama3, yarn, dynamic: context before scaling; of dynamic it is "
                                              "the max_position_embeddings in config.json.")
          .unit("tokens")
          .above(0)
          .fallback("8192; with model.path: what its config.json says")
          .beside_path(),
  };
}

Keys model_option_keys() {
  return {
      Model<&ModelConfig::tied_embeddings>("model.tied_embeddings", "One matrix for embedding and head.")
          .fallback("false; gpt2: true"),
      Model<&ModelConfig::qkv_bias>("model.qkv_bias", "Biases on q, k and v.").fallback("false; qwen2, gpt2: true"),
      Model<&ModelConfig::o_bias>("model.o_bias", "Bias on the attention output.").fallback("false; gpt2: true"),
      Model<&ModelConfig::mlp_bias>("model.mlp_bias", "Biases in the feed-forward block.")
          .fallback("false; gpt2: true"),
      Model<&ModelConfig::qk_norm>("model.qk_norm", "RMSNorm on each head of q and k.").fallback("false; qwen3: true"),
      Model<&ModelConfig::gelu_tanh>("model.gelu_tanh",
                                     "gpt2: the tanh form of GELU (gelu_new); false: the exact one."),
      Model<&ModelConfig::attention>(
          "model.attention",
          "fused: attention scores are never stored whole. unfused: they are stored, as in plain GPT-2, which takes "
          "memory in proportion to the squared lengths of documents.")
          .same_function()
          .beside_path(),
      Model<&ModelConfig::dropout>(
          "model.dropout",
          "gpt2 with unfused attention: dropout of attention weights, outputs of blocks and the embedding. The dropout "
          "in the config.json of model.path is not read.")
          .at_least(0)
          .below(1)
          .fallback("0; gpt2 with unfused attention: 0.1")
          .beside_path(),
      Model<&ModelConfig::initializer_range>("model.initializer_range", "Standard deviation of initial weights.")
          .at_least(0)
          .same_function(),
  };
}

/// What a strategy says besides who computes what; `Settings`: where the owner keeps it.
template <auto Settings>
auto settings_keys() {
  using S = StrategySettings;
  return std::vector<Key<typename OwnerOf<Settings>::Owner>>{
      Row<Settings, &S::recompute>(
          "recompute",
          "forward work that the backward pass repeats instead of keeping activations: none; what "
          "tensor parallel ranks gather (gathers); attention, too (selective); or all (full)."),
      Row<Settings, &S::schedule>(
          "schedule",
          "pipeline schedule; zero-bubble, zb-v and zeropp compute weight gradients separately from input gradients; "
          "zeropp takes blocks of `every` micro-batches through one chunk after the other, for zero 3."),
      Row<Settings, &S::chunks>("chunks",
                                "model chunks per pipeline stage, for schedules interleaved, zb-v and zeropp.")
          .at_least(0)
          .at_most(64)
          .fallback("0: 2 for interleaved, zb-v and zeropp, else 1"),
      Row<Settings, &S::activation_cap>(
          "activation_cap",
          "most activations that a stage holds, each of one chunk and micro-batch, for schedules zero-bubble and zb-v.")
          .at_least(0)
          .at_most(kMostDocuments)
          .fallback("0: the memory of 1f1b"),
      Row<Settings, &S::sequence_parallel>(
          "sequence_parallel", "split activations between blocks by tokens over the tensor parallel ranks, too."),
      Row<Settings, &S::micro_batch_tokens>("micro_batch_tokens", "most tokens of a micro-batch.")
          .unit("tokens")
          .at_least(0)
          .at_most(kMostTokens)
          .fallback("0: the bucket's max_length, times micro_batch_sequences if given"),
      Row<Settings, &S::micro_batch_sequences>("micro_batch_sequences", "most documents of a micro-batch.")
          .unit("documents")
          .at_least(0)
          .at_most(kMostDocuments)
          .fallback("0: any number"),
      Row<Settings, &S::paired>(
          "paired",
          "run two micro-batches of a replica at a time: while the ranks of a stage exchange what one needs (tensor "
          "parallelism, ulysses), they compute the other one. Takes memory for the activations of both, so halve "
          "micro_batch_tokens with it; run.overlap = false switches it off. Source: arXiv 2409.15241."),
      Row<Settings, &S::packing>(
          "packing",
          "balanced spreads documents so that replicas and micro-batches have equal work. stream is the usual default "
          "of "
          "other programs, to compare with: documents in the data's order fill rows of micro_batch_tokens, replicas "
          "get "
          "rows in turn, and with ulysses or ring each document is padded to a multiple of 2 * ulysses * ring."),
      Row<Settings, &S::ring_degree>(
          "ring_degree",
          "with ring: document cuts each document into as many parts as make a step quickest, from 1 up to ring; "
          "uniform cuts all of a micro-batch into equally many, to compare with. Under packing = stream all documents "
          "have ring parts."),
      Row<Settings, &S::exchange>(
          "exchange",
          "with ring: how keys and values come to the ranks whose queries see them. gather brings all together before "
          "attention. ring: keys of one rank at a time, received while attention uses the previous ones (MPI, TCP), "
          "with room for two at a time instead of all."),
      Row<Settings, &S::zero>(
          "zero",
          "ZeRO stage: 0 keeps the optimizer's state on every rank that stores the parameter, as "
          "the bucket run.home says, 1 keeps it once; 2 also cuts gradients over the ranks that would "
          "hold copies, and reduces them after each micro-batch; 3 cuts parameters, too, and "
          "gathers each layer's before it is computed.")
          .at_least(0)
          .at_most(3),
      Row<Settings, &S::every>(
          "every",
          "with zero 3 or depth: so many micro-batches share what is gathered and reduced for them, so that each "
          "layer's parameters are gathered twice and its gradients reduced once for so many; a rank then has the "
          "parameters and gradients of up to two stages, or chunks of stages, at a time, not of two layers. Schedule "
          "zeropp with several stages needs 2 or more; with 2 * stages - 1 no stage has to wait for another one.")
          .at_least(1)
          .at_most(kMostDocuments),
  };
}

std::vector<std::string> names_of(std::initializer_list<codecs::Codec> codecs) {
  std::vector<std::string> names;
  for (const codecs::Codec codec : codecs) names.emplace_back(name_of(codec));
  return names;
}

/// How a strategy's messages are encoded.
template <auto Settings>
auto compression_keys() {
  using S = StrategySettings;
  using C = Compression;
  using codecs::Codec;
  const std::vector<std::string> any =
      names_of({Codec::none, Codec::bf16, Codec::fp8, Codec::int8, Codec::zfp16, Codec::zfp8, Codec::lossless});
  std::vector<std::string> of_gradients = any;
  for (const Codec codec : {Codec::int4, Codec::top_32, Codec::top_128}) of_gradients.emplace_back(name_of(codec));
  return std::vector<Key<typename OwnerOf<Settings>::Owner>>{
      Row<Settings, &S::compression, &C::gradients>(
          "compression.gradients",
          "codec of gradients on their way to where they are summed: from runs (depth, ZeRO-2 and 3), and home. Each "
          "partial sum is encoded once and added in fp32.")
          .one_of(std::move(of_gradients)),
      Row<Settings, &S::compression, &C::error_feedback>(
          "compression.error_feedback",
          "whether ranks keep what a lossy codec of gradients loses and add it to the next gradients that they send of "
          "the same elements. auto: with top-1-of-32 and top-1-of-128, with which training needs it. It takes memory "
          "for a number of each element that a rank sends, and is part of checkpoints."),
      Row<Settings, &S::compression, &C::pipeline>(
          "compression.pipeline", "codec of activations, and of their gradients, between pipeline stages.")
          .one_of(any),
      Row<Settings, &S::compression, &C::activations>(
          "compression.activations",
          "codec of activations, and of their gradients, that the ranks of a stage exchange for tensor parallelism "
          "(tp). Statistics of norms and losses are never encoded.")
          .one_of(any),
      Row<Settings, &S::compression, &C::ulysses>("compression.ulysses",
                                                  "codec of activations, and of their gradients, that the ranks of a "
                                                  "stage exchange to get from tokens to heads "
                                                  "and back (ulysses).")
          .one_of(any),
      Row<Settings, &S::compression, &C::keys>(
          "compression.keys",
          "codec of keys and values of attention, and of their gradients, between ring ranks. A rank computes with its "
          "own ones as they are.")
          .one_of(any),
      Row<Settings, &S::compression, &C::gathers>(
          "compression.gathers",
          "codec of parameters that are gathered for runs (depth, ZeRO-3). A rank computes with its own part as it is.")
          .one_of(any),
      Row<Settings, &S::compression, &C::switches>(
          "compression.switches",
          "codec of parameters that a hot switch brings to the strategy, and of sums of gradients that go from home's "
          "owners to its other copies (zero = 0). They must be the same on all ranks that have copies, so no other "
          "codec than lossless is possible.")
          .one_of(names_of({Codec::none, Codec::lossless})),
      Row<Settings, &S::compression, &C::links>(
          "compression.links", "whose messages are encoded: those of all links, or only those between hosts."),
      Row<Settings, &S::compression, &C::smallest>(
          "compression.smallest",
          "messages of fewer bytes travel as they are: there is little to save. bench/results/codecs.md, written by "
          "bench/codecs_table.py, has the sizes from which each codec pays. Where the planner chooses the strategies "
          "and this is not set, it is the size from which all of the job's codecs that gain do so on the planned "
          "cluster, by its profile.")
          .at_least(0),
  };
}

Keys parallel_keys() {
  Keys keys = settings_keys<&JobDraft::settings>();
  for (Key<JobDraft>& key : keys) key.name = "parallel." + key.name;
  const Keys of_messages = compression_keys<&JobDraft::settings>();
  keys.insert(keys.end(), of_messages.begin(), of_messages.end());
  for (Key<JobDraft>& key : keys) key.meaning = "For all strategies: " + key.meaning;
  return keys;
}

std::vector<Key<BucketDraft>> strategy_keys() {
  std::vector<Key<BucketDraft>> keys = settings_keys<&BucketDraft::settings>();
  for (Key<BucketDraft>& key : keys) key.fallback = "parallel." + key.name;
  for (Key<BucketDraft> key : compression_keys<&BucketDraft::settings>()) {
    key.fallback = key.name;
    keys.push_back(std::move(key));
  }
  for (Key<BucketDraft>& key : keys) {
    key.meaning = fmt::format("Same as {}, for this bucket.", key.fallback);
    key.name = "strategy." + key.name;
  }
  return keys;
}

Keys data_keys() {
  return {
      Row<kJob, &Job::data, &DataSettings::path>("data.path",
                                                 "Folder made by `switchyard data prepare`. Excludes "
                                                 "[[data.source]].")
          .fallback("none"),
      Row<kJob, &Job::data, &DataSettings::long_documents>(
          "data.long_documents",
          "What to do with documents above batch.context: split them into several, clip them, or end with an error."),
      Validation<&ValidationSettings::path>(
          "validation.path",
          "Folder made by `switchyard data prepare`, of documents whose loss is computed as training goes on. Excludes "
          "[[validation.source]].")
          .fallback("none"),
      Validation<&ValidationSettings::every>("validation.every",
                                             "Steps between validations; 0: only after the last step, where there is "
                                             "always one, unless a signal ends the run then.")
          .unit("steps")
          .at_least(0),
      Validation<&ValidationSettings::sequences>("validation.sequences",
                                                 "Documents of a validation, always the same; no more than there are.")
          .unit("documents")
          .at_least(1)
          .at_most(kMostDocuments),
      Batch<&BatchSettings::sequences>("batch.sequences", "Documents of a global batch. Excludes tokens.")
          .unit("documents")
          .at_least(1)
          .at_most(kMostDocuments)
          .fallback("none"),
      Batch<&BatchSettings::tokens>("batch.tokens",
                                    "Target of tokens of a global batch: whole documents are taken until it is "
                                    "reached, so a batch may have more, by "
                                    "less than its last document. Excludes sequences.")
          .unit("tokens")
          .at_least(1)
          .at_most(kMostTokens)
          .fallback("none"),
      Batch<&BatchSettings::context>("batch.context", "Longest document.")
          .unit("tokens")
          .at_least(1)
          .at_most(kMostContext)
          .fallback("required"),
      Batch<&BatchSettings::lengths>(
          "batch.lengths",
          "Document lengths for simulate, plan and show in place of the data's: \"full\" (every document is as long as "
          "the context), \"commoncrawl\" or \"github\" (models of these corpora, recipes/lengths), or the path of a "
          "histogram "
          "written by `data stats --json`.")
          .fallback("the data's"),
      Row<&JobDraft::parallel_preset>(
          "parallel.preset",
          "Published buckets and strategies, such as \"hotspa/7b-16gpu-commoncrawl\", used where no [[bucket]] is "
          "given; "
          "bounds above batch.context are dropped. Also sets run.ranks if that is not given.")
          .fallback("none"),
  };
}

Keys optimizer_keys() {
  return {
      Optimizer<&OptimizerSettings::lr>("optimizer.lr", "Highest learning rate of AdamW.").at_least(0),
      Optimizer<&OptimizerSettings::min_lr>("optimizer.min_lr", "Learning rate after decay.").at_least(0),
      Optimizer<&OptimizerSettings::schedule>(
          "optimizer.schedule",
          "Shape of the learning rate's decay from lr to min_lr after warm-up. wsd: "
          "stays at lr, and falls over the last cooldown_steps; inverse-sqrt: falls "
          "with the root of the step, without an end."),
      Optimizer<&OptimizerSettings::warmup_steps>("optimizer.warmup_steps",
                                                  "Steps over which the learning rate rises from 0 to lr.")
          .unit("steps")
          .at_least(0),
      Optimizer<&OptimizerSettings::decay_steps>("optimizer.decay_steps",
                                                 "cosine, linear, wsd: steps after which min_lr is reached.")
          .unit("steps")
          .at_least(0)
          .fallback("0: run.steps; a resumed run keeps its own"),
      Optimizer<&OptimizerSettings::cooldown_steps>("optimizer.cooldown_steps",
                                                    "wsd: steps over which the learning rate falls from lr to min_lr.")
          .unit("steps")
          .at_least(0)
          .fallback("0: a tenth of decay_steps"),
      Optimizer<&OptimizerSettings::beta1>("optimizer.beta1", "Decay of the first moment.").at_least(0).below(1),
      Optimizer<&OptimizerSettings::beta2>("optimizer.beta2", "Decay of the second moment.").at_least(0).below(1),
      Optimizer<&OptimizerSettings::eps>("optimizer.eps", "Added to the root of the second moment.").above(0),
      Optimizer<&OptimizerSettings::weight_decay>("optimizer.weight_decay",
                                                  "Decoupled decay of tensors of two or more dimensions.")
          .at_least(0),
      Optimizer<&OptimizerSettings::clip_norm>(
          "optimizer.clip_norm", "Global gradient norm above which gradients are clipped; 0 disables clipping.")
          .at_least(0),
  };
}

Keys run_keys() {
  return {
      Run<&RunSettings::steps>("run.steps", "Optimizer steps.")
          .unit("steps")
          .at_least(1)
          .at_most(kMostSteps)
          .fallback("required"),
      Run<&RunSettings::ranks>("run.ranks", "Ranks of the run.")
          .at_least(1)
          .at_most(kMostRanks)
          .fallback("what the strategies need"),
      Run<&RunSettings::precision>(
          "run.precision",
          "Precision of parameters and activations in computation. auto: bf16 where the device is "
          "fast at it, else fp32.")
          .one_of({"auto", "fp64", "fp32", "bf16"}),
      Run<&RunSettings::memory_budget>("run.memory_budget",
                                       "Memory that each rank may use, enforced; \"none\" is unlimited.")
          .at_least(0),
      Run<&RunSettings::checkpoint_every>("run.checkpoint_every",
                                          "Steps between checkpoints; 0: only when the run ends.")
          .unit("steps")
          .at_least(0),
      Run<&RunSettings::save_last>(
          "run.save_last",
          "Save a checkpoint when the run ends: after its last step, after the step in which a signal stops it, or "
          "before a step that is refused."),
      Run<&RunSettings::keep_checkpoints>("run.keep_checkpoints", "Number of newest checkpoints to keep; 0 keeps all.")
          .at_least(0),
      Run<&RunSettings::async_save>(
          "run.async_save",
          "Write checkpoints while training goes on, from a copy that each rank makes of what it keeps of master "
          "weights "
          "and moments. A rank without memory for it waits; false: all wait, and nothing is copied."),
      Run<&RunSettings::out>("run.out", "Folder for log, plan, report and checkpoints.").fallback("none").rank_only(),
      Run<&RunSettings::log_every>(
          "run.log_every",
          "Steps between lines of progress. A terminal shows the steps between them on a last line that is rewritten.")
          .unit("steps")
          .at_least(1)
          .rank_only(),
      Run<&RunSettings::trace_step>(
          "run.trace_step", "Step whose measured timeline is written to timeline.json in the run folder; 0 is none.")
          .at_least(0),
      Run<&RunSettings::threads>("run.threads", "Compute threads per rank.")
          .at_least(0)
          .at_most(kMostThreads)
          .fallback("0: cores of its host / ranks on it")
          .rank_only(),
      Run<&RunSettings::device>(
          "run.device",
          "Type of device. auto: cuda where the process has a CUDA device, else cpu; for a cluster that of its "
          "devices. "
          "cuda: each rank uses a device of its own, in the order of the ranks of its host; ranks that are threads of "
          "one process share devices if there are fewer devices than ranks."),
      Run<&RunSettings::profile>(
          "run.profile",
          "Profile (written by `switchyard profile`) for planning a job without strategies. Default: the saved profile "
          "of this machine, which is measured first if there is none.")
          .fallback("none")
          .rank_only(),
      Run<&RunSettings::home>(
          "run.home", "Bucket (counted from 0) whose strategy decides which ranks hold master weights and moments.")
          .at_least(0),
      Run<&RunSettings::order>("run.order",
                               "Buckets (counted from 0) in the order in which a step runs them, each once.")
          .at_least(0)
          .fallback("the first one, then from the last upward"),
      Run<&RunSettings::choose_buckets>(
          "run.choose_buckets",
          "Each step uses those of the buckets (up to 6) with which its documents take the least time, as simulated on "
          "run.profile: without a bucket its documents join those of the next longer one. Several buckets may have the "
          "same max_length; a step uses one of them."),
      Run<&RunSettings::prefetch>(
          "run.prefetch",
          "Receive the next strategy's parameters while the current one still computes, if memory allows."),
      Run<&RunSettings::overlap>(
          "run.overlap",
          "Exchange activations and their gradients among tensor parallel ranks while products are computed that don't "
          "need them. It changes no result, unless paired micro-batches have tied embeddings: their gradient is then "
          "added up in another order."),
      Run<&RunSettings::overlap_transfers>(
          "run.overlap_transfers",
          "With ZeRO 2 and 3 and depth: gather parameters and reduce gradients while other units are computed. It "
          "changes no result."),
      Run<&RunSettings::emulate>(
          "run.emulate",
          "Cluster whose devices are emulated by the cores of this machine, such as \"2x4:200Mbit/s,800Mbit/s,40MiB\" "
          "(hosts x devices: bandwidth of a host, of a device inside, memory), a cluster by name or file, or a "
          "profile made with --emulate. Ranks are threads of this process, and times of steps are those on the "
          "cluster. Losses are the same, up to the order of sums between hosts.")
          .fallback("none"),
  };
}

Keys fabric_keys() {
  return {
      Row<kJob, &Job::log, &LogSettings::wandb>(
          "log.wandb", "Log to Weights & Biases, too; without the package wandb, a note says that it is left out.")
          .rank_only(),
      Row<kJob, &Job::fabric, &FabricSettings::timeout>(
          "fabric.timeout",
          "Longest time to wait for a silent rank, while no rank computes (time in which any rank computes doesn't "
          "count), before the job ends with an error. Slow disks do not count as silence.")
          .above(0)
          .at_most(1e6),
      Row<kJob, &Job::fabric, &FabricSettings::strict>(
          "fabric.strict", "Check order and size of every message, and poison buffers; slow, for debugging."),
      Row<kJob, &Job::fabric, &FabricSettings::nccl>(
          "fabric.nccl",
          "With run.device = \"cuda\" and a process for each rank, messages between devices go by NCCL; false: by way "
          "of the hosts' memory, which is slower."),
      Row<kJob, &Job::fabric, &FabricSettings::deterministic>(
          "fabric.deterministic",
          "Sums over ranks are made in the order of their partials by any fabric; false: NCCL's own reduce-scatter and "
          "all-reduce may be used, in NCCL's order. What is gathered is the same either way, and on CPUs it changes "
          "nothing."),
      Row<kJob, &Job::fabric, &FabricSettings::interface>(
          "fabric.interface",
          "Network interface for TCP connections between ranks: a name, or a network such as \"10.0.0.0/8\" if hosts "
          "name it differently.")
          .fallback("SWITCHYARD_INTERFACE, else the interface of MASTER_ADDR")
          .rank_only(),
      Row<kJob, &Job::fabric, &FabricSettings::token>("fabric.token",
                                                      "Secret of the job: over TCP, a process that does not know it "
                                                      "can't join. It is never sent, written or shown.")
          .fallback("the content of fabric.token_file, else torchrun's run id")
          .secret(),
      Row<kJob, &Job::fabric, &FabricSettings::token_file>(
          "fabric.token_file", "File with the token. It should be readable by the ranks of the job and nobody else.")
          .fallback("SWITCHYARD_TOKEN_FILE")
          .rank_only(),
      Row<kJob, &Job::switch_planner>("switch.planner",
                                      "Method that chooses the sender of each slice in a hot switch: relay sends a "
                                      "slice to each host once; the others are baselines."),
  };
}

}  // namespace

const std::vector<Key<JobDraft>>& job_keys() {
  static const Keys keys = [] {
    Keys all{Row<kJob, &Job::seed>("seed", "Seed of initial weights and data order.").at_least(0)};
    for (const Keys& part : {model_size_keys(), rope_scaling_keys(), model_option_keys(), data_keys(), parallel_keys(),
                             optimizer_keys(), run_keys(), fabric_keys()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return keys;
}

const std::vector<Key<DataSource>>& source_keys() {
  static const std::vector<Key<DataSource>> keys{
      Row<&DataSource::path>("path", "Folder made by `switchyard data prepare`.").fallback("required"),
      Row<&DataSource::weight>("weight", "Share of the tokens of this source: its weight over the sum of all weights.")
          .above(0),
      Row<&DataSource::name>("name", "Name in log and report.").fallback("the folder's name"),
  };
  return keys;
}

const std::vector<Key<BucketDraft>>& bucket_keys() {
  static const std::vector<Key<BucketDraft>> keys = [] {
    std::vector<Key<BucketDraft>> all{
        Row<&BucketDraft::max_length>(
            "max_length", "Longest document of this bucket. Buckets are listed from the longest to the shortest.")
            .unit("tokens")
            .at_least(1)
            .at_most(kMostContext)
            .fallback("required"),
        Row<&BucketDraft::text>(
            "strategy",
            "\"dp,tp,pp\": data, tensor and pipeline parallel degrees; or keys as \"dp=2,ulysses=4,zero=0\" (those of "
            "the "
            "table, except names and files, each once, in any order); groups of unlike pipelines side by side as "
            "\"2,2,1 + 1,1,4\"; or a table with the keys below; or a strategy's JSON as text.")
            .fallback("required"),
        Row<&BucketDraft::file>("file", "Path of a strategy in JSON, relative to the job file. Excludes strategy.")
            .fallback("none"),
        Row<&BucketDraft::file>("strategy.file", "The same inside the table; excludes all other keys of the table.")
            .fallback("none"),
        Row<&BucketDraft::degrees, &Degrees::dp>("strategy.dp", "Data parallel degree: parallel pipelines.")
            .at_least(1)
            .at_most(kMostRanks),
        Row<&BucketDraft::degrees, &Degrees::tp>("strategy.tp", "Tensor parallel degree: ranks that share each layer.")
            .at_least(1)
            .at_most(kMostRanks),
        Row<&BucketDraft::degrees, &Degrees::pp>("strategy.pp", "Pipeline parallel degree: number of stages.")
            .at_least(1)
            .at_most(kMostRanks),
        Row<&BucketDraft::degrees, &Degrees::ring>(
            "strategy.ring",
            "Context parallel degree (ring attention): ranks on which the parts of a micro-batch's documents lie, and "
            "which pass keys and values to one another.")
            .at_least(1)
            .at_most(kMostRanks),
        Row<&BucketDraft::degrees, &Degrees::ulysses>(
            "strategy.ulysses",
            "Sequence parallel degree (Ulysses): ranks that share the tokens of a micro-batch, and the heads inside "
            "attention.")
            .at_least(1)
            .at_most(kMostRanks),
        Row<&BucketDraft::degrees, &Degrees::depth>(
            "strategy.depth",
            "Parallel pipelines that share their weights (AxoNN's depth): each rank stores rows of what it computes "
            "with, and a layer's are gathered before each pass.")
            .at_least(1)
            .at_most(kMostRanks),
        Row<&BucketDraft::degrees, &Degrees::inner>("strategy.inner",
                                                    "Factor of tp that cuts weights in their other dim, too "
                                                    "(two-dimensional tensor parallelism). 1: Megatron's.")
            .at_least(1)
            .at_most(kMostRanks),
        Row<&BucketDraft::degrees, &Degrees::inside>(
            "strategy.inside",
            "Which ranks are next to each other: data: those of a stage; pipeline: those of a place on dp, stage after "
            "stage."),
        Row<&BucketDraft::degrees, &Degrees::head_layers>(
            "strategy.head_layers",
            "Layers as which the head counts when layers are split over the pipeline: the last stage has so many "
            "fewer.")
            .at_least(0),
        Row<&BucketDraft::beside>(
            "strategy.beside",
            "Further groups of pipelines, unlike these, on the ranks behind them: \"1,1,4\", or several as \"1,1,4 + "
            "tp=2,pp=2\". They have degrees, inside and head_layers of their own, and the other settings of the first "
            "group.")
            .fallback("none"),
        Row<&BucketDraft::name>("strategy.name", "Name in logs and reports.")
            .fallback("degrees and settings, as --strategy takes them"),
        Row<&BucketDraft::schedule_file>(
            "strategy.schedule_file",
            "Path of a pipeline schedule in JSON, relative to the job file. Excludes strategy.schedule.")
            .fallback("none"),
    };
    const std::vector<Key<BucketDraft>> settings = strategy_keys();
    all.insert(all.end(), settings.begin(), settings.end());
    return all;
  }();
  return keys;
}

const Key<JobDraft>& job_key(std::string_view name) {
  const auto found = std::ranges::find(job_keys(), name, &KeyInfo::name);
  check(found != job_keys().end(), "no key {}", name);
  return *found;
}

std::vector<std::string> function_of(const ModelConfig& model) {
  // Keys that mean nothing to a family get their default.
  const ModelConfig none;
  JobDraft draft;
  ModelConfig& relevant = draft.job.model.config;
  relevant = model;
  if (model.family == Family::gpt2) {
    relevant.rope_theta = none.rope_theta;
    relevant.rope_scaling = none.rope_scaling;
  } else {
    relevant.max_positions = none.max_positions;
    relevant.gelu_tanh = none.gelu_tanh;
    relevant.rope_scaling = config::relevant(model.rope_scaling);
  }
  std::vector<std::string> function;
  for (const Key<JobDraft>& key : job_keys())
    if (key.name.starts_with("model.") && !key.same_function)
      function.push_back(key.name + " = " + toml_literal(key, key.get(draft)));
  return function;
}

std::string wanted(const KeyInfo& key) {
  switch (key.type) {
    case KeyType::boolean:
      return "true or false is needed";
    case KeyType::integer:
      return "an integer is needed";
    case KeyType::integers:
      return "a list of integers such as [0, 2, 1] is needed";
    case KeyType::number:
      return "a number is needed";
    case KeyType::text:
      return "a string is needed";
    case KeyType::choice:
      return fmt::format("one of \"{}\" is needed", fmt::join(key.choices, "\", \""));
    case KeyType::bytes:
      return "an amount of memory such as \"16 GiB\" is needed, or \"none\"";
    case KeyType::duration:
      return "a duration such as \"30 s\" is needed";
  }
  throw InternalError("wanted: unknown type of key");
}

std::string range_words(const KeyRange& range) {
  std::string text;
  if (range.least > -std::numeric_limits<double>::infinity())
    text = fmt::format("{} {}", range.above ? "above" : "at least", range.least);
  if (range.below) text += fmt::format("{}below {}", text.empty() ? "" : " and ", range.most);
  return text;
}

std::string out_of_range(const KeyInfo& key, const KeyValue& value) {
  if (const auto* items = std::get_if<std::vector<i64>>(&value)) {
    for (const i64 item : *items)
      if (const std::string message = out_of_range(key, item); !message.empty())
        return fmt::format("has {}, which {}", item, message);
    return "";
  }
  double number = 0;
  if (const auto* integer = std::get_if<i64>(&value))
    number = static_cast<double>(*integer);
  else if (const auto* real = std::get_if<double>(&value))
    number = *real;
  else
    return "";
  if (!std::isfinite(number)) return "must be finite";
  const KeyRange& range = key.range;
  const bool low = range.above ? !(number > range.least) : !(number >= range.least);
  const bool high = range.below ? !(number < range.most) : !(number <= range.most);
  if (low || (high && range.below)) return "must be " + range_words(range);
  if (high) return fmt::format("must be at most {}", static_cast<i64>(range.most));
  return "";
}

}  // namespace switchyard::config
