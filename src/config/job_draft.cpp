#include "config/job_draft.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>

#include "base/errors.hpp"
#include "base/file_text.hpp"
#include "config/presets.hpp"
#include "config/schedule_json.hpp"

namespace switchyard::config {
namespace {

constexpr i64 kMostRanks = 1 << 16;  // same as run.ranks

bool names(std::string_view message, std::string_view word) {
  const auto inside = [&](size_t at) {
    return at < message.size() && (std::isalnum(static_cast<unsigned char>(message[at])) != 0 || message[at] == '_');
  };
  for (size_t at = message.find(word); at != std::string_view::npos; at = message.find(word, at + 1))
    if ((at == 0 || !inside(at - 1)) && !inside(at + word.size())) return true;
  return false;
}

// "to 256", as a validation calls documents of up to 256 tokens.
bool names_a_range(const std::string& name) {
  return name.starts_with("to ") && name.size() > 3 && name.find_first_not_of("0123456789", 3) == std::string::npos;
}

class Resolver {
 public:
  Resolver(const JobDraft& draft, Errors& errors) : draft_(draft), errors_(errors), job_(draft.job) {}

  Resolution run() {
    if (unread("model"))
      complete_ = false;
    else
      resolve_model_settings();
    resolve_sources();
    check_validation();
    if (!unread("batch")) check_batch();
    check_optimizer();
    if (!job_.fabric.token.empty() && !job_.fabric.token_file.empty())
      error("fabric.token_file", "fabric.token and fabric.token_file exclude each other. Keep one of them.");
    if (draft_.misses("run.steps") && !unread("run") &&
        draft_.misses("batch.lengths"))  // with it the job may be for planning only
      error("run.steps", "run.steps is missing. Say how many optimizer steps to train, such as steps = 100.");
    resolve_buckets();
    check_buckets();
    if (complete_) check_ring_settings();
    resolve_ranks();
    return {std::move(job_), complete_};
  }

 private:
  /// Adds an error of the given key.
  void error(const std::string& key, const std::string& text) { errors_.add(draft_.where(key), text); }

  void model_error(const std::string& key, const std::string& text) {
    error(key, text);
    complete_ = false;
  }

  void bucket_error(const std::string& bucket, const std::string& text) {
    errors_.add(place_of(draft_, bucket, text), text);
    complete_ = false;
  }

  /// Refuses a key that does nothing in this job. Its default may be given: a resolved job lists every key.
  void refuse_unused(std::string_view name, const std::string& why) {
    const Key<JobDraft>& key = job_key(name);
    if (draft_.has(key.name) && key.get(draft_) != key.get(JobDraft()))
      error(key.name, fmt::format("{} = {} has no effect: {}, or leave it out.", key.name,
                                  toml_literal(key, key.get(draft_)), why));
  }

  bool wrong_inside(const std::string& section) const {
    return std::any_of(draft_.faulty.begin(), draft_.faulty.end(),
                       [&](const std::string& key) { return key.starts_with(section); });
  }

  /// Whether the section is not a table, so that nothing is known about its keys.
  bool unread(const std::string& section) const { return draft_.faulty.contains(section + "."); }

  void resolve_model_settings();
  void resolve_written_sizes();
  void check_path();
  void copy_given_model_keys(ModelConfig base);
  void resolve_sources();
  void resolve_sources(const std::string& list, std::vector<DataSource>& sources);
  void check_unread_model_keys();
  void check_validation();
  void check_batch();
  void check_optimizer();
  void resolve_buckets();
  void resolve_preset_buckets();
  std::optional<Strategy> strategy_of(const BucketDraft& bucket, const std::string& name,
                                      std::vector<Degrees>& degrees);
  void check_buckets();
  void check_ring_settings();
  void resolve_ranks();
  std::string first_size_key() const;

