// Lengths of documents drawn from a histogram, where there is no data: for planning and simulating.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/sampler.hpp"

namespace switchyard::data {

/// Documents of lo <= length < hi, spread log-uniformly. tokens: the sum of their lengths, if known: then a part of
/// them have the shortest or the longest length instead, so that lengths drawn have this mean.
struct LengthBin {
  i64 lo = 0, hi = 0, count = 0;
  std::optional<i64> tokens{};
};

/// A histogram that the program carries within it: recipes/lengths/<name>.json.
struct ShippedLengths {
  std::string_view name;
  std::string_view text;
};
/// All shipped histograms, sorted by name.
std::span<const ShippedLengths> shipped_lengths();

/// The bins of a shipped histogram by its name, else of a JSON file as `data stats --json` and json_of write it:
/// "bins": [[lo, hi, count], ...], and maybe "bin_tokens": [tokens, ...]. errors  UserError naming the file and what is
/// wrong: not readable, not JSON, no bins, a bin without lengths (lo < 1, hi <= lo) or of a negative count, tokens that
/// a bin's documents can't have, no documents in any bin; a bin may have none
std::vector<LengthBin> read_length_bins(const std::string& path_or_name);

/// The lengths of one step's batch, a function of (seed, step). Lengths above the context are split, clipped or
/// refused.
std::vector<i64> draw_lengths(const std::vector<LengthBin>& bins, const Sampler::Settings& settings, i64 step);

}  // namespace switchyard::data
