#include "config/presets.hpp"

#include <algorithm>

#include "base/errors.hpp"
#include "base/text.hpp"

namespace switchyard::config {
namespace {

struct Case {
  std::string name;
  int ranks;
  std::vector<PresetBucket> buckets;
};

// Buckets and strategies as published with HotSPa (SOSP'24) for documents of CommonCrawl and GitHub up to 32768 tokens.
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"hotspa/7b-8gpu-commoncrawl", 8, {{32768, "1,4,2"}, {16384, "2,2,2"}, {4096, "8,1,1"}}},
      {"hotspa/7b-8gpu-github", 8, {{32768, "1,4,2"}, {16384, "2,2,2"}, {8192, "4,2,1"}, {4096, "8,1,1"}}},
      {"hotspa/7b-16gpu-commoncrawl", 16, {{32768, "2,4,2"}, {16384, "4,4,1"}, {4096, "16,1,1"}}},
      {"hotspa/7b-16gpu-github", 16, {{32768, "2,4,2"}, {16384, "4,4,1"}, {8192, "8,2,1"}, {4096, "16,1,1"}}},
      {"hotspa/13b-8gpu-commoncrawl", 8, {{32768, "1,8,1"}, {16384, "1,4,2"}, {4096, "4,2,1"}}},
      {"hotspa/13b-8gpu-github", 8, {{32768, "1,8,1"}, {16384, "1,4,2"}, {8192, "2,2,2"}, {4096, "4,2,1"}}},
      {"hotspa/13b-16gpu-commoncrawl", 16, {{32768, "2,8,1"}, {16384, "4,4,1"}, {4096, "8,2,1"}}},
      {"hotspa/13b-16gpu-github", 16, {{32768, "2,8,1"}, {16384, "4,4,1"}, {8192, "4,2,2"}, {4096, "8,2,1"}}},
      {"hotspa/32b-32gpu-commoncrawl", 32, {{32768, "1,16,2"}, {16384, "2,8,2"}, {4096, "4,2,4"}}},
      {"hotspa/32b-32gpu-github", 32, {{32768, "1,16,2"}, {16384, "2,8,2"}, {8192, "4,4,2"}, {4096, "4,2,4"}}},
  };
  return all;
}

}  // namespace

const std::vector<std::string>& parallel_preset_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Case& one : cases()) all.push_back(one.name);
    return all;
  }();
  return names;
}

ParallelPreset parallel_preset(const std::string& name, i64 context) {
  const auto found = std::find_if(cases().begin(), cases().end(), [&](const Case& one) { return one.name == name; });
  if (found == cases().end()) {
    const std::string nearest = nearest_name(name, parallel_preset_names());
    user_error("parallel.preset = \"{}\" is unknown. {}", name,
               nearest.empty() ? fmt::format("Use one of {}.", fmt::join(parallel_preset_names(), ", "))
                               : fmt::format("Did you mean \"{}\"?", nearest));
  }
  const std::vector<PresetBucket>& published = found->buckets;
  if (context > published.front().max_length) {
    user_error(
        "parallel.preset = \"{}\" goes up to {} tokens, but batch.context = {}. Lower the context, or write [[bucket]] "
        "entries.",
        name, published.front().max_length, context);
  }
  ParallelPreset preset{.ranks = found->ranks, .buckets = {}};
  for (const PresetBucket& bucket : published) {
    // A bucket is dropped if the next one already holds documents as long as the context.
    const PresetBucket* next = &bucket == &published.back() ? nullptr : &bucket + 1;
    if (next != nullptr && next->max_length >= context) continue;
    preset.buckets.push_back({std::min(bucket.max_length, context), bucket.spec});
  }
  return preset;
}

}  // namespace switchyard::config