  const JobDraft& draft_;
  Errors& errors_;
  Job job_;
  int preset_ranks_ = 0;
  bool complete_ = true;
};

std::string Resolver::first_size_key() const {
  const auto found =
      std::ranges::find_if(kSizeKeys, [&](std::string_view key) { return !draft_.misses(std::string(key)); });
  return found == kSizeKeys.end() ? "" : std::string(*found);
}

void Resolver::resolve_model_settings() {
  const bool preset = !draft_.misses("model.preset"), path = !draft_.misses("model.path");
  const std::string size = first_size_key();
  if (wrong_inside("model.")) complete_ = false;
  if (preset + path + !size.empty() > 1) {
    const std::string first = preset ? "model.preset" : "model.path", second = preset && path ? "model.path" : size;
    model_error(second,
                fmt::format("{} and {} exclude each other. Keep one of a preset, a path, and sizes.", first, second));
  } else if (preset) {
    try {
      if (draft_.has("model.preset")) copy_given_model_keys(model_preset(draft_.model_preset));
    } catch (const UserError& error) {
      model_error("model.preset", error.what());
    }
  } else if (path) {
    check_path();
  } else if (!size.empty()) {
    resolve_written_sizes();
  } else {
    model_error(
        "model",
        fmt::format("there is no model. Give model.preset ({}), model.path, or the sizes hidden_size, layers, heads "
                    "and ffn_size.",
                    model_preset_names()));
  }
  if (!path) check_unread_model_keys();
}

/// A model from a folder has its settings from that folder, but for those that change with the context.
void Resolver::check_path() {
  if (draft_.has("model.path") && draft_.job.model.path.empty())
    model_error("model.path", "model.path is empty. Give a folder with a config.json.");
  for (const KeyInfo& key : job_keys()) {
    if (!key.name.starts_with("model.") || key.name == "model.path" || !draft_.has(key.name)) continue;
    if (key.beside_path) {
      job_.model.changed.push_back(key.name);
    } else {
      model_error(key.name,
                  fmt::format("{} can't be given with model.path, whose config.json has it. Remove it.", key.name));
    }
  }
}

void Resolver::copy_given_model_keys(ModelConfig base) {
  JobDraft result;
  result.job.model.config = std::move(base);
  for (const Key<JobDraft>& key : job_keys()) {
    if (key.name.starts_with("model.") && draft_.has(key.name)) key.set(result, key.get(draft_));
  }
  job_.model.config = result.job.model.config;
}

void Resolver::resolve_written_sizes() {
  copy_given_model_keys(family_defaults(draft_.job.model.config.family));
  ModelConfig& model = job_.model.config;
  const bool gpt2 = model.family == Family::gpt2;
  for (const char* key : {"model.hidden_size", "model.layers", "model.heads", "model.ffn_size"}) {
    if (draft_.misses(key) && !(gpt2 && std::string_view(key) == "model.ffn_size")) {
      model_error(
          key, fmt::format("{} is missing. A model by its sizes needs hidden_size, layers, heads and ffn_size.", key));
    }
  }
  if (draft_.misses("model.vocab_size") && draft_.misses("data.path") && draft_.job.data.sources.empty()) {
    model_error("model.vocab_size",
                "model.vocab_size is missing, and there is no data.path to take it from. Give one of them.");
  }
  if (!complete_) return;
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.head_dim == 0) {
    if (model.hidden_size % model.heads != 0) {
      model_error("model.heads",
                  fmt::format("model.heads = {} does not divide hidden_size = {}. Use a divisor, or give head_dim.",
                              model.heads, model.hidden_size));
      return;
    }
    model.head_dim = model.hidden_size / model.heads;
  }
  if (gpt2 && model.attention == AttentionKind::unfused && draft_.misses("model.dropout")) model.dropout = kGpt2Dropout;
  if (model.ffn_size == 0) model.ffn_size = 4 * model.hidden_size;
  if (model.max_positions == 0) model.max_positions = job_.batch.context;
}

void Resolver::resolve_sources() {
  for (const auto& [list, sources] : source_lists(job_)) {
    const std::string path = list.substr(0, list.find('.')) + ".path";
    if (!draft_.misses(path) && !sources->empty())
      error(path, fmt::format("{} and [[{}]] exclude each other. Keep one of them.", path, list));
    resolve_sources(list, *sources);
  }
}

void Resolver::resolve_sources(const std::string& list, std::vector<DataSource>& sources) {
  std::map<std::string, size_t> names;
  for (size_t i = 0; i < sources.size(); ++i) {
    DataSource& source = sources[i];
    const std::string key = fmt::format("{}.{}", list, i);
    if (source.path.empty() && !draft_.faulty.contains(key + ".path"))
      error(key + ".path", fmt::format("{}.path is missing. Give a folder made by `switchyard data prepare`.", key));
    if (source.name.empty()) source.name = (std::filesystem::path(source.path) / "").parent_path().filename().string();
    if (list == "validation.source" && names_a_range(source.name))
      error(key + ".name",
            fmt::format("{}.name = \"{}\" is what a validation calls a range of lengths. Give the source "
                        "another name.",
                        key, source.name));
    const auto [other, added] = names.try_emplace(source.name, i);
    if (!added && !source.path.empty())
      error(key + ".name", fmt::format("{}.name = \"{}\" is also that of {}.{}. Give each source a name of its own.",
                                       key, source.name, list, other->second));
  }
}

void Resolver::check_unread_model_keys() {
  const bool gpt2 = job_.model.config.family == Family::gpt2;
  std::vector<std::string> given;
  for (const KeyInfo& key : job_keys()) {
    if (!draft_.misses(key.name)) given.push_back(key.name);
    if (gpt2 && key.name.starts_with("model.rope_"))
      refuse_unused(key.name, "gpt2 has learned positions. Set another model.architecture");
  }
  if (gpt2) return;
  refuse_unused("model.gelu_tanh", "only gpt2 has GELU. Set model.architecture = \"gpt2\"");
  if (const auto unread = unread_key(job_.model.config.rope_scaling, given)) model_error(unread->key, unread->fault);
}

void Resolver::check_validation() {
  if (!validation_sources_of(job_).empty() || wrong_inside("validation.")) return;
  for (const char* key : {"validation.every", "validation.sequences"})
    refuse_unused(key, "there is no data to validate with. Give validation.path");
}

void Resolver::check_batch() {
  const bool sequences = !draft_.misses("batch.sequences"), tokens = !draft_.misses("batch.tokens");
  if (sequences && tokens) error("batch.tokens", "batch.sequences and batch.tokens exclude each other. Keep one.");
  if (!sequences && !tokens) error("batch.sequences", "the batch has no size. Give batch.sequences or batch.tokens.");
  if (draft_.misses("batch.context"))
    error("batch.context", "batch.context is missing. Give the longest document in tokens, such as context = 32768.");
}

void Resolver::check_optimizer() {
  if (wrong_inside("optimizer.")) return;
  const OptimizerSettings& optimizer = job_.optimizer;
  using Schedule = LearningRateSchedule;
  const auto refuse = [&](const char* key, const char* others) {
    refuse_unused(
        key, fmt::format("optimizer.schedule \"{}\" doesn't use it. Choose {}", name_of(optimizer.schedule), others));
  };
  const bool constant = optimizer.schedule == Schedule::constant;
  if (constant) {
    refuse("optimizer.min_lr", "a schedule that falls");
  } else if (optimizer.min_lr > optimizer.lr) {
    error("optimizer.min_lr",
          fmt::format("optimizer.min_lr = {} is above lr = {}. Lower it.", optimizer.min_lr, optimizer.lr));
  }
  if (constant || optimizer.schedule == Schedule::inverse_sqrt)
    refuse("optimizer.decay_steps", "\"cosine\", \"linear\" or \"wsd\"");
  else if (optimizer.decay_steps > 0 && optimizer.decay_steps <= optimizer.warmup_steps)
    error("optimizer.decay_steps",
          fmt::format("optimizer.decay_steps = {} is not above warmup_steps = {}: after the warm-up the learning rate "
                      "would be min_lr at once. Raise it, or leave it out.",
                      optimizer.decay_steps, optimizer.warmup_steps));
  if (optimizer.schedule != Schedule::wsd) refuse("optimizer.cooldown_steps", "\"wsd\"");
}

void Resolver::resolve_preset_buckets() {
  if (!draft_.has("parallel.preset") || job_.batch.context == 0) {
    complete_ = false;
    return;
  }
  try {
    const ParallelPreset preset = parallel_preset(draft_.parallel_preset, job_.batch.context);
    preset_ranks_ = preset.ranks;
    for (const PresetBucket& bucket : preset.buckets) {
      BucketDraft draft;
      draft.text = bucket.spec;
      const std::string name = "parallel.preset";
      std::vector<Degrees> degrees;
      const std::optional<Strategy> strategy = strategy_of(draft, name, degrees);
      job_.buckets.push_back({bucket.max_length, degrees, *strategy});
    }
  } catch (const UserError& error) {
    model_error("parallel.preset", error.what());
  }
}

void Resolver::resolve_buckets() {
  if (wrong_inside("bucket") || wrong_inside("parallel.")) complete_ = false;
  if (draft_.buckets.empty() && draft_.misses("bucket")) {
    if (unread("parallel")) return;
    if (draft_.misses("parallel.preset")) {
      error(
          "bucket",
          "there is no [[bucket]] and no [parallel] preset, so there is no strategy. `switchyard plan` finds some and "
          "writes them with --out. For one strategy, write one [[bucket]] with max_length = the context and strategy "
          "= \"dp,tp,pp\".");
      complete_ = false;
    } else {
      resolve_preset_buckets();
    }
    return;
  }
  for (size_t i = 0; i < draft_.buckets.size(); ++i) {
    const std::string name = fmt::format("bucket.{}", i);
    Bucket bucket;
    bucket.max_length = draft_.buckets[i].max_length;
    try {
      const std::optional<Strategy> strategy = strategy_of(draft_.buckets[i], name, bucket.degrees);
      if (strategy) bucket.strategy = *strategy;
    } catch (const UserError& error) {
      bucket_error(name, fmt::format("{}: {}", name, error.what()));
    }
    job_.buckets.push_back(std::move(bucket));
  }
}

std::string read_beside(const std::string& file, const std::string& origin, const char* what) {
  const std::filesystem::path path = std::filesystem::path(origin).parent_path() / file;
  const std::optional<std::string> text = file_text(path);
  if (!text) user_error("can't read the {} file {}. Paths are relative to the job file.", what, path.string());
  return *text;
}

/// The strategy of a bucket in any of its forms; degrees: where it is given by them. Nothing if an error has been
/// reported.
std::optional<Strategy> Resolver::strategy_of(const BucketDraft& bucket, const std::string& name,
                                              std::vector<Degrees>& degrees) {
  const bool in_table = std::any_of(bucket_keys().begin(), bucket_keys().end(), [&](const KeyInfo& key) {
    return key.name.starts_with("strategy.") && key.name != "strategy.file" && !draft_.misses(name + "." + key.name);
  });
  const bool file = !bucket.file.empty(), text = !bucket.text.empty();
  if (in_table + file + text != 1) {
    const bool tried = wrong_inside(name + ".");
    const bool none = in_table + file + text == 0;
    if (!none)
      bucket_error(name,
                   fmt::format("{} has more than one strategy. Keep one of strategy (text or table) and file.", name));
    if (none && !tried) {
      bucket_error(
          name,
          fmt::format(
              "{} has no strategy. Give strategy = \"dp,tp,pp\", a table of settings, or file = \"strategy.json\".",
              name));
    }
    return std::nullopt;
  }
  if (is_auto(bucket)) {
    model_error(
        name + ".strategy",
        fmt::format("{}.strategy = \"auto\", but only `switchyard plan` and `switchyard train` choose strategies, "
                    "and those of all buckets or of none. Give it one, such as \"1,1,1\".",
                    name));
    return std::nullopt;
  }
  if (file) return strategy_from_json(read_beside(bucket.file, draft_.origin, "strategy"), bucket.file);
  if (bucket.text.find_first_not_of(" \t\r\n") != std::string::npos &&
      bucket.text[bucket.text.find_first_not_of(" \t\r\n")] == '{') {
    return strategy_from_json(bucket.text, name + ".strategy");
  }
  degrees = {bucket.degrees};
  if (!bucket.beside.empty()) std::ranges::copy(read_groups_text(bucket.beside), std::back_inserter(degrees));
  BucketDraft merged = bucket;
  merged.settings = shared_settings(draft_.settings, degrees);
  for (const Key<BucketDraft>& key : bucket_keys())
    if (draft_.has(name + "." + key.name)) key.set(merged, key.get(bucket));
  if (text) {
    const StrategyText read = read_strategy_text(bucket.text, draft_.settings);
    degrees = read.groups;
    merged.settings = read.settings;
  }
  Strategy strategy{merged.settings};
  strategy.name = bucket.name.empty() ? to_text(degrees, merged.settings) : bucket.name;
  if (!bucket.schedule_file.empty()) {
    if (draft_.has(name + ".strategy.schedule"))
      user_error("strategy.schedule and strategy.schedule_file exclude each other. Keep one.");
    strategy.order =
        schedule_from_json(read_beside(bucket.schedule_file, draft_.origin, "schedule"), bucket.schedule_file);
  }
  strategy.chunks = strategy.chunk_count();
  return strategy;
}

void Resolver::check_buckets() {
  if (job_.run.choose_buckets && job_.buckets.size() > kMostChosenFrom)
    error("run.choose_buckets",
          fmt::format("run.choose_buckets compares all sets of the buckets in each step, and there "
                      "are {} buckets. Keep at most {}, or leave it out.",
                      job_.buckets.size(), kMostChosenFrom));
  for (size_t i = 0; i < draft_.buckets.size(); ++i) {
    const std::string key = fmt::format("bucket.{}.max_length", i);
    if (draft_.misses(key))
      error(key, fmt::format("{} is missing. Give the longest document of the bucket in tokens.", key));
  }
  const i64 context = job_.batch.context;
  for (size_t i = 0; i < job_.buckets.size(); ++i) {
    const i64 length = job_.buckets[i].max_length, micro_batch = job_.buckets[i].strategy.micro_batch_tokens;
    const std::string key = fmt::format("bucket.{}.max_length", i);
    if (length == 0) return;  // reported separately
    const i64 previous = i > 0 ? job_.buckets[i - 1].max_length : 0;
    if (i > 0 && length == previous && !job_.run.choose_buckets) {
      error(key, fmt::format("{} = {} is also that of bucket.{}. Give each bucket another one, or set "
                             "run.choose_buckets = true, so that each step uses the quicker of them.",
                             key, length, i - 1));
    } else if (i > 0 && length > previous) {
      error(key, fmt::format("{} = {} is above that of bucket.{}, {}. List buckets from the longest to the shortest.",
                             key, length, i - 1, previous));
    }
    if (i == 0 && context > length) {
      error(key, fmt::format("{} = {} is below batch.context = {}: documents of {} to {} tokens have no bucket. Raise "
                             "it to {}, or lower the "
                             "context.",
                             key, length, context, length + 1, context, context));
    }
    const i64 longest = context > 0 ? std::min(length, context) : length;
    if (micro_batch > 0 && micro_batch < longest) {
      const std::string text = fmt::format(
          "bucket.{}: micro_batch_tokens = {} can't hold a document of {} tokens. Raise it, or use 0 for the bucket's "
          "length.",
          i, micro_batch, longest);
      const std::string own = fmt::format("bucket.{}.strategy", i), shared = "parallel.micro_batch_tokens";
      const bool is_own = draft_.has(own + ".micro_batch_tokens") ||
                          (i < draft_.buckets.size() && names(draft_.buckets[i].text, "micro_batch_tokens"));
      errors_.add(place_of(draft_, draft_.has(shared) && !is_own ? shared : own, text), text);
    }
  }
}

void Resolver::check_ring_settings() {
  for (const Bucket& bucket : job_.buckets)
    if (std::ranges::any_of(bucket.degrees, [](const Degrees& degrees) { return degrees.ring > 1; })) return;
  for (const char* key : {"parallel.ring_degree", "parallel.exchange"})
    refuse_unused(key, "no bucket has a ring. Give one a strategy with ring = 2 or more");
}

/// Ranks that the bucket's strategy needs.
i64 ranks_of_bucket(const Bucket& bucket) {
  if (!bucket.degrees.empty()) return ranks_of(bucket.degrees);
  const std::vector<int> ranks = bucket.strategy.ranks();
  return ranks.empty() ? 1 : i64{ranks.back()} + 1;
}

void Resolver::resolve_ranks() {
  if (draft_.faulty.contains("run.ranks")) complete_ = false;
  if (!draft_.misses("run.ranks")) return;
  i64 ranks = std::max(1, preset_ranks_);
  for (const Bucket& bucket : job_.buckets) ranks = std::max(ranks, ranks_of_bucket(bucket));
  job_.run.ranks = static_cast<int>(std::min(ranks, kMostRanks));
}

}  // namespace

std::string place_of(const JobDraft& draft, const std::string& section, std::string_view message) {
  if (draft.has(section)) return draft.where(section);
  const std::string inside = section + ".";
  std::string named, other = draft.origin;
  for (auto at = draft.given.lower_bound(inside); at != draft.given.end() && at->first.starts_with(inside); ++at) {
    if (names(message, std::string_view(at->first).substr(at->first.rfind('.') + 1)) &&
        (named.empty() || named.starts_with(draft.origin)))
      named = at->second;
    if (section.starts_with("bucket.") && (other == draft.origin || !at->first.ends_with(".max_length")))
      other = at->second;
  }
  return named.empty() ? other : named;
}

bool is_auto(const BucketDraft& bucket) { return bucket.text == "auto"; }

Resolution resolve(const JobDraft& draft, Errors& errors) { return Resolver(draft, errors).run(); }

}  // namespace switchyard::config
