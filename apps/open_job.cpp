#include "open_job.hpp"

#include "data/corpus.hpp"
#include "files/hf_config.hpp"

namespace switchyard::apps {

config::Job open_job(const std::string& path, const std::vector<std::string>& sets) {
  config::Job job = config::load_job(path, sets);
  if (config::needs_model(job)) config::resolve_model(job, files::read_hf_config(job.model.path));
  if (config::needs_vocab(job) && !job.data.path.empty())
    if (const auto vocab = data::Corpus::open(job.data.path).vocab_size()) config::resolve_vocab(job, *vocab);
  config::validate(job);
  return job;
}

}  // namespace switchyard::apps
