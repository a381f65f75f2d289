#include "config/rope_scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/errors.hpp"

namespace switchyard::config {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

/// A field that some types read, and those.
struct OwnField {
  const char* name;
  double RopeScaling::*value;
  const char* types;
};
constexpr OwnField kOwnFields[] = {
    {"low_freq_factor", &RopeScaling::low_freq_factor, "\"llama3\""},
    {"high_freq_factor", &RopeScaling::high_freq_factor, "\"llama3\""},
    {"beta_slow", &RopeScaling::beta_slow, "\"yarn\""},
    {"beta_fast", &RopeScaling::beta_fast, "\"yarn\""},
    {"attention_factor", &RopeScaling::attention_factor, "\"yarn\""},
    {"original_context", &RopeScaling::original_context, "\"llama3\", \"yarn\" and \"dynamic\""},
};

/// Share of each frequency that is kept; the rest is divided by the factor. LLaMA 3.1: by the number of turns within
/// the original context.
std::vector<double> kept_by_llama3(const std::vector<double>& frequencies, const RopeScaling& scaling) {
  std::vector<double> kept;
  for (const double frequency : frequencies) {
    const double turns = scaling.original_context * frequency / kTurn;
    kept.push_back(
        std::clamp((turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor), 0.0, 1.0));
  }
  return kept;
}

/// The same for YaRN (§3.2): linear in the number of the pair, between the pairs that make beta_fast and beta_slow
/// turns within the original context, rounded outwards.
std::vector<double> kept_by_yarn(double theta, i64 head_dim, const RopeScaling& scaling) {
  const auto pair_with = [&](double turns) {
    return static_cast<double>(head_dim) * std::log(scaling.original_context / (turns * kTurn)) / (2 * std::log(theta));
  };
  const double first = std::max(std::floor(pair_with(scaling.beta_fast)), 0.0);
  double last = std::min(std::ceil(pair_with(scaling.beta_slow)), static_cast<double>(head_dim - 1));
  if (first == last) last += 0.001;  // same as in Hugging Face's code, against a division by zero
  std::vector<double> kept;
  for (i64 i = 0; i < head_dim / 2; ++i)
    kept.push_back(1 - std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0));
  return kept;
}

/// The base of a longer document's frequencies. Source: transformers 4.57, _compute_dynamic_ntk_parameters.
double dynamic_theta(double theta, i64 head_dim, const RopeScaling& scaling, i64 document) {
  const double longer = static_cast<double>(document) / scaling.original_context, dim = static_cast<double>(head_dim);
  if (longer <= 1) return theta;
  return theta * std::pow(scaling.factor * longer - (scaling.factor - 1), dim / (dim - 2));
}

}  // namespace

std::string_view name_of(RopeScalingType type) {
  switch (type) {
    case RopeScalingType::llama3:
      return "llama3";
    case RopeScalingType::linear:
      return "linear";
    case RopeScalingType::yarn:
      return "yarn";
    case RopeScalingType::dynamic:
      return "dynamic";
  }
  throw InternalError("name_of: unknown type of rotary scaling");
}

std::optional<UnreadKey> unread_key(const RopeScaling& scaling, std::span<const std::string> given) {
  const std::string section = "model.rope_scaling.";
  const auto gives = [&](const std::string& key) { return std::ranges::count(given, key) > 0; };
  if (scaling.factor == 0) {
    const auto key = std::ranges::find_if(given, [&](const std::string& name) { return name.starts_with(section); });
    if (key == given.end() || gives(section + "factor")) return std::nullopt;
    return UnreadKey{
        *key,
        fmt::format("{} has no effect without model.rope_scaling.factor. Give one of at least 1, or remove it.", *key)};
  }
  const RopeScaling read = relevant(scaling);
  for (const OwnField& field : kOwnFields) {
    const std::string key = section + field.name;
    if (gives(key) && scaling.*field.value != read.*field.value)
      return UnreadKey{key, fmt::format("{} has no effect with model.rope_scaling.type = \"{}\", but with {}. Change "
                                        "the type, or remove the key.",
                                        key, name_of(scaling.type), field.types)};
  }
  return std::nullopt;
}

void validate(const RopeScaling& scaling) {
  if (scaling.factor == 0) return;
  if (!(scaling.factor >= 1))
    user_error("model.rope_scaling.factor = {} must be at least 1, or 0 for no scaling.", scaling.factor);
  if (!(scaling.original_context > 0))
    user_error("model.rope_scaling.original_context = {} must be above 0.", scaling.original_context);
  const auto ordered = [](const char* low_name, double low, const char* high_name, double high) {
    if (!(low > 0 && high > low))
      user_error("model.rope_scaling: {} = {} must be above 0 and below {} = {}.", low_name, low, high_name, high);
  };
  if (scaling.type == RopeScalingType::llama3)
    ordered("low_freq_factor", scaling.low_freq_factor, "high_freq_factor", scaling.high_freq_factor);
  if (scaling.type != RopeScalingType::yarn) return;
  ordered("beta_slow", scaling.beta_slow, "beta_fast", scaling.beta_fast);
  if (!(scaling.attention_factor >= 0))
    user_error("model.rope_scaling.attention_factor = {} must be above 0, or 0 for 0.1 ln(factor) + 1.",
               scaling.attention_factor);
}

RopeScaling relevant(const RopeScaling& scaling) {
  RopeScaling result;
  if (scaling.factor == 0) return result;
  result.type = scaling.type;
  result.factor = scaling.factor;
  if (!has_original_context(scaling)) return result;
  result.original_context = scaling.original_context;
  if (scaling.type == RopeScalingType::llama3) {
    result.low_freq_factor = scaling.low_freq_factor;
    result.high_freq_factor = scaling.high_freq_factor;
  } else if (scaling.type == RopeScalingType::yarn) {
    result.beta_fast = scaling.beta_fast;
    result.beta_slow = scaling.beta_slow;
    result.attention_factor = scaling.attention_factor;
  }
  return result;
}

bool has_original_context(const RopeScaling& scaling) {
  return scaling.factor != 0 && scaling.type != RopeScalingType::linear;
}

bool by_document(const RopeScaling& scaling) { return scaling.factor != 0 && scaling.type == RopeScalingType::dynamic; }

Rotation rotation(i64 head_dim, double theta, const RopeScaling& scaling, i64 document) {
  Rotation result;
  if (by_document(scaling)) theta = dynamic_theta(theta, head_dim, scaling, document);
  for (i64 i = 0; i < head_dim / 2; ++i)
    result.frequencies.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim)));
  if (scaling.factor == 0 || by_document(scaling)) return result;
  std::vector<double> kept(result.frequencies.size(), 0);
  if (scaling.type == RopeScalingType::llama3) {
    kept = kept_by_llama3(result.frequencies, scaling);
  } else if (scaling.type == RopeScalingType::yarn) {
    kept = kept_by_yarn(theta, head_dim, scaling);
    result.scale = scaling.attention_factor != 0 ? scaling.attention_factor : 0.1 * std::log(scaling.factor) + 1;
  }
  for (size_t i = 0; i < kept.size(); ++i) result.frequencies[i] *= kept[i] + (1 - kept[i]) / scaling.factor;
  return result;
}

}  // namespace switchyard::config
