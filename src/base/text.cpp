#include "base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace switchyard {

int edit_distance(std::string_view a, std::string_view b) {
  const size_t columns = b.size() + 1;
  std::vector<int> before(columns), above(columns), row(columns);
  for (size_t j = 0; j < columns; ++j) above[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j < columns; ++j) {
      const int replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

std::string nearest_name(std::string_view name, std::span<const std::string> names) {
  // A name this long is not a misspelt key. The bound also keeps hostile input from costing quadratic time.
  constexpr size_t kLongest = 200;
  if (name.size() > kLongest) return "";
  const int limit = std::max(2, static_cast<int>(name.size()) / 3);
  int least = limit + 1;
  std::string nearest;
  for (const std::string& candidate : names) {
    const int distance = edit_distance(name, candidate);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

bool is_utf8(std::string_view text) {
  constexpr char32_t kLeast[] = {0, 0x80, 0x800, 0x10000};  // by the number of bytes that follow the first
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char first = byte(i);
    if (first < 0x80) continue;
    const size_t more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    if (first < 0xc0 || first >= 0xf8 || i + more >= text.size()) return false;
    char32_t point = first & (0x3fu >> more);
    for (size_t k = 1; k <= more; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) return false;
      point = (point << 6) | (byte(i + k) & 0x3fu);
    }
    if (point < kLeast[more] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) return false;
    i += more;
  }
  return true;
}

bool matches_wildcard(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;  // let the last star match one more character
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string format_count(double count) {
  for (const char* unit : {"", "k", "M", "G"}) {
    if (count < 999.5) return fmt::format("{:.{}f}{}", count, count < 9.95 && *unit ? 1 : 0, unit);
    count /= 1000;
  }
  return fmt::format("{:.0f}T", count);
}

}  // namespace switchyard
