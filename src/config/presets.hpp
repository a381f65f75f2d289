// Published buckets and strategies, by name.
#pragma once

#include <string>
#include <vector>

#include "base/dtype.hpp"

namespace switchyard::config {

struct PresetBucket {
  i64 max_length = 0;  // tokens
  std::string spec;    // "dp,tp,pp"
  bool operator==(const PresetBucket&) const = default;
};

struct ParallelPreset {
  int ranks = 0;
  std::vector<PresetBucket> buckets;  // longest first
};

/// "hotspa/7b-16gpu-commoncrawl" and the other nine cases, for documents up to `context` tokens: bounds above the
/// context are dropped, and the bucket that the context falls into becomes the longest. UserError for an unknown name
/// (names the nearest) and a context above the published one.
ParallelPreset parallel_preset(const std::string& name, i64 context);

/// All names, in the order of publication.
const std::vector<std::string>& parallel_preset_names();

}  // namespace switchyard::config
