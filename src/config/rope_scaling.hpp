// Rotary position embedding (arXiv 2104.09864) at contexts longer than those of pretraining: which frequencies rotate
// queries and keys. Formulas and names are those of Hugging Face's rope_scaling.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"

namespace switchyard::config {

/// linear: all frequencies divided by the factor (arXiv 2306.15595). llama3: low ones only (LLaMA 3.1). yarn: low ones,
/// and queries and keys grow a little (arXiv 2309.00071). dynamic: theta grows with a document that is longer than the
/// original context; shorter ones have the plain frequencies.
enum class RopeScalingType { llama3, linear, yarn, dynamic };

/// factor 0: none. original_context in tokens: linear ignores it. Each type has fields of its own.
struct RopeScaling {
  double factor = 0, low_freq_factor = 1, high_freq_factor = 4, original_context = 8192;
  RopeScalingType type = RopeScalingType::llama3;
  double beta_fast = 32, beta_slow = 1, attention_factor = 0;  // attention_factor 0: 0.1 ln(factor) + 1
  bool operator==(const RopeScaling&) const = default;
};

/// UserError naming key and remedy, e.g. a factor below 1.
void validate(const RopeScaling& scaling);
/// The same scaling with defaults in the fields that its type does not read, so that equal functions compare equal.
RopeScaling relevant(const RopeScaling& scaling);
/// Whether the type reads original_context.
bool has_original_context(const RopeScaling& scaling);
/// Whether frequencies depend on the length of the document.
bool by_document(const RopeScaling& scaling);

/// What rotates a head: pair i at position p by the angle p * frequencies[i]; then all features are multiplied by
/// scale.
struct Rotation {
  std::vector<double> frequencies;  // head_dim / 2
  double scale = 1;
};
/// document: its tokens, which only `dynamic` reads.
Rotation rotation(i64 head_dim, double theta, const RopeScaling& scaling, i64 document = 0);

/// A key of rope_scaling that has no effect, and what is wrong with it.
struct UnreadKey {
  std::string key, fault;
};
/// One among the keys that a job gives: neither the job nor its model gives a factor, or the type reads other keys. A
/// key that its type does not read may have its default, since the jobs that runs write down have all keys.
std::optional<UnreadKey> unread_key(const RopeScaling& scaling, std::span<const std::string> given);

/// "llama3", "linear", "yarn", "dynamic".
std::string_view name_of(RopeScalingType type);

}  // namespace switchyard::config
