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

// Sums of the bins' lengths.
void read_tokens(const nlohmann::json& tokens, const std::string& path, std::vector<LengthBin>& bins) {
  if (!tokens.is_array() || tokens.size() != bins.size())
    user_error("{}: bin_tokens is not a list of a whole number for each of {} bins. Fix it, or leave it out.", path,
               bins.size());
  for (size_t i = 0; i < bins.size(); ++i) {
    LengthBin& bin = bins[i];
    const double count = static_cast<double>(bin.count);
    if (!tokens[i].is_number_integer() || tokens[i] < static_cast<double>(bin.lo) * count ||
        tokens[i] > static_cast<double>(bin.hi - 1) * count)
      user_error(
          "{}: bin_tokens[{}] is not what {} documents of {} to {} tokens have together. Fix it, or leave "
          "bin_tokens out.",
          path, i, bin.count, bin.lo, bin.hi - 1);
    bin.tokens = tokens[i].get<i64>();
  }
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

// The mean of k = floor(lo * (hi / lo)^u), u uniform: sum of k * (ln(k + 1) - ln(k)) / ln(hi / lo) over lo <= k < hi.
double log_uniform_mean(double lo, double hi) {
  const double logs_between = std::lgamma(hi) - std::lgamma(lo + 1);
  return ((hi - 1) * std::log(hi) - lo * std::log(lo) - logs_between) / std::log(hi / lo);
}

/// A bin from which lengths are drawn: a share of them log-uniformly, the others are `end`, its shortest or longest
/// length, so that the mean is the bin's.
class DrawnBin {
 public:
  explicit DrawnBin(const LengthBin& bin) : bin_(bin) {
    if (!bin.tokens || bin.count == 0 || bin.hi == bin.lo + 1) return;
    const double mean = static_cast<double>(*bin.tokens) / static_cast<double>(bin.count);
    const double spread = log_uniform_mean(static_cast<double>(bin.lo), static_cast<double>(bin.hi));
    end_ = mean < spread ? bin.lo : bin.hi - 1;
    const double end = static_cast<double>(end_);
    share_ = spread == end ? 0 : std::clamp((mean - end) / (spread - end), 0.0, 1.0);
  }

  double count() const { return static_cast<double>(bin_.count); }

  /// u: uniform in [0, 1).
  i64 length(double u) const {
    if (u >= share_) return end_;
    const double lo = static_cast<double>(bin_.lo), hi = static_cast<double>(bin_.hi);
    return std::clamp(static_cast<i64>(lo * std::pow(hi / lo, u / share_)), bin_.lo, bin_.hi - 1);
  }

 private:
  LengthBin bin_;
  i64 end_ = 0;
  double share_ = 1;
};

i64 draw(const std::vector<DrawnBin>& bins, double total, std::mt19937_64& random) {
  double at = uniform(random) * total;
  auto bin = bins.begin();
  while (at >= bin->count() && bin + 1 != bins.end()) at -= (bin++)->count();
  return bin->length(uniform(random));
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
  if (document.contains("bin_tokens")) read_tokens(document["bin_tokens"], path, bins);
  if (std::ranges::all_of(bins, [](const LengthBin& bin) { return bin.count == 0; }))
    user_error("{}: its bins have no documents. Give at least one bin a count above 0.", path);
  return bins;
}

std::vector<i64> draw_lengths(const std::vector<LengthBin>& bins, const Sampler::Settings& settings, i64 step) {
  std::seed_seq seed{settings.seed & 0xffffffff, settings.seed >> 32, static_cast<std::uint64_t>(step) & 0xffffffff,
                     static_cast<std::uint64_t>(step) >> 32};
  std::mt19937_64 random(seed);
  double total = 0;
  const std::vector<DrawnBin> drawn(bins.begin(), bins.end());
  for (const DrawnBin& bin : drawn) total += bin.count();
  std::vector<i64> lengths;
  i64 tokens = 0;
  const auto full = [&] {
    return settings.size.sequences > 0 ? std::ssize(lengths) >= settings.size.sequences
                                       : tokens >= settings.size.tokens;
  };
  while (!full()) {
    i64 left = draw(drawn, total, random);
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
