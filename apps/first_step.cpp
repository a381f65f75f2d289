#include "first_step.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "base/wrapped_text.hpp"
#include "data/job_sampling.hpp"
#include "data/sources.hpp"
#include "simulator/bucket_choice.hpp"

namespace switchyard::apps {
namespace {

// Lengths of a batch that stands in for data: halves of the longest bucket, down to 16 tokens, over and over.
std::vector<i64> made_up_lengths(const config::Job& job) {
  const i64 longest = job.buckets.front().max_length, tokens = job.batch.tokens, sequences = job.batch.sequences;
  std::vector<i64> lengths;
  i64 total = 0;
  for (i64 next = longest; sequences > 0 ? static_cast<i64>(lengths.size()) < sequences : total < tokens;
       next = next / 2 < 16 ? longest : next / 2) {
    lengths.push_back(next);
    data::check_sequences(lengths.size());
    total += next;
  }
  return lengths;
}

}  // namespace

std::vector<std::vector<i64>> lengths_of_steps(const config::Job& job, int count) {
  if (!job.batch.lengths.empty()) return data::given_lengths(job, count);
  if (data::missing_data(job)) return std::vector<std::vector<i64>>(static_cast<size_t>(count), made_up_lengths(job));
  const auto sources = data::open_sources(job);
  const data::Sampler sampler = data::sampler_of(sources, job);
  std::vector<std::vector<i64>> lengths;
  data::Batch batch;  // its `next` is where a fresh run starts
  for (int step = 0; step < count; ++step) {
    batch = sampler.batch(batch.next);
    lengths.push_back(data::Sampler::lengths(batch));
  }
  return lengths;
}

std::vector<i64> lengths_of_step(const config::Job& job, i64 index) {
  if (!job.batch.lengths.empty()) return data::given_lengths(job, 1, index).front();
  if (data::missing_data(job)) return lengths_of_steps(job, 1).front();
  const auto sources = data::open_sources(job);
  const data::Sampler sampler = data::sampler_of(sources, job);
  return data::Sampler::lengths(sampler.batch(sampler.cursor_of(index)));
}

std::string synthetic_line(const config::Job& job) {
  const auto missing = job.batch.lengths.empty() ? data::missing_data(job) : std::nullopt;
  if (!missing) return "";
  return wrapped(fmt::format(
      "no data at \"{}\": using a synthetic batch, lengths halving from {} tokens; results won't match yours\n",
      *missing, job.buckets.front().max_length));
}

PlannedStep planned_step(const config::Job& job, const compiler::Plans& plans, i64 index, std::vector<i64> lengths,
                         std::span<const int> used) {
  const compiler::StepSettings settings = compiler::step_settings(job, plans);
  batch::StepPlan plan = used.empty() ? compiler::planned_batch(settings, index, lengths)
                                      : compiler::planned_batch(settings, index, lengths, used);
  compiler::StepPlanner planner(settings, plans, std::move(plan), std::move(lengths));
  planner.keep_to_budget();
  if (settings.memory_budget > 0) planner.peak();
  return std::move(planner).step();
}

std::vector<PlannedStep> first_steps(const config::Job& job, const compiler::Plans& plans,
                                     const cluster::Hardware& hardware, int count, const Progress& progress) {
  const compiler::StepSettings settings = compiler::step_settings(job, plans);
  simulator::KnownSegments known;
  simulator::BucketChooser chooser(settings, plans, hardware, known);
  std::vector<PlannedStep> steps;
  for (std::vector<i64>& lengths : lengths_of_steps(job, count)) {
    progress.poll();
    const auto index = static_cast<i64>(steps.size());
    steps.push_back(job.run.choose_buckets ? chooser.choose(index, lengths).step
                                           : planned_step(job, plans, index, std::move(lengths)));
  }
  return steps;
}

double matmul_share(const config::Job& job, const std::vector<i64>& lengths, double seconds,
                    const cluster::Hardware& hardware) {
  const batch::WorkModel work = compiler::work_model(job.model.config);
  const DType type = compiler::precision_of(job.run).compute;
  double flops = 0;
  for (const i64 length : lengths) flops += 3 * work(length);
  return flops / (seconds * hardware.ranks() * hardware.device.rates_of(type).matmul.count);
}

std::string step_words(double seconds, double tokens, double share) {
  return fmt::format("Step {} ({} tokens/s, {:.0f}% of peak)", format_duration(Seconds{seconds}),
                     format_count(tokens / seconds), 100 * share);
}

i64 checkpoint_copy(const config::Job& job, const compiler::Plans& plans) {
  if (job.run.checkpoint_every == 0 || !job.run.async_save) return 0;
  return std::ranges::max(compiler::checkpoint_copies(plans));
}

std::string checkpoint_copy_line(i64 bytes) {
  if (bytes == 0) return "";
  return wrapped(
      fmt::format("While a checkpoint is written, its copy takes up to {} more on a rank; where there is no room for "
                  "it, training waits (run.async_save)\n",
                  format_bytes(Bytes{bytes})));
}

}  // namespace switchyard::apps
