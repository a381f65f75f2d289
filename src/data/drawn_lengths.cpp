#include "data/drawn_lengths.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "base/errors.hpp"
#include "base/file_text.hpp"

namespace switchyard::data {
namespace {

LengthBin bin_of(const nlohmann::json& entry, const std::string& path, size_t index) {
  const auto is_count = [](const nlohmann::json& number) { return number.is_number_integer() && number >= 0; };
  if (!entry.is_array() || entry.size() != 3 || !std::all_of(entry.begin(), entry.end(), is_count))
    user_error("{}: bins[{}] is not [lo, hi, count] with three whole numbers. Fix it.", path, index);
  const LengthBin bin{entry[0].get<i64>(), entry[1].get<i64>(), entry[2].get<i64>()};
  if (bin.lo < 1 || bin.hi <= bin.lo)
    user_error(
        "{}: bins[{}] goes from {} up to, but not including, {} tokens: there is no such length. Use 1 <= lo < hi.",
        path, index, bin.lo, bin.hi);
  return bin;
}

std::string text_of(const std::string& path_or_name) {
  std::string names;
  for (const ShippedLengths& shipped : shipped_lengths()) {
    if (shipped.name == path_or_name) return std::string(shipped.text);
    names += fmt::format("{}{}", names.empty() ? "" : ", ", shipped.name);
  }
  if (const std::optional<std::string> text = file_text(path_or_name)) return *text;
  user_error("{}: can't read the histogram of lengths. Check the path, or use one of {}.", path_or_name, names);
}

/// Uniform in [0, 1), from 53 bits.
double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

i64 draw(const std::vector<LengthBin>& bins, double total, std::mt19937_64& random) {
  double at = uniform(random) * total;
  auto bin = bins.begin();
  while (at >= static_cast<double>(bin->count) && bin + 1 != bins.end()) at -= static_cast<double>((bin++)->count);
  const double lo = static_cast<double>(bin->lo), hi = static_cast<double>(bin->hi);
  return std::clamp(static_cast<i64>(lo * std::pow(hi / lo, uniform(random))), bin->lo, bin->hi - 1);
}

}  // namespace

std::vector<LengthBin> read_length_bins(const std::string& path) {
  const nlohmann::json document = nlohmann::json::parse(text_of(path), nullptr, false);
  if (document.is_discarded())
    user_error("{}: not JSON. `switchyard data stats DIR --json` writes a histogram of lengths.", path);
  if (!document.is_object() || !document.contains("bins") || !document["bins"].is_array())
    user_error("{}: has no list \"bins\" of [lo, hi, count]. `switchyard data stats DIR --json` writes one.", path);
  std::vector<LengthBin> bins;
  for (size_t i = 0; i < document["bins"].size(); ++i) bins.push_back(bin_of(document["bins"][i], path, i));
  if (std::ranges::all_of(bins, [](const LengthBin& bin) { return bin.count == 0; }))
    user_error("{}: its bins have no documents. Give at least one bin a count above 0.", path);
  return bins;
}

std::vector<i64> draw_lengths(const std::vector<LengthBin>& bins, const Sampler::Settings& settings, i64 step) {
  std::seed_seq seed{settings.seed & 0xffffffff, settings.seed >> 32, static_cast<std::uint64_t>(step) & 0xffffffff,
                     static_cast<std::uint64_t>(step) >> 32};
  std::mt19937_64 random(seed);
  double total = 0;
  for (const LengthBin& bin : bins) total += static_cast<double>(bin.count);
  std::vector<i64> lengths;
  i64 tokens = 0;
  const auto full = [&] {
    return settings.size.sequences > 0 ? std::ssize(lengths) >= settings.size.sequences
                                       : tokens >= settings.size.tokens;
  };
  while (!full()) {
    i64 left = draw(bins, total, random);
    if (left > settings.context && settings.long_documents == LongDocuments::error)
      user_error(
          "a document of {} tokens is drawn, above batch.context = {}. Raise it, or set data.long_documents to "
          "\"split\" or \"clip\".",
          left, settings.context);
    if (settings.long_documents == LongDocuments::clip) left = std::min(left, settings.context);
    for (; left > 0 && !full(); left -= settings.context) {
      lengths.push_back(std::min(left, settings.context));
      tokens += lengths.back();
      check_sequences(lengths.size());
    }
  }
  return lengths;
}

}  // namespace switchyard::data
