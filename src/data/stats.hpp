// How long the documents of a corpus are.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"

namespace switchyard::data {

/// Lengths lo <= length < hi: how many documents, and the sums of their lengths and squared lengths.
struct Bin {
  i64 lo = 0, hi = 0, count = 0, tokens = 0;
  double squares = 0;
};

/// Edges on all powers of two, four bins an octave from 16 up; the first bin is 1 to 15. Bins without documents are
/// left out.
struct Histogram {
  i64 documents = 0, tokens = 0, longest = 0;
  i64 median = 0, p90 = 0, p99 = 0;  // smallest length that at least this share of documents doesn't exceed
  std::vector<Bin> bins;
};

/// lengths  tokens per document, each 1 or more; may be empty
Histogram histogram_of(std::span<const i64> lengths);

/// A table for people: one line a bin with bars for documents, and shares of documents, tokens and squared lengths
/// (attention work).
std::string text_of(const Histogram& histogram);

/// One JSON object: name, source, unit, notes, summary with shares in percent up to each power of two from 512, and
/// bins [lo, hi, count] with the tokens of each (bin_tokens).
std::string json_of(const Histogram& histogram, std::string_view name, std::string_view source);

}  // namespace switchyard::data
