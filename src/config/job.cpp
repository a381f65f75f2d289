#include "config/job.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/errors.hpp"
#include "base/fingerprint.hpp"
#include "config/errors.hpp"
#include "config/job_draft.hpp"
#include "config/job_keys.hpp"
#include "config/job_reader.hpp"

namespace switchyard::config {
namespace {

/// Where a key stands, for messages; of a section, the key that the message names. "" where that is not known.
class Where {
 public:
  explicit Where(const JobDraft* draft = nullptr) : draft_(draft) {}
  std::string operator()(const std::string& key, std::string_view message = "") const {
    return draft_ == nullptr ? "" : place_of(*draft_, key, message);
  }

 private:
  const JobDraft* draft_;
};

/// Checks that the bytes of a step can be counted. The bound is from above: every activation of the whole batch at
/// once, in doubles.
void check_countable(const Job& job, const Where& where, Errors& errors) {
  constexpr double kMost = 0x1p60, kMostParameters = 0x1p50, kElement = 16;  // bytes: a value and its gradient, in fp64
  const ModelConfig& m = job.model.config;
  if (static_cast<double>(parameter_count(m)) > kMostParameters) {
    errors.add(
        where("model"),
        fmt::format(
            "the model has {:.2g} parameters, which is out of range: at most {:.2g} are supported. Check its sizes.",
            static_cast<double>(parameter_count(m)), kMostParameters));
    return;
  }
  const double layers = static_cast<double>(m.layers), heads = static_cast<double>(m.heads),
               context = static_cast<double>(job.batch.context);
  const double tokens = job.batch.tokens > 0 ? static_cast<double>(job.batch.tokens) + context
                                             : static_cast<double>(job.batch.sequences) * context;
  const double of_token = layers * (12 * static_cast<double>(m.hidden_size) + 4 * static_cast<double>(m.ffn_size) +
                                    4 * heads * static_cast<double>(m.head_dim)) +
                          3 * static_cast<double>(m.vocab_size);
  const double scores = m.attention == AttentionKind::unfused ? 4 * layers * heads * context : 0;
  if (const double bytes = kElement * tokens * (of_token + scores); bytes > kMost)
    errors.add(where("batch.context"), fmt::format("a step of {:.2g} tokens of this model computes {:.2g} bytes, which "
                                                   "is out of range: at most {:.2g} are supported. "
                                                   "Check batch.context, the batch's size and the model's sizes.",
                                                   tokens, bytes, kMost));
}

void add_bucket_error(Errors& errors, const Where& where, size_t bucket, const UserError& error) {
  errors.add(where(fmt::format("bucket.{}.strategy", bucket), error.what()),
             fmt::format("bucket.{}: {}", bucket, error.what()));
}

/// Sets the groups of every strategy given by its degrees.
void cut_strategies(Job& job, const Where& where, Errors& errors) {
  for (size_t i = 0; i < job.buckets.size(); ++i) {
    Bucket& bucket = job.buckets[i];
    if (bucket.degrees.empty()) continue;
    try {
      cut_by_degrees(bucket.strategy, bucket.degrees, job.run.ranks, job.model.config.layers);
      if (!bucket.strategy.order.order.empty()) bucket.degrees.clear();  // written out it is JSON
    } catch (const UserError& error) {
      add_bucket_error(errors, where, i, error);
    }
  }
}

/// Only the home strategy decides how many copies of the optimizer's state there are; the others borrow parameters.
void check_zero(const Job& job, const Where& where, Errors& errors) {
  if (job.buckets.empty() || job.buckets[static_cast<size_t>(job.run.home)].strategy.zero == 0) return;
  for (size_t i = 0; i < job.buckets.size(); ++i) {
    const Strategy& strategy = job.buckets[i].strategy;
    const bool copies = strategy.groups.size() > 1 || std::ranges::any_of(strategy.groups, [](const Group& group) {
                          return group.stages.front().mesh[StageAxis::data] > 1;
                        });
    if (strategy.zero == 0 && copies)
      errors.add(where(fmt::format("bucket.{}.strategy", i)),
                 fmt::format("bucket.{}: zero = 0, but the optimizer's state is kept once, as bucket {} says "
                             "(run.home). Set zero = 0 there, or leave it "
                             "out here.",
                             i, job.run.home));
  }
}

/// run.order must name each bucket once.
void check_order(const Job& job, const Where& where, Errors& errors) {
  const int buckets = static_cast<int>(job.buckets.size());
  std::vector<int> all(job.buckets.size());
  std::iota(all.begin(), all.end(), 0);
  if (!job.run.order.empty() && !std::ranges::is_permutation(job.run.order, all))
    errors.add(
        where("run.order"),
        fmt::format(
            "run.order = [{}] doesn't have each of the {} buckets once. Write 0 to {} in some order, or leave it out.",
            fmt::join(job.run.order, ", "), buckets, buckets - 1));
}

/// Whether every strategy is one of this model on these ranks.
bool check_strategies(const Job& job, const ModelConfig& model, const Where& where, Errors& errors) {
  bool sound = true;
  for (size_t i = 0; i < job.buckets.size(); ++i) {
    const Bucket& bucket = job.buckets[i];
    const bool uncut = bucket.strategy.groups.empty() && !bucket.degrees.empty();  // reported already
    try {
      if (!uncut) validate(bucket.strategy, model, job.run.ranks);
      sound = sound && !uncut;
    } catch (const UserError& error) {
      add_bucket_error(errors, where, i, error);
      sound = false;
    }
  }
  return sound;
}

/// Checks model, strategies and home. A vocabulary size that is not known yet is not checked.
void check_resolved(const Job& job, const Where& where, Errors& errors) {
  ModelConfig model = job.model.config;
  if (needs_vocab(job)) model.vocab_size = 1;
  try {
    validate(model);
  } catch (const UserError& error) {
    errors.add(where("model", error.what()), error.what());
    return;
  }
  if (model.family == Family::gpt2 && job.batch.context > model.max_positions) {
    errors.add(
        where("batch.context"),
        fmt::format(
            "batch.context = {} is above model.max_positions = {}: gpt2 knows no later position. Lower the context.",
            job.batch.context, model.max_positions));
  }
  if (model.sliding_window > 0 && job.batch.context > model.sliding_window) {
    errors.add(where("batch.context"),
               fmt::format("batch.context = {} is above the model's sliding_window = {}: attention with windows is not "
                           "supported. Lower the "
                           "context, or set sliding_window to null in {}/config.json to train with full attention.",
                           job.batch.context, model.sliding_window, job.model.path));
  }
  check_countable(job, where, errors);
  const bool sound = check_strategies(job, model, where, errors);
  if (job.run.home >= static_cast<int>(job.buckets.size())) {
    errors.add(where("run.home"),
               fmt::format("run.home = {} is not a bucket. Use 0 to {}.", job.run.home, job.buckets.size() - 1));
    return;
  }
  if (sound) check_zero(job, where, errors);
  check_order(job, where, errors);
}

template <class Enum, size_t count>
std::string_view pick(const std::array<std::string_view, count>& names, Enum value) {
  check(static_cast<size_t>(value) < count, "name_of: value {} of {}", static_cast<int>(value), count);
  return names[static_cast<size_t>(value)];
}

/// The model of model.path's folder with what the job changes about it.
ModelConfig with_changes(const Job& job, const ModelConfig& model) {
  const std::vector<std::string>& changed = job.model.changed;
  JobDraft given, result;
  given.job = job;
  result.job.model.config = model;
  const auto position = std::ranges::find_if(changed, [](const std::string& name) {
    return name.starts_with("model.rope_") || name == "model.max_positions";
  });
  if (model.family == Family::gpt2 && position != changed.end())
    user_error("{} can't be given with model.path = \"{}\": gpt2 has learned positions. Remove it.", *position,
               job.model.path);
  const auto gives = [&](std::string_view name) { return std::ranges::find(changed, name) != changed.end(); };
  for (const Key<JobDraft>& key : job_keys())
    if (gives(key.name)) key.set(result, key.get(given));
  ModelConfig& config = result.job.model.config;
  if (const auto unread = unread_key(config.rope_scaling, changed)) user_error("{}", unread->fault);
  if (config.family == Family::gpt2) {
    if (config.attention == AttentionKind::unfused && !gives("model.dropout")) config.dropout = kGpt2Dropout;
    return config;
  }
  const RopeScaling &scaling = config.rope_scaling, &of_folder = model.rope_scaling;
  if (scaling.type == RopeScalingType::yarn && scaling.factor != of_folder.factor && scaling.attention_factor > 0 &&
      !gives("model.rope_scaling.attention_factor"))
    user_error(
        "model.rope_scaling.factor = {}: attention_factor = {} is that of factor {} in \"{}\". Set "
        "model.rope_scaling.attention_factor, too; 0 is 0.1 ln(factor) + 1.",
        scaling.factor, scaling.attention_factor, of_folder.factor, job.model.path);
  // A folder whose scaling, if any, knows no original context says the context at which its model was trained.
  const bool new_context = !has_original_context(model.rope_scaling) && has_original_context(config.rope_scaling);
  if (new_context && model.max_positions > 0 && !gives("model.rope_scaling.original_context"))
    config.rope_scaling.original_context = static_cast<double>(model.max_positions);
  if (!gives("model.max_positions")) config.max_positions = std::max(config.max_positions, job.batch.context);
  return config;
}

}  // namespace

Job load_job(const std::string& path, const std::vector<std::string>& sets) {
  Errors errors;
  return job_of(load_draft(path, overrides_of(sets), errors), errors);
}

Job job_from_toml(const std::string& text, const std::string& origin, const std::vector<std::string>& sets) {
  Errors errors;
  return job_of(read_draft(text, origin, overrides_of(sets), errors), errors);
}

Job job_of(const JobDraft& draft, Errors& errors) {
  Resolution resolution = resolve(draft, errors);
  if (resolution.complete && !needs_model(resolution.job)) {
    const Where where(&draft);
    cut_strategies(resolution.job, where, errors);
    check_resolved(resolution.job, where, errors);
  }
  errors.throw_if_any();
  return std::move(resolution.job);
}

namespace {

std::vector<DataSource> sources_of(const std::string& path, const std::vector<DataSource>& sources) {
  if (path.empty()) return sources;
  return {{.path = path, .weight = 1, .name = ""}};
}

}  // namespace

std::vector<DataSource> sources_of(const Job& job) { return sources_of(job.data.path, job.data.sources); }

std::vector<DataSource> validation_sources_of(const Job& job) {
  return sources_of(job.validation.path, job.validation.sources);
}

std::vector<std::pair<std::string, std::vector<DataSource>*>> source_lists(Job& job) {
  return {{"data.source", &job.data.sources}, {"validation.source", &job.validation.sources}};
}

bool needs_model(const Job& job) { return !job.model.path.empty() && job.model.config.layers == 0; }

bool needs_vocab(const Job& job) { return !needs_model(job) && job.model.config.vocab_size == 0; }

void resolve_model(Job& job, const ModelConfig& model) {
  Errors errors;
  job.model.config = with_changes(job, model);
  cut_strategies(job, Where(), errors);
  errors.throw_if_any();
}

void resolve_vocab(Job& job, i64 vocab_size) {
  if (vocab_size < 1)
    user_error("the data's vocabulary has {} tokens. Prepare the data again, or set model.vocab_size.", vocab_size);
  job.model.config.vocab_size = vocab_size;
}

void resolve_device(Job& job, DeviceType type) {
  if (job.run.device == DeviceType::automatic) job.run.device = type;
}

void validate(const Job& job) {
  if (needs_model(job)) user_error("model.path = \"{}\": its config.json has not been read.", job.model.path);
  Errors errors;
  if (needs_vocab(job))
    errors.add("", "model.vocab_size is missing, and the data's meta.json doesn't have it. Set model.vocab_size.");
  check_resolved(job, Where(), errors);
  errors.throw_if_any();
}

namespace {

void add(Fingerprint& hash, const Bucket& bucket) {
  hash.add(fmt::format("bucket={}", bucket.max_length));
  hash.add(to_text(bucket.degrees));
  hash.add(to_json(bucket.strategy));
}

}  // namespace

std::uint64_t fingerprint(const Job& job) {
  JobDraft draft;
  draft.job = job;
  Fingerprint hash;
  for (const Key<JobDraft>& key : job_keys()) {
    if (!key.rank_only) hash.add(key.name + "=" + toml_literal(key, key.get(draft)));
  }
  for (const auto& [list, sources] : source_lists(draft.job))
    for (const DataSource& source : *sources)
      for (const Key<DataSource>& key : source_keys())
        hash.add(fmt::format("{}.{}={}", list, key.name, toml_literal(key, key.get(source))));
  for (const Bucket& bucket : job.buckets) add(hash, bucket);
  return hash.value();
}

std::uint64_t plan_fingerprint(const Job& job) {
  JobDraft draft;
  draft.job = job;
  Fingerprint hash;
  for (const Key<JobDraft>& key : job_keys()) {
    if (key.name.starts_with("model.") || key.name.starts_with("batch.") || key.name == "run.order")
      hash.add(key.name + "=" + toml_literal(key, key.get(draft)));
  }
  for (const Bucket& bucket : job.buckets) add(hash, bucket);
  return hash.value();
}

std::uint64_t trained_fingerprint(Job job) {
  job.batch.lengths.clear();
  return plan_fingerprint(job);
}

std::string_view name_of(LongDocuments value) {
  return pick(std::array<std::string_view, 3>{"split", "clip", "error"}, value);
}

std::string_view name_of(LearningRateSchedule value) {
  return pick(std::array<std::string_view, 5>{"cosine", "linear", "constant", "wsd", "inverse-sqrt"}, value);
}

}  // namespace switchyard::config
