#include "train/evaluate.hpp"

#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "compiler/job_plans.hpp"
#include "data/sources.hpp"
#include "kernels/memory.hpp"
#include "train/host_share.hpp"
#include "train/model_tokenizer.hpp"
#include "train/rank.hpp"
#include "train/ranks.hpp"
#include "train/validation.hpp"
#include "train/weights.hpp"

namespace switchyard::train {
namespace {

constexpr i64 kShortestRange = 256;  // tokens

std::vector<i64> ranges_up_to(i64 context) {
  std::vector<i64> max_lengths = {context};
  while (max_lengths.back() >= 2 * kShortestRange) max_lengths.push_back(max_lengths.back() / 2);
  return max_lengths;
}

// Parts in the order of sequences, each with at most `most` tokens, or with one sequence.
std::vector<std::vector<data::Sequence>> divided(const std::vector<data::Sequence>& sequences, i64 most) {
  std::vector<std::vector<data::Sequence>> parts;
  i64 tokens = 0;
  for (const data::Sequence& sequence : sequences) {
    if (parts.empty() || tokens + sequence.count > most) {
      parts.emplace_back();
      tokens = 0;
    }
    parts.back().push_back(sequence);
    tokens += sequence.count;
  }
  return parts;
}

void add(PartRecord& to, const PartRecord& more) {
  const auto sum = [](const PartRecord& part) { return part.loss.value_or(0) * static_cast<double>(part.labels); };
  const double loss = sum(to) + sum(more);
  to.tokens += more.tokens;
  to.labels += more.labels;
  if (to.labels > 0) to.loss = loss / static_cast<double>(to.labels);
}

void add(ValidationRecord& to, const ValidationRecord& more) {
  add(to.all, more.all);
  for (size_t i = 0; i < to.lengths.size(); ++i) add(to.lengths[i], more.lengths[i]);
  for (size_t i = 0; i < to.sources.size(); ++i) add(to.sources[i], more.sources[i]);
}

// Weights that nobody changes need no owner: where home is what ranks store, they borrow nothing. With several
// strategies each element stays there once, since all but one of them would borrow beside the copies.
void keep_home_where_it_is_used(config::Job& job) {
  if (job.buckets.size() > 1) return;
  if (int& zero = job.buckets.front().strategy.zero; zero < 3) zero = 0;
}

ValidationRecord evaluated(const EvaluateSettings& settings, const std::vector<data::Source>& sources,
                           const compiler::Plans& plans, RankSettings share, comm::Fabric& fabric) {
  const Clock::time_point began = Clock::now();
  const config::Job& job = settings.job;
  kernels::RankMemory memory(memory_of(job), kMemoryPatience);
  const kernels::MemoryScope scope(&memory);
  share.memory = &memory;
  share.forward = "evaluation";
  Rank rank(plans, job.model.config, fabric, share);
  rank.agree_on(config::fingerprint(job), "model");
  rank.agree_on(data::fingerprint(sources), "corpus", Rank::kSameFiles);
  rank.agree_on(fingerprint_of_weights(job.model.path), "model.path (other weights)", Rank::kSameFiles);
  rank.store().home.initialize(weights_from(plans.graph(), job.model.path));
  Validation validation(job, sources, ranges_up_to(job.batch.context), rank, fabric);
  const std::vector<data::Sequence> sequences = settings.sequences > 0
                                                    ? first_documents(job, sources, settings.sequences)
                                                    : data::sampler_of(sources, job).epoch();
  i64 tokens = 0;
  for (const data::Sequence& sequence : sequences) tokens += sequence.count;
  const auto progress = [&](i64 done) {
    if (settings.progress && fabric.rank() == 0) settings.progress(done, tokens);
  };
  progress(0);
  std::optional<ValidationRecord> sum;
  for (std::vector<data::Sequence>& part : divided(sequences, settings.tokens_per_rank * fabric.size())) {
    validation.take(std::move(part));
    const ValidationRecord record = validation.run();
    if (sum)
      add(*sum, record);
    else
      sum = record;
    progress(sum->all.tokens);
  }
  sum->time = Seconds{seconds_since(began)};
  return *sum;
}

}  // namespace

std::optional<ValidationRecord> evaluate(EvaluateSettings settings, const comm::Launch& launch) {
  keep_home_where_it_is_used(settings.job);
  const config::Job& job = settings.job;
  check_threads(launch.distributed ? 1 : job.run.ranks, job.run.threads);
  require_device(job.run.device);
  const std::vector<data::Source> sources = data::open_sources(job);
  require_tokenizer_of_model(job.model.path, sources);
  kernels::install_rank_allocator();
  std::optional<ValidationRecord> result;
  on_ranks(
      job.run.ranks, launch, cluster::uniform(1, job.run.ranks), fabric_options(job.fabric), [&](comm::Fabric& host) {
        const compiler::Plans plans = compiler::plans_of(job, compiler::evaluated_model_of(job, host.cluster()));
        const RankSettings share = with_host_share(rank_settings_of(job), host, job.run.device, !launch.distributed);
        on_devices(
            host, share.device, [&] { return channels_of(plans, job.fabric); }, job.fabric,
            [&](comm::Fabric& fabric) {
              const ValidationRecord record = evaluated(settings, sources, plans, share, fabric);
              if (fabric.rank() == 0) result = record;
            });
      });
  return result;
}

}  // namespace switchyard::train
