#include "data/sources.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/errors.hpp"
#include "data/job_sampling.hpp"

namespace switchyard::data {
namespace {

// Whether the metadata say that these are two tokenizers.
bool differ(const CorpusMeta& a, const CorpusMeta& b) {
  if (a.tokenizer && b.tokenizer) return a.tokenizer != b.tokenizer;
  return a.vocab_size && b.vocab_size && a.vocab_size != b.vocab_size;
}

std::vector<Source> opened(const std::vector<config::DataSource>& named, const config::Job& job) {
  std::vector<Source> sources;
  for (const config::DataSource& source : named) {
    sources.push_back({source.name, source.weight, Corpus::open(source.path)});
    if (const i64 vocab = job.model.config.vocab_size; vocab > 0) sources.back().corpus.expect_vocabulary(vocab);
  }
  return sources;
}

}  // namespace

std::vector<CorpusSize> sizes_of(const std::vector<Source>& sources) {
  std::vector<CorpusSize> sizes;
  for (const Source& source : sources) sizes.push_back({source.corpus.documents(), source.corpus.all_tokens()});
  return sizes;
}

std::uint64_t fingerprint(const std::vector<Source>& sources) {
  Fingerprint fingerprint;
  for (const Source& source : sources) source.corpus.add_to(fingerprint);
  return fingerprint.value();
}

std::vector<Source> open_sources(const config::Job& job) {
  std::vector<Source> sources = opened(config::sources_of(job), job);
  if (sources.empty())
    user_error("data.path is missing. Make a folder with `switchyard data prepare` and name it there.");
  for (const Source& a : sources)
    for (const Source& b : sources)
      if (differ(a.corpus.meta(), b.corpus.meta()))
        user_error(
            "data.source: \"{}\" and \"{}\" were prepared with different tokenizers. Prepare the second one again with "
            "--tokenizer {}.",
            a.name, b.name, a.corpus.folder());
  return sources;
}

std::vector<Source> open_validation_sources(const config::Job& job, const std::vector<Source>& trained) {
  std::vector<Source> sources = opened(config::validation_sources_of(job), job);
  for (const Source& a : trained)
    for (const Source& b : sources)
      if (differ(a.corpus.meta(), b.corpus.meta()))
        user_error(
            "validation: {1} was prepared with another tokenizer than {0}. Prepare it again with --tokenizer {0}.",
            a.corpus.folder(), b.corpus.folder());
  return sources;
}

std::optional<std::string> missing_data(const config::Job& job) {
  const std::vector<config::DataSource> sources = config::sources_of(job);
  if (sources.empty()) return "";
  for (const config::DataSource& source : sources)
    if (!std::filesystem::exists(source.path)) return source.path;
  return std::nullopt;
}

bool masked(const std::vector<Source>& sources) {
  return std::ranges::any_of(sources, [](const Source& source) { return source.corpus.masked(); });
}

i64 labels(const std::vector<Source>& sources, const std::vector<Sequence>& sequences) {
  i64 labels = 0;
  for (const Sequence& sequence : sequences)
    labels += sources[static_cast<std::size_t>(sequence.source)].corpus.labels(sequence.document, sequence.first,
                                                                               sequence.count);
  return labels;
}

std::optional<i64> vocab_size(const std::vector<Source>& sources) {
  for (const Source& source : sources)
    if (const auto size = source.corpus.meta().vocab_size) return size;
  return std::nullopt;
}

Sampler sampler_of(const std::vector<Source>& sources, const config::Job& job, std::span<const double> weights) {
  std::vector<WeightedCorpus> corpora;
  for (std::size_t i = 0; i < sources.size(); ++i)
    corpora.push_back({sources[i].corpus, weights.empty() ? sources[i].weight : weights[i]});
  return {std::move(corpora), sampler_settings(job)};
}

}  // namespace switchyard::data
