#include "data/stats.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::data {
namespace {

// The first lengths of bins, four an octave, which end with powers of two: limits of lengths are powers of two, mostly.
// The last bin holds exactly `top`, a power of two no length exceeds.
std::vector<i64> edges_up_to(i64 top) {
  std::vector<i64> edges{1};
  for (int quarter = 16;; ++quarter) {
    const auto last = static_cast<i64>(std::llround(std::exp2(quarter / 4.0)));
    if (last >= top) break;
    edges.push_back(last + 1);
  }
  edges.push_back(top);
  edges.push_back(top + 1);
  return edges;
}

i64 quantile(std::span<const i64> sorted, int percent) {
  const auto count = static_cast<i64>(sorted.size());
  const i64 at = (count * percent + 99) / 100;
  return sorted[static_cast<std::size_t>(std::max<i64>(at, 1) - 1)];
}

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

double rounded(double value, int digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(value * scale) / scale;
}

double squares_of(const Histogram& histogram) {
  double sum = 0;
  for (const Bin& bin : histogram.bins) sum += bin.squares;
  return sum;
}

// Shares up to each power of two, with which a bin ends.
nlohmann::ordered_json percent_up_to(const Histogram& histogram) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  const double squares = squares_of(histogram);
  for (i64 limit = 512; !histogram.bins.empty() && limit < 2 * histogram.bins.back().lo; limit *= 2) {
    Bin part;
    for (const Bin& bin : histogram.bins) {
      if (bin.hi > limit + 1) break;
      part.count += bin.count;
      part.tokens += bin.tokens;
      part.squares += bin.squares;
    }
    out[std::to_string(limit)] = {
        {"sequences", rounded(percent(static_cast<double>(part.count), static_cast<double>(histogram.documents)), 3)},
        {"tokens", rounded(percent(static_cast<double>(part.tokens), static_cast<double>(histogram.tokens)), 2)},
        {"squares", rounded(percent(part.squares, squares), 2)}};
  }
  return out;
}

}  // namespace

Histogram histogram_of(std::span<const i64> lengths) {
  Histogram out;
  if (lengths.empty()) return out;
  std::vector<i64> sorted(lengths.begin(), lengths.end());
  std::sort(sorted.begin(), sorted.end());
  check(sorted.front() >= 1, "a document of {} tokens", sorted.front());
  out.documents = static_cast<i64>(sorted.size());
  out.longest = sorted.back();
  out.median = quantile(sorted, 50);
  out.p90 = quantile(sorted, 90);
  out.p99 = quantile(sorted, 99);
  const i64 top = std::max<i64>(16, static_cast<i64>(std::bit_ceil(static_cast<std::uint64_t>(out.longest))));
  const std::vector<i64> edges = edges_up_to(top);
  auto at = sorted.begin();
  for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
    Bin bin{.lo = edges[i], .hi = edges[i + 1]};
    for (; at != sorted.end() && *at < bin.hi; ++at) {
      ++bin.count;
      bin.tokens += *at;
      bin.squares += static_cast<double>(*at) * static_cast<double>(*at);
    }
    out.tokens += bin.tokens;
    if (bin.count > 0) out.bins.push_back(bin);
  }
  return out;
}

std::string text_of(const Histogram& histogram) {
  if (histogram.documents == 0) return "no documents\n";
  constexpr double kBarWidth = 40;
  const double documents = static_cast<double>(histogram.documents), tokens = static_cast<double>(histogram.tokens),
               squares = squares_of(histogram);
  i64 most = 0;
  for (const Bin& bin : histogram.bins) most = std::max(most, bin.count);
  std::string out = fmt::format("{} documents, {} tokens: mean {:.1f}, median {}, p90 {}, p99 {}, longest {}\n",
                                histogram.documents, histogram.tokens, tokens / documents, histogram.median,
                                histogram.p90, histogram.p99, histogram.longest);
  out += fmt::format("{:>17}  {:>9}  {:>6}  {:>6}  {:>7}\n", "tokens", "documents", "share", "tokens", "squared");
  for (const Bin& bin : histogram.bins) {
    const auto bar =
        static_cast<std::size_t>(std::ceil(kBarWidth * static_cast<double>(bin.count) / static_cast<double>(most)));
    out += fmt::format("{:>8} {:>8}  {:>9}  {:>5.1f}%  {:>5.1f}%  {:>6.1f}%  {}\n", bin.lo, bin.hi - 1, bin.count,
                       percent(static_cast<double>(bin.count), documents),
                       percent(static_cast<double>(bin.tokens), tokens), percent(bin.squares, squares),
                       std::string(bar, '#'));
  }
  return out;
}

std::string json_of(const Histogram& histogram, std::string_view name, std::string_view source) {
  const double mean =
      histogram.documents > 0 ? static_cast<double>(histogram.tokens) / static_cast<double>(histogram.documents) : 0;
  nlohmann::ordered_json out{{"name", name}, {"source", source}, {"unit", "tokens"}};
  out["notes"] = {fmt::format("measured: {} documents, {} tokens, longest {} tokens", histogram.documents,
                              histogram.tokens, histogram.longest)};
  out["summary"] = {{"sequences", histogram.documents},
                    {"mean", rounded(mean, 1)},
                    {"median", histogram.median},
                    {"p90", histogram.p90},
                    {"p99", histogram.p99},
                    {"percent_up_to", percent_up_to(histogram)}};
  nlohmann::ordered_json bins = nlohmann::ordered_json::array(), tokens = bins;
  for (const Bin& bin : histogram.bins) {
    bins.push_back(nlohmann::ordered_json::array({bin.lo, bin.hi, bin.count}));
    tokens.push_back(bin.tokens);
  }
  out["bins"] = std::move(bins);
  out["bin_tokens"] = std::move(tokens);
  return out.dump();
}

}  // namespace switchyard::data
