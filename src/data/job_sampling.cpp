#include "data/job_sampling.hpp"

#include "data/drawn_lengths.hpp"

namespace switchyard::data {

Sampler::Settings sampler_settings(const config::Job& job) {
  Sampler::Settings settings;
  settings.seed = static_cast<std::uint64_t>(job.seed);
  settings.size = {job.batch.sequences, job.batch.tokens};
  settings.context = job.batch.context;
  settings.long_documents = job.data.long_documents;
  return settings;
}

std::vector<std::vector<i64>> given_lengths(const config::Job& job, int count, i64 first) {
  std::vector<LengthBin> bins{{job.batch.context, job.batch.context + 1, 1}};
  if (job.batch.lengths != "full") bins = read_length_bins(job.batch.lengths);
  std::vector<std::vector<i64>> lengths;
  for (int step = 0; step < count; ++step) lengths.push_back(draw_lengths(bins, sampler_settings(job), first + step));
  return lengths;
}

}  // namespace switchyard::data
