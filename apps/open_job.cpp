#include "open_job.hpp"

#include "config/job_draft.hpp"
#include "data/sources.hpp"
#include "files/checkpoint_folder.hpp"
#include "files/hf_config.hpp"

namespace switchyard::apps {

config::Job open_job(const std::string& path, const std::vector<config::Override>& overrides) {
  config::Errors errors;
  return open_job(config::load_draft(path, overrides, errors), errors);
}

config::Job open_run(const std::filesystem::path& folder) {
  config::Errors errors;
  const std::filesystem::path model = folder / files::kRunModel;
  const bool has_model = std::filesystem::exists(model);  // not that of an earlier version
  return open_job(config::load_draft((folder / "job.toml").string(), {}, errors), errors, has_model ? model : "");
}

config::Job open_job(const config::JobDraft& draft, config::Errors& errors, const std::filesystem::path& model) {
  config::Job job = config::job_of(draft, errors);
  if (config::needs_model(job))
    config::resolve_model(job, files::read_hf_config(model.empty() ? std::filesystem::path(job.model.path) : model));
  if (config::needs_vocab(job) && !config::sources_of(job).empty())
    if (const auto vocab = data::vocab_size(data::open_sources(job))) config::resolve_vocab(job, *vocab);
  config::validate(job);
  return job;
}

}  // namespace switchyard::apps
