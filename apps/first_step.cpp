#include "first_step.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "compiler/memory.hpp"
#include "data/corpus.hpp"
#include "data/job_sampling.hpp"

namespace switchyard::apps {
namespace {

bool has_data(const config::Job& job) { return !job.data.path.empty() && std::filesystem::exists(job.data.path); }

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
  if (!has_data(job)) {
    fmt::print(
        "no data at \"{}\": using a synthetic batch, lengths halving from {} tokens; results won't match yours\n",
        job.data.path, job.buckets.front().max_length);
    return std::vector<std::vector<i64>>(static_cast<size_t>(count), made_up_lengths(job));
  }
  const data::Corpus corpus = data::Corpus::open(job.data.path);
  const data::Sampler sampler(corpus, data::sampler_settings(job));
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
  if (!has_data(job)) return lengths_of_steps(job, 1).front();
  const data::Corpus corpus = data::Corpus::open(job.data.path);
  const data::Sampler sampler(corpus, data::sampler_settings(job));
  return data::Sampler::lengths(sampler.batch(sampler.cursor_of(index)));
}

PlannedStep planned_step(const config::Job& job, const compiler::Plans& plans, i64 index, std::vector<i64> lengths) {
  PlannedStep step;
  step.lengths = std::move(lengths);
  step.plan = batch::plan_batch(index, step.lengths, compiler::bucket_specs(job, plans),
                                compiler::work_model(job.model.config), compiler::phase_order(job));
  const i64 budget = job.run.memory_budget.count;
  compiler::BudgetCheck check(step.plan, plans, budget);
  step.program = compiler::assemble_within(step.plan, plans, job.run.prefetch, [&](const ir::Program& program) {
    if (budget == 0) return true;
    const std::optional<compiler::MemoryPeak> peak = check.peak_within(program);
    if (peak) step.peak = peak->total;
    return peak.has_value();
  });
  if (budget > 0 && !step.peak)
    step.peak = compiler::rank_with_highest_peak(step.program, step.plan, plans).second.total;
  return step;
}

std::vector<PlannedStep> first_steps(const config::Job& job, const compiler::Plans& plans, int count) {
  std::vector<PlannedStep> steps;
  for (std::vector<i64>& lengths : lengths_of_steps(job, count))
    steps.push_back(planned_step(job, plans, static_cast<i64>(steps.size()), std::move(lengths)));
  return steps;
}

PlannedStep first_step(const config::Job& job, const compiler::Plans& plans) {
  return first_steps(job, plans, 1).front();
}

}  // namespace switchyard::apps
